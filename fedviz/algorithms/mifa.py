"""MIFA: the server steps along the mean of everybody's last update, fresh ones included.

    y_i <- Delta_i for i in S,   then   v = sum_j p_j y_j

which is offset + (|S|/N) * mean over S of (Delta_i - y_i) with the old memories: FedVARP with 1/N for 1/|S|. Quieter, but biased
towards the past: E v - v_full = -(1 - |S|/N) mean_i (Delta_i - y_i). Gu et al., Fast federated learning in the presence of arbitrary
device unavailability, NeurIPS 2021. Defined for a server rate of 1. Memories start at zero, which damps the first N/|S| rounds.
"""

from typing import ClassVar, Literal

from fedviz.algorithms.base import Algorithm, Setting
from fedviz.algorithms.fedvarp import FedVARP, FedVARPParameters


class MIFAParameters(FedVARPParameters):
    title: ClassVar = "MIFA"
    summary: ClassVar = (
        "The server steps along the average of everybody's last update: very quiet, but it lags behind the present."
    )
    formula: ClassVar = r"v=\frac{1}{N}\sum_{j}y_j\ \text{ after }\ y_i\leftarrow\Delta_i,\ i\in\mathcal S"
    watch: ClassVar = (
        "Who took part should matter less than with FedVARP; in exchange the step lags behind, which shows as a bias of old "
        "memories, most of all until all clients have been seen."
    )
    paper: ClassVar = "Gu et al., NeurIPS 2021"
    server_rate_fixed: ClassVar = True
    counts_alike: ClassVar = True
    name: Literal["mifa"] = "mifa"  # type: ignore[assignment]

    def build(self, setting: Setting) -> Algorithm:
        return MIFA(self, setting)


class MIFA(FedVARP):
    def gain(self, size: int) -> float:
        return size / self.setting.num_clients
