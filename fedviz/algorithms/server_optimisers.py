"""FedAvgM, FedAdam, FedYogi: the server treats the cohort's mean move as a gradient and feeds it to an optimiser of its own.

With delta = eta_c steps v, the mean of w - w_i:

    m <- beta m + delta,                                   w <- w - eta_s m                      (FedAvgM; Hsu et al. 2019)
    m <- beta1 m + (1 - beta1) delta
    s <- beta2 s + (1 - beta2) delta^2                     w <- w - eta_s m / (sqrt(s) + epsilon)     (FedAdam)
    s <- s - (1 - beta2) delta^2 sign(s - delta^2)         the same step                              (FedYogi)

m_0 = 0, s_0 = epsilon^2, elementwise, without bias correction. FedAdam, FedYogi: Reddi et al., Adaptive federated optimization,
ICLR 2021. The decomposition concerns v, what the optimiser is fed with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from fedviz.algorithms.base import Algorithm, AlgorithmParameters, Cohort, LocalResult, Setting, State
from fedviz.parameters import parameter

if TYPE_CHECKING:
    from torch import Tensor


# What the three begin with: the cohort's mean move.
MOVE = r"\begin{aligned}&v=\frac{1}{S}\sum_{i\in\mathcal S}\Delta_i,\quad\delta=\eta_c\tau v\\&"


class FedAvgMParameters(AlgorithmParameters):
    title: ClassVar = "FedAvgM"
    summary: ClassVar = "FedAvg with momentum at the server: the model keeps moving where recent rounds have pointed."
    formula: ClassVar = MOVE + r"m\leftarrow\beta m+\delta\\&w\leftarrow w-\eta_s m\end{aligned}"
    watch: ClassVar = (
        "The parts concern what the momentum is fed with, as with FedAvg: who took part stays; averaging over rounds steadies the "
        "curve of the loss instead."
    )
    paper: ClassVar = "Hsu, Qi, Brown, 2019"
    name: Literal["fedavgm"] = "fedavgm"
    beta: float = parameter(
        0.9, label="Momentum", symbol="β", help="Share of the last move that is kept; 0 is FedAvg.", ge=0, lt=1
    )

    def state_vectors(self, num_clients: int) -> int:
        return 1

    def build(self, setting: Setting) -> Algorithm:
        return FedAvgM(self, setting)


class FedAvgM(Algorithm):
    def init(self, w: Tensor) -> State:
        return {"momentum": w.new_zeros(len(w))}

    def step(self, state: State, w: Tensor, cohort: Cohort, result: LocalResult | None) -> tuple[Tensor, State]:
        if result is None:
            return w, state
        momentum = self.parameters.beta * state["momentum"] + self.reach * self.direction(state, cohort, result)
        return w - self.setting.server_lr * momentum, {"momentum": momentum}


class AdaptiveParameters(AlgorithmParameters):
    """What FedAdam and FedYogi have in common."""

    watch: ClassVar = (
        "The parts concern what the server's optimiser is fed with, as with FedAvg: who took part stays; averaging over rounds "
        "steadies the curve of the loss instead."
    )
    paper: ClassVar = "Reddi et al., ICLR 2021"
    beta1: float = parameter(
        0.9, label="Momentum", symbol="β1", help="Share of the mean move that is kept.", ge=0, lt=1
    )
    beta2: float = parameter(
        0.99, label="Memory of sizes", symbol="β2", help="Share of the mean squared move that is kept.", ge=0, lt=1
    )
    epsilon: float = parameter(
        1e-3,
        label="Floor",
        symbol="ε",
        help="Moves much smaller than this are not blown up.",
        gt=0,
        le=1e3,
        log=True,
        suggested=(1e-6, 1),
    )

    def state_vectors(self, num_clients: int) -> int:
        return 2


class FedAdamParameters(AdaptiveParameters):
    title: ClassVar = "FedAdam"
    summary: ClassVar = "The server runs Adam on the cohort's mean move: each coordinate gets a step of its own length."
    formula: ClassVar = MOVE + (
        r"m\leftarrow\beta_1 m+(1-\beta_1)\,\delta\\&s\leftarrow\beta_2 s+(1-\beta_2)\,\delta^2\\"
        r"&w\leftarrow w-\eta_s\,m/(\sqrt{s}+\varepsilon)\end{aligned}"
    )
    name: Literal["fedadam"] = "fedadam"

    def build(self, setting: Setting) -> Algorithm:
        return FedAdam(self, setting)


class FedYogiParameters(AdaptiveParameters):
    title: ClassVar = "FedYogi"
    summary: ClassVar = (
        "FedAdam whose memory of sizes changes more slowly, so that a quiet spell does not make steps explode."
    )
    formula: ClassVar = MOVE + (
        r"m\leftarrow\beta_1 m+(1-\beta_1)\,\delta\\&s\leftarrow s-(1-\beta_2)\,\delta^2\,\mathrm{sign}(s-\delta^2)\\"
        r"&w\leftarrow w-\eta_s\,m/(\sqrt{s}+\varepsilon)\end{aligned}"
    )
    name: Literal["fedyogi"] = "fedyogi"

    def build(self, setting: Setting) -> Algorithm:
        return FedYogi(self, setting)


class FedAdam(Algorithm):
    def init(self, w: Tensor) -> State:
        return {"momentum": w.new_zeros(len(w)), "sizes": w.new_full((len(w),), self.parameters.epsilon**2)}

    def sizes(self, old: Tensor, squared: Tensor) -> Tensor:
        """s after a move with squares `squared` [d]; never negative."""
        return self.parameters.beta2 * old + (1 - self.parameters.beta2) * squared

    def step(self, state: State, w: Tensor, cohort: Cohort, result: LocalResult | None) -> tuple[Tensor, State]:
        if result is None:
            return w, state
        p, delta = self.parameters, self.reach * self.direction(state, cohort, result)
        momentum = p.beta1 * state["momentum"] + (1 - p.beta1) * delta
        sizes = self.sizes(state["sizes"], delta**2)
        moved = w - self.setting.server_lr * momentum / (sizes.sqrt() + p.epsilon)
        return moved, {"momentum": momentum, "sizes": sizes}


class FedYogi(FedAdam):
    def sizes(self, old: Tensor, squared: Tensor) -> Tensor:
        return old - (1 - self.parameters.beta2) * squared * (old - squared).sign()
