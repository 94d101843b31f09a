"""FedVARP and ClusterFedVARP: the server remembers what each client, or each cluster of clients, last brought.

    v = mean over S of (Delta_i - y_i) + sum_j p_j y_j,   then y_i <- Delta_i for i in S            (FedVARP)
    v = mean over S of (Delta_i - y_c(i)) + sum_j p_j y_c(j),   then for each cluster k that was seen
        y_k <- mean of Delta_i over S in cluster k                                                  (ClusterFedVARP)

The direction is formed with the old memories. Jhunjhunwala et al., FedVARP: Tackling the variance due to partial client
participation in federated learning, UAI 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedviz.algorithms.base import Algorithm, AlgorithmParameters, Cohort, LocalResult, MemoryTable, Setting, State
from fedviz.parameters import Parameters, parameter

if TYPE_CHECKING:
    from torch import Tensor

PAPER = "Jhunjhunwala et al., UAI 2022"


class FedVARPParameters(AlgorithmParameters):
    title: ClassVar = "FedVARP"
    summary: ClassVar = (
        "The server keeps each client's last update and lets it stand in while the client is absent, so who happens to "
        "take part no longer shakes the model."
    )
    formula: ClassVar = (
        r"\begin{aligned}&v=\frac{1}{S}\sum_{i\in\mathcal S}(\Delta_i-y_i)+\frac{1}{N}\sum_{j}y_j\\"
        r"&\text{then }\ y_i\leftarrow\Delta_i,\quad i\in\mathcal S\end{aligned}"
    )
    watch: ClassVar = (
        "Look at the part of the error that comes from who took part: once all clients have been seen, memories should push it "
        "far down, while the drift of local steps stays."
    )
    paper: ClassVar = PAPER
    name: Literal["fedvarp"] = "fedvarp"

    def state_vectors(self, num_clients: int) -> int:
        return num_clients + 1

    def build(self, setting: Setting) -> Algorithm:
        return FedVARP(self, setting)


class FedVARP(Algorithm):
    remembers = "client"

    def __init__(self, parameters: FedVARPParameters, setting: Setting) -> None:
        super().__init__(parameters, setting)
        self.table = MemoryTable(setting.client_weights)

    def init(self, w: Tensor) -> State:
        return self.table.zeros(w)

    def memory(self, state: State, clients: Tensor) -> Tensor:
        return state["memory"][clients]

    def offset(self, state: State) -> Tensor:
        return state["mean"]

    def remember(self, state: State, cohort: Cohort, result: LocalResult) -> State:
        return self.table.write(state, cohort.clients, result.updates, cohort.round)


class ExplicitClusters(Parameters):
    """The cluster of each client, given: labels 0 ... K-1, every one in use."""

    labels: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class ClusterFedVARPParameters(AlgorithmParameters):
    title: ClassVar = "ClusterFedVARP"
    summary: ClassVar = (
        "FedVARP with one memory for each cluster of similar clients: K vectors instead of N, fresher, but blind to "
        "differences inside a cluster."
    )
    formula: ClassVar = (
        r"\begin{aligned}&v=\frac{1}{S}\sum_{i\in\mathcal S}(\Delta_i-y_{c(i)})+\sum_{k}\frac{n_k}{N}\,y_k\\"
        r"&\text{then }\ y_k\leftarrow\frac{1}{|\mathcal S_k|}\sum_{i\in\mathcal S_k}\Delta_i\\"
        r"&\mathcal S_k\text{: those of }\mathcal S\text{ in cluster }k\text{, if any}\end{aligned}"
    )
    watch: ClassVar = (
        "Look at the part of the error that comes from who took part: it should fall sooner than with a memory for each client, "
        "but only to the level of the differences inside the clusters."
    )
    paper: ClassVar = PAPER
    name: Literal["cluster_fedvarp"] = "cluster_fedvarp"
    clusters: int = parameter(
        10,
        label="Clusters",
        symbol="K",
        help="How many memories the server keeps; 1 is FedAvg, N is FedVARP.",
        ge=1,
        le=100_000,
    )
    clustering: Literal["label", "random", "kmeans"] | ExplicitClusters = parameter(
        "label",
        label="Clients are grouped by",
        help="How clients are put into clusters, once, before training.",
        choices={"label": "majority label", "random": "chance", "kmeans": "k-means on labels"},
    )

    def state_vectors(self, num_clients: int) -> int:
        return self.clusters + 1

    def build(self, setting: Setting) -> Algorithm:
        return ClusterFedVARP(self, setting)


class ClusterFedVARP(Algorithm):
    remembers = "cluster"

    def __init__(self, parameters: ClusterFedVARPParameters, setting: Setting) -> None:
        super().__init__(parameters, setting)
        if setting.clusters is None:
            raise ValueError("ClusterFedVARP was given no clusters: pass Setting(clusters=[N] labels).")
        weights = setting.client_weights.new_zeros(parameters.clusters)
        weights.index_add_(0, setting.clusters, setting.client_weights)
        self.clusters, self.table = setting.clusters, MemoryTable(weights)

    def init(self, w: Tensor) -> State:
        return self.table.zeros(w)

    def memory(self, state: State, clients: Tensor) -> Tensor:
        return state["memory"][self.clusters[clients]]

    def offset(self, state: State) -> Tensor:
        return state["mean"]

    def remember(self, state: State, cohort: Cohort, result: LocalResult) -> State:
        # Membership as a [seen, S] averaging matrix: each row has 1/size at the members of one seen cluster.
        seen, row = self.clusters[cohort.clients].unique(return_inverse=True)
        averaging = result.updates.new_zeros(len(seen), len(row))
        averaging[row, row.new_tensor(range(len(row)))] = 1.0
        averaging /= averaging.sum(1, keepdim=True)
        return self.table.write(state, seen, averaging @ result.updates, cohort.round)
