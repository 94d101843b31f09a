"""How the samples of a data set are dealt to clients.

A partition is a list of N index arrays: every training index once, no client empty. Keyed by the seed: the same seed gives the same
partition, whatever was made before.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedviz.keyed_random import Purpose, normals, shuffles, uniforms
from fedviz.parameters import Parameters, parameter
from fedviz.problems.base import ProblemError

Indices = list[NDArray[np.int64]]


class PartitionError(ProblemError):
    """The data is there, but cannot be dealt as asked."""


class PartitionParameters(Parameters):
    """The parameter model of a partition, with what the pages say about it."""

    title: ClassVar[str]
    summary: ClassVar[str]
    formula: ClassVar[str]  # LaTeX: which labels a client has, of C in all; n samples go to N clients
    name: str

    def deal(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        """N index arrays over labels [n]; some may be empty."""
        raise NotImplementedError


def partition(parameters: PartitionParameters, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
    """N non-empty index arrays that use every index of labels [n] once. Raises PartitionError when a client would be empty."""
    if num_clients > len(labels):
        raise PartitionError(
            f"There are {len(labels):,} samples for {num_clients:,} clients: use at most {len(labels):,} clients."
        )
    parts = parameters.deal(labels, num_clients, seed)
    empty = sum(len(part) == 0 for part in parts)
    if empty:
        raise PartitionError(
            f"This partition leaves {empty:,} of {num_clients:,} clients without a sample: use fewer clients, another partition or seed."
        )
    return parts


def shuffled(count: int, seed: int) -> NDArray[np.int64]:
    return shuffles(seed, Purpose.PARTITION, lengths=count)


class Iid(PartitionParameters):
    title: ClassVar = "Identical (iid)"
    summary: ClassVar = "Samples are shuffled and dealt equally: all clients look alike."
    formula: ClassVar = r"\Pr(y\mid i)=\Pr(y),\quad n_i=\frac nN"
    name: Literal["iid"] = "iid"

    def deal(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        return [np.sort(part) for part in np.array_split(shuffled(len(labels), seed), num_clients)]


class Similarity(PartitionParameters):
    title: ClassVar = "Similarity"
    summary: ClassVar = (
        "A share s of the data is dealt at random; the rest goes by label, so that each client has mostly one label."
    )
    formula: ClassVar = (
        r"\begin{aligned}&\Pr(y\mid i)\approx s\,\Pr(y)+(1-s)\,\mathbf 1[y=y_i]\\"
        r"&y_i=\lfloor Ci/N\rfloor,\quad i=0,\dots,N-1\end{aligned}"
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
        sizes, chosen = [0] * num_clients, []
        # For each label a heap of (size, owner); entries whose size is out of date are passed over.
        heaps = [[(0, client) for client in owner] for owner in owners]
        owned_by: list[list[int]] = [[] for _ in range(num_clients)]
        for label, owner in enumerate(owners):
            for client in owner:
                owned_by[client].append(label)
        for label, random_client in zip(labels.tolist(), anyone, strict=True):
            client = random_client
            if client < 0:
                heap = heaps[label]
                while heap[0][0] != sizes[heap[0][1]]:
                    heappop(heap)
                client = heap[0][1]
            sizes[client] += 1
            for owned_label in owned_by[client]:
                heappush(heaps[owned_label], (sizes[client], client))
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


class Dirichlet(PartitionParameters):
    title: ClassVar = "Dirichlet"
    summary: ClassVar = (
        "Label shares are drawn at random; a small alpha makes clients very different, a large one makes them alike."
    )
    formula: ClassVar = (
        r"\begin{aligned}&\Pr(\cdot\mid i)\sim\mathrm{Dir}(\alpha\mathbf 1_C)\ \text{ for each client, or}\\"
        r"&\Pr(\cdot\mid y)\sim\mathrm{Dir}(\alpha\mathbf 1_N)\ \text{ for each class}\end{aligned}"
    )
    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = parameter(
        0.3,
        label="Concentration",
        symbol="α",
        help="Small: few labels a client; large: all clients look alike (iid).",
        gt=0,
        le=1e6,
        log=True,
        suggested=(0.01, 100),
    )
    definition: Literal["per_client", "per_class"] = parameter(
        "per_client",
        label="Drawn",
        help="per client: its label mix, equal sizes; per class: how its samples are split, unequal sizes.",
        choices={"per_client": "a mix for each client", "per_class": "a split of each class"},
    )

    def deal(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        pools = [np.flatnonzero(labels == y) for y in range(int(labels.max()) + 1)]
        pools = [pool[shuffles(seed, Purpose.PARTITION, lengths=len(pool), client=y)] for y, pool in enumerate(pools)]
        deal = self._per_client if self.definition == "per_client" else self._per_class
        return deal(pools, num_clients, seed)

    def _per_client(self, pools: Indices, num_clients: int, seed: int) -> Indices:
        """Client i's mix over labels ~ Dir(alpha). Its samples are drawn without replacement; used-up labels drop out of the mix."""
        mixes = log_gammas(self.alpha, seed, rows=num_clients, columns=len(pools))
        left = np.array([len(pool) for pool in pools])
        sizes = [len(part) for part in np.array_split(np.arange(left.sum()), num_clients)]
        parts = []
        for client, size in enumerate(sizes):
            taken = np.zeros_like(left)
            draws = uniforms(seed, Purpose.PARTITION, client=client, epoch=2, size=size)
            while taken.sum() < size:  # every further turn has used up a label
                there = taken < left
                mix = np.where(there, mixes[client], -np.inf)
                shares = np.cumsum(np.exp(mix - mix.max()))
                wanted = np.bincount(
                    np.searchsorted(shares / shares[-1], draws[taken.sum() :], side="right"), minlength=len(left)
                )
                taken = np.minimum(taken + wanted, left)
            starts = [len(pool) - n for pool, n in zip(pools, left, strict=True)]
            parts.append(np.sort(np.concatenate([p[s : s + t] for p, s, t in zip(pools, starts, taken, strict=True)])))
            left -= taken
        return parts

    def _per_class(self, pools: Indices, num_clients: int, seed: int) -> Indices:
        """Class y's samples are split over the clients ~ Dir(alpha), up to 20 times until nobody is empty.

        Where that does not help, the largest client gives each empty one a sample: a floor of one.
        """
        parts: list[list[NDArray[np.int64]]] = []
        for attempt in range(20):
            parts = [[] for _ in range(num_clients)]
            for label, pool in enumerate(pools):
                logs = log_gammas(
                    self.alpha, seed, rows=1, columns=num_clients, place=1 + label + len(pools) * attempt
                )[0]
                shares = np.cumsum(np.exp(logs - logs.max()))
                bounds = np.floor(shares / shares[-1] * len(pool) + 0.5).astype(int)
                for part, piece in zip(parts, np.split(pool, bounds[:-1]), strict=True):
                    part.append(piece)
            if all(sum(map(len, part)) for part in parts):
                break
        whole = [np.concatenate(part) for part in parts]
        for client in range(num_clients):
            if not len(whole[client]):
                largest = max(range(num_clients), key=lambda c: len(whole[c]))
                whole[client], whole[largest] = whole[largest][:1], whole[largest][1:]
        return [np.sort(part) for part in whole]


