"""FedAvg and FedProx: no memory, the server follows the cohort's mean update.

v = mean over S of Delta_i                                   (FedAvg; McMahan et al. 2017)
every local gradient gains mu (u - w)                        (FedProx; Li et al. 2020)
"""

from typing import ClassVar, Literal

from fedviz.algorithms.base import Algorithm, AlgorithmParameters, Setting
from fedviz.parameters import parameter


class FedAvgParameters(AlgorithmParameters):
    title: ClassVar = "FedAvg"
    summary: ClassVar = (
        "The server follows the average of whoever took part, so a round of few clients points where those few want."
    )
    formula: ClassVar = r"v=\frac{1}{S}\sum_{i\in\mathcal S}\Delta_i"
    watch: ClassVar = (
        "Look at the part of the error that comes from who took part: nothing is remembered, so it stays as long as clients "
        "differ, however long it runs."
    )
    paper: ClassVar = "McMahan et al., AISTATS 2017"
    name: Literal["fedavg"] = "fedavg"

    def build(self, setting: Setting) -> Algorithm:
        return Algorithm(self, setting)


class FedProxParameters(AlgorithmParameters):
    title: ClassVar = "FedProx"
    summary: ClassVar = "FedAvg whose clients are held back: a spring pulls each local model towards the server's."
    formula: ClassVar = (
        r"\begin{aligned}&g_i(u)\to g_i(u)+\mu\,(u-w)\\&v=\frac{1}{S}\sum_{i\in\mathcal S}\Delta_i\end{aligned}"
    )
    watch: ClassVar = (
        "The spring keeps local models closer to the server's, but nothing is remembered: the part of the error that comes from "
        "who took part stays as long as clients differ."
    )
    paper: ClassVar = "Li et al., MLSys 2020"
    name: Literal["fedprox"] = "fedprox"
    mu: float = parameter(
        0.1,
        label="Pull towards the server",
        symbol="μ",
        help="Strength of the spring; 0 is FedAvg.",
        ge=0,
        le=1e4,
        log=True,
        suggested=(0.001, 10),
    )

    def build(self, setting: Setting) -> Algorithm:
        return FedProx(self, setting)


class FedProx(Algorithm):
    def __init__(self, parameters: FedProxParameters, setting: Setting) -> None:
        super().__init__(parameters, setting)
        self.mu = parameters.mu
