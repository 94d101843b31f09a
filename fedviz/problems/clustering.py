"""Which cluster each client belongs to, settled once before training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedviz.keyed_random import Purpose, bits, shuffles


def by_label(majority: NDArray[np.int64], clusters: int) -> NDArray[np.int64]:
    """[N] clusters of near-equal size along the order of majority labels [N]; K = number of labels gives one label each."""
    return _cut(np.argsort(majority, kind="stable"), clusters)


def at_random(num_clients: int, clusters: int, seed: int) -> NDArray[np.int64]:
    """[N] clusters of near-equal size of clients in random order."""
    return _cut(shuffles(seed, Purpose.CLUSTERING, lengths=num_clients), clusters)


def by_kmeans(counts: NDArray[np.int64], clusters: int, seed: int) -> NDArray[np.int64]:
    """[N] k-means clusters of label counts [N, C], compared by the Hellinger distance. Always K non-empty clusters."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    features = np.sqrt(counts / counts.sum(1, keepdims=True))
    distinct = min(clusters, len(np.unique(features, axis=0)))
    with threadpool_limits(limits=1):
        labels = KMeans(distinct, n_init=4, random_state=int(bits(seed, Purpose.CLUSTERING, size=1)[0])).fit_predict(
            features
        )
    labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    # Clients with equal label counts cannot be told apart: where that leaves fewer than K clusters, the largest are halved.
    for fresh in range(int(labels.max()) + 1, clusters):
        members = np.flatnonzero(labels == np.bincount(labels).argmax())
        labels[members[: len(members) // 2]] = fresh
    return labels


def _cut(order: NDArray[np.int64], clusters: int) -> NDArray[np.int64]:
    labels = np.empty(len(order), dtype=np.int64)
    for k, members in enumerate(np.array_split(order, clusters)):
        labels[members] = k
    return labels