class Shards(PartitionParameters):
    title: ClassVar = "Label shards"
    summary: ClassVar = "The data is sorted by label and cut into shards; each client gets a few at random."
    formula: ClassVar = (
        r"\begin{aligned}&B_1,\dots,B_{aN}:\ \text{the data by label, in pieces}\\"
        r"&\mathcal D_i=B_{\sigma(ai+1)}\cup\dots\cup B_{\sigma(ai+a)},\quad\sigma\text{ random}\end{aligned}"
    )
    name: Literal["shards"] = "shards"
    shards_per_client: int = parameter(
        2,
        label="Shards a client",
        symbol="a",
        help="How many pieces of the sorted data a client gets: about as many labels.",
        ge=1,
        le=1000,
        suggested=(1, 10),
    )

    def deal(self, labels: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
        if num_clients * self.shards_per_client > len(labels):
            raise PartitionError(
                f"{num_clients:,} clients with {self.shards_per_client} shards need {num_clients * self.shards_per_client:,} samples, "
                f"there are {len(labels):,}: use fewer clients or shards."
            )
        pieces = np.array_split(np.argsort(labels, kind="stable"), num_clients * self.shards_per_client)
        order = shuffled(len(pieces), seed).reshape(num_clients, self.shards_per_client)
        return [np.sort(np.concatenate([pieces[n] for n in row])) for row in order]


def log_gammas(alpha: float, seed: int, *, rows: int, columns: int, place: int = 0) -> NDArray[np.float64]:
    """[rows, columns] logarithms of Gamma(alpha) variates: normalised, a row is Dirichlet(alpha), however small alpha is.

    Gamma(alpha) = Gamma(alpha + 1) U^(1/alpha), in logarithms because for small alpha the variates themselves underflow.
    """
    from scipy.special import gammaincinv

    u = uniforms(seed, Purpose.PARTITION, round=place, client=np.arange(rows), epoch=1, size=2 * columns)
    return np.log(gammaincinv(alpha + 1, u[:, :columns])) + np.log(u[:, columns:]) / alpha


def thinned(parts: Indices, spread: float, seed: int) -> Indices:
    """Quantity skew: client i keeps a share of its samples, in proportion to e^(spread z_i), z_i normal; the largest keeps all.

    At least one sample stays; what is dropped is not used by the run.
    """
    z = normals(seed, Purpose.PARTITION, epoch=3, size=len(parts))
    shares = np.exp(spread * (z - z.max()))
    kept = [max(1, round(share * len(part))) for share, part in zip(shares, parts, strict=True)]
    orders = [shuffles(seed, Purpose.PARTITION, lengths=len(part), client=n, epoch=4) for n, part in enumerate(parts)]
    return [np.sort(part[order[:n]]) for part, order, n in zip(parts, orders, kept, strict=True)]


AnyPartition = Annotated[Iid | Similarity | Dirichlet | Shards, Field(discriminator="name")]
PARTITIONS: dict[str, type[PartitionParameters]] = {
    "similarity": Similarity,
    "dirichlet": Dirichlet,
    "shards": Shards,
    "iid": Iid,
}
