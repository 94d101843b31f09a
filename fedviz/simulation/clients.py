"""What is known of a run's clients before it starts, and without torch: their clusters, and when they take part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedviz.algorithms import ClusterFedVARPParameters, ExplicitClusters
from fedviz.problems import Classification, clustering
from fedviz.problems.classification import label_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedviz.config import SimulationConfig
    from fedviz.participation import Participation


def participation_of(config: SimulationConfig) -> Participation:
    """The run's participation pattern at work. Raises ProblemError where it needs labels that are not at hand."""
    by_label = getattr(config.participation, "grouping", "id") == "label"
    labels = config.problem.majority_labels(config.num_clients, config.seed) if by_label else None
    return config.participation.build(config.num_clients, config.seed, labels)


def clusters_of(config: SimulationConfig) -> NDArray[np.int64] | None:
    """[N] the algorithm's clusters; None for one without. Raises ProblemError where the data is not at hand."""
    if not isinstance(config.algorithm, ClusterFedVARPParameters):
        return None
    chosen, clusters = config.algorithm.clustering, config.algorithm.clusters
    if isinstance(chosen, ExplicitClusters):
        return np.array(chosen.labels)
    if chosen == "random":
        return clustering.at_random(config.num_clients, clusters, config.seed)
    assert isinstance(config.problem, Classification)  # the config saw to it
    counts = label_counts(config.problem, config.num_clients, config.seed)
    return (
        clustering.by_label(counts.argmax(1), clusters)
        if chosen == "label"
        else clustering.by_kmeans(counts, clusters, config.seed)
    )
