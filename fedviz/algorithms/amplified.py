"""Amplified FedAvg and Amplified SCAFFOLD: after every window of P rounds, the whole window's move is taken gamma times.

    at the end of a window   w <- w_start + gamma (w - w_start),   w_start <- w

A window in which every group of clients had its turn points where all clients want, although no single round does. Amplified SCAFFOLD
also corrects local steps by G - G_i, frozen for the whole window; a participant's raw mean gradients are gathered, and at the end

    G_i <- sum_r q_r^i g_{r,i} / sum_r q_r^i  for clients that took part,   G <- sum_i p_i G_i

Windows end when round % P == 0, also if that round's cohort is empty; a last, incomplete window is not amplified. Defined for a server
rate of 1. Wang, Ji, 2022 (Amplified FedAvg); Crawshaw, Liu, NeurIPS 2024 (Amplified SCAFFOLD).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from fedviz.algorithms.base import Algorithm, AlgorithmParameters, Cohort, LocalResult, Setting, State
from fedviz.algorithms.scaffold import ControlVariates
from fedviz.parameters import parameter

if TYPE_CHECKING:
    from torch import Tensor


class AmplifiedParameters(AlgorithmParameters):
    """What both have in common."""

    server_rate_fixed: ClassVar = True
    amplification: float = parameter(
        1.5,
        label="Amplification",
        symbol="γ",
        help="How many times the move of a window is taken; 1 is none.",
        ge=1,
        le=1000,
        suggested=(1, 5),
    )
    window: int | None = parameter(
        None,
        label="Window",
        symbol="P",
        help="Rounds in a window; empty: the period of the participation pattern.",
        ge=1,
        le=1_000_000,
    )


class AmplifiedFedAvgParameters(AmplifiedParameters):
    title: ClassVar = "Amplified FedAvg"
    summary: ClassVar = (
        "FedAvg that takes the move of a whole window of rounds more than once, when everybody has had a turn."
    )
    formula: ClassVar = (
        r"\begin{aligned}&v=\frac{1}{S}\sum_{i\in\mathcal S}\Delta_i\\&\text{after every } P \text{ rounds:}\\"
        r"&w\leftarrow w_{\mathrm{start}}+\gamma\,(w-w_{\mathrm{start}})\end{aligned}"
    )
    watch: ClassVar = (
        "The part of the error that comes from who took part stays in every single round, for nothing is remembered; over a whole "
        "window in which everybody had a turn it largely cancels."
    )
    paper: ClassVar = "Wang, Ji, NeurIPS 2022"
    name: Literal["amplified_fedavg"] = "amplified_fedavg"
    mu: float = parameter(
        0.0,
        label="Pull towards the server",
        symbol="μ",
        help="Adds FedProx's spring to the local steps; 0 is none.",
        ge=0,
        le=1e4,
        log=True,
        suggested=(0.001, 10),
    )

    def state_vectors(self, num_clients: int) -> int:
        return 1

    def build(self, setting: Setting) -> Algorithm:
        return AmplifiedFedAvg(self, setting)


class AmplifiedFedAvg(Algorithm):
    def __init__(self, parameters: AmplifiedParameters, setting: Setting) -> None:
        super().__init__(parameters, setting)
        self.window = parameters.window or setting.window
        self.mu = getattr(parameters, "mu", 0.0)

    def init(self, w: Tensor) -> State:
        return {"window_start": w.clone()}

    def step(self, state: State, w: Tensor, cohort: Cohort, result: LocalResult | None) -> tuple[Tensor, State]:
        w, state = super().step(state, w, cohort, result)
        if cohort.round % self.window == 0:
            start = state["window_start"]
            w = start + self.parameters.amplification * (w - start)
            state = self.end_window({**state, "window_start": w.clone()})
        return w, state

    def end_window(self, state: State) -> State:
        """The state after the amplified step."""
        return state


class AmplifiedScaffoldParameters(AmplifiedParameters):
    title: ClassVar = "Amplified SCAFFOLD"
    summary: ClassVar = (
        "SCAFFOLD for clients that take turns: corrections stay fixed for a window, whose move is taken more than once."
    )
    formula: ClassVar = (
        r"\begin{aligned}&g_i(u)\to g_i(u)+G-G_i\\&v=\frac{1}{S}\sum_{i\in\mathcal S}\Delta_i\\&\text{after every } P \text{ rounds:}\\"
        r"&w\leftarrow w_{\mathrm{start}}+\gamma\,(w-w_{\mathrm{start}})\\"
        r"&G_i\leftarrow\frac{\sum_{r}q_r^i\,\bar g_{r,i}}{\sum_{r}q_r^i}\ \text{ if seen}\\&G\leftarrow\frac{1}{N}\sum_{j}G_j\end{aligned}"
    )
    watch: ClassVar = (
        "Look at two parts of the error: who took part should fall as control variates fill at the end of each window, and so "
        "should drift across the gradient (see Relative)."
    )
    paper: ClassVar = "Crawshaw, Liu, NeurIPS 2024"
    vectors_down: ClassVar = 2
    vectors_up: ClassVar = 2
    name: Literal["amplified_scaffold"] = "amplified_scaffold"

    def state_vectors(self, num_clients: int) -> int:
        return 2 * num_clients + 2

    def build(self, setting: Setting) -> Algorithm:
        return AmplifiedScaffold(self, setting)


class AmplifiedScaffold(ControlVariates, AmplifiedFedAvg):
    needs = frozenset({"gradients"})
    remembers = "client"

    def init(self, w: Tensor) -> State:
        clients, d = self.setting.num_clients, len(w)
        return {
            **super().init(w),
            "client_variates": w.new_zeros(clients, d),  # G_i
            "server_variate": w.new_zeros(d),  # G
            "gathered": w.new_zeros(clients, d),  # sum_r q_r^i g_{r,i} of this window
            "presence": w.new_zeros(clients),  # sum_r q_r^i of this window
        }

    def renewed(self, state: State, cohort: Cohort) -> Tensor:
        """Whoever took part in the window, at its end; nobody within it."""
        if cohort.round % self.window:
            return cohort.clients[:0]
        present = state["presence"] > 0
        present[cohort.clients] = True
        return present.nonzero().flatten()

    def remember(self, state: State, cohort: Cohort, result: LocalResult) -> State:
        assert result.gradients is not None  # `needs` asked for it
        q = cohort.weights / (self.setting.num_clients * self.setting.client_weights[cohort.clients])
        state["gathered"][cohort.clients] += q[:, None] * result.gradients
        state["presence"][cohort.clients] += q
        return state

    def end_window(self, state: State) -> State:
        seen = state["presence"] > 0
        state["client_variates"][seen] = state["gathered"][seen] / state["presence"][seen, None]
        state["server_variate"] = self.setting.client_weights @ state["client_variates"]
        state["gathered"].zero_()
        state["presence"].zero_()
        return state
