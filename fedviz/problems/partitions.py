"""How the samples of a data set are dealt to clients.

A partition is a list of N index arrays: every training index once, no client empty. Keyed by the seed: the same seed gives the same
partition, whatever was made before.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedviz.keyed_random import Purpose, shuffles, uniforms
from fedviz.parameters import Parameters, parameter
from fedviz.problems.base import ProblemError

Indices = list[NDArray[np.int64]]


class PartitionParameters(Parameters):
    """The parameter model of a partition, with what the pages say about it."""

    title: ClassVar[str]
    summary: ClassVar[str]
    name: str

    def deal(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        """N index arrays over labels [n]; some may be empty."""
        raise NotImplementedError


def partition(parameters: PartitionParameters, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
    """N non-empty index arrays that use every index of labels [n] once. Raises ProblemError when a client would be empty."""
    if num_clients > len(labels):
        raise ProblemError(
            f"There are {len(labels):,} samples for {num_clients:,} clients: use at most {len(labels):,} clients."
        )
    parts = parameters.deal(labels, num_clients, seed)
    empty = sum(len(part) == 0 for part in parts)
    if empty:
        raise ProblemError(
            f"This partition leaves {empty:,} of {num_clients:,} clients without a sample: use fewer clients, another partition or seed."
        )
    return parts


def shuffled(count: int, seed: int) -> NDArray[np.int64]:
    return shuffles(seed, Purpose.PARTITION, lengths=count)


class Iid(PartitionParameters):
    title: ClassVar = "Identical (iid)"
    summary: ClassVar = "Samples are shuffled and dealt equally: all clients look alike."
    name: Literal["iid"] = "iid"

    def deal(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        return [np.sort(part) for part in np.array_split(shuffled(len(labels), seed), num_clients)]


class Similarity(PartitionParameters):
    title: ClassVar = "Similarity"
    summary: ClassVar = (
        "A share s of the data is dealt at random; the rest goes by label, so that each client has mostly one label."
    )
    name: Literal["similarity"] = "similarity"
    similarity: float = parameter(
        0.05,
        label="Similarity",
        symbol="s",
        help="0: each client has its own label; 1: all clients look alike.",
        ge=0,
        le=1,
    )
    protocol: Literal["majority_label", "sorted_blocks"] = parameter(
        "majority_label",
        label="Rest is dealt by",
        help="The protocol of the Amplified SCAFFOLD paper, or that of SCAFFOLD.",
        choices={"majority_label": "majority label", "sorted_blocks": "sorted blocks"},
    )

    def deal(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        deal = self._majority_label if self.protocol == "majority_label" else self._sorted_blocks
        return deal(labels, num_clients, seed)

    def _majority_label(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        """Client n owns label floor(C n / N). Each sample goes, with chance s, to any client, else to the smallest owner of its label.

        Where there are fewer clients than labels, an unowned label y goes to client floor(y N / C). Amplified SCAFFOLD's protocol.
        """
        classes = int(labels.max()) + 1
        owned = np.arange(num_clients) * classes // num_clients
        owners = [np.flatnonzero(owned == y).tolist() or [y * num_clients // classes] for y in range(classes)]
        draws = uniforms(seed, Purpose.PARTITION, client=np.arange(len(labels)), size=2)
        anyone = np.where(draws[:, 0] < self.similarity, (draws[:, 1] * num_clients).astype(np.int64), -1).tolist()
        sizes = [0] * num_clients
        chosen = []
        for label, random_client in zip(labels.tolist(), anyone, strict=True):
            client = random_client if random_client >= 0 else min(owners[label], key=sizes.__getitem__)
            sizes[client] += 1
            chosen.append(client)
        order = np.argsort(chosen, kind="stable")
        return np.split(order, np.cumsum(sizes)[:-1])

    def _sorted_blocks(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        """s of the shuffled data dealt equally; the rest sorted by label and cut into N equal blocks. SCAFFOLD's protocol."""
        order = shuffled(len(labels), seed)
        common = round(self.similarity * len(labels))
        rest = order[common:]
        rest = rest[np.argsort(labels[rest], kind="stable")]
        # The blocks of the rest are dealt from the last client on, so that remainders do not pile up on the first clients.
        dealt = np.array_split(order[:common], num_clients)
        bounds = np.linspace(0, len(rest), num_clients + 1).round().astype(int)
        blocks = [rest[a:b] for a, b in pairwise(bounds)]
        return [np.sort(np.concatenate(pair)) for pair in zip(dealt, blocks, strict=True)]


AnyPartition = Annotated[Iid | Similarity, Field(discriminator="name")]
PARTITIONS: dict[str, type[PartitionParameters]] = {"similarity": Similarity, "iid": Iid}
