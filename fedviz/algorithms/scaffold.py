"""SCAFFOLD: control variates correct every local step.

    local gradient of client i gains  c - c_i  (both fixed during the pass)
    option I   c_i <- grad f_i(w), the full-data gradient at the round's start
    option II  c_i <- mean raw gradient of the pass  (= c_i - c + (w - w_i) / (steps eta_c))
    c <- c + sum_S p_i (c_i_new - c_i_old)           (p_i = 1/N: the factor is 1/N, not 1/S)

Delta_i holds the correction already, so memory and offset are both c: the direction is the plain mean of Delta_i where weights
sum to 1, and stays unbiased where they do so only on average. Karimireddy et al., SCAFFOLD, ICML 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from fedviz.algorithms.base import Algorithm, AlgorithmParameters, Cohort, LocalResult, MemoryTable, Setting, State
from fedviz.parameters import parameter

if TYPE_CHECKING:
    from torch import Tensor


class ScaffoldParameters(AlgorithmParameters):
    title: ClassVar = "SCAFFOLD"
    summary: ClassVar = (
        "Each client corrects its own steps by how its gradient usually differs from everybody's, so that local models "
        "no longer drift apart."
    )
    formula: ClassVar = (
        r"\begin{aligned}&g_i(u)\to g_i(u)+c-c_i\\&v=\frac{1}{S}\sum_{i\in\mathcal S}\Delta_i\\"
        r"&\text{then }\ c_i\leftarrow\bar g_i,\quad i\in\mathcal S\\&\text{(option I: }c_i\leftarrow\nabla f_i(w)\text{)}\\"
        r"&c\leftarrow\frac{1}{N}\sum_{j}c_j\end{aligned}"
    )
    watch: ClassVar = (
        "Look at two parts of the error: who took part should fall as control variates fill, and so should drift across the "
        "gradient (see Relative), which memory at the server alone cannot lower."
    )
    paper: ClassVar = "Karimireddy et al., ICML 2020"
    vectors_down: ClassVar = 2
    vectors_up: ClassVar = 2
    work: ClassVar = (
        "S·τ·B sample gradients; with option I those of all samples of the S participants as well; a warm start takes those of all "
        "clients once, and a vector each way"
    )
    name: Literal["scaffold"] = "scaffold"
    option: Literal["I", "II"] = parameter(
        "II",
        label="Control variates from",
        symbol="option",
        help="I: an extra full-data gradient; II: the local steps themselves, free.",
        choices={"I": "I: full gradient", "II": "II: local steps"},
    )
    warm_start: bool = parameter(
        False, label="Warm start", help="Begin with each client's gradient at the start instead of zero."
    )

    def state_vectors(self, num_clients: int) -> int:
        return num_clients + 1

    def build(self, setting: Setting) -> Algorithm:
        return Scaffold(self, setting)


class ControlVariates(Algorithm):
    """Local steps corrected by "server_variate" [d] minus a row of "client_variates" [N, d], both in the state."""

    def correction(self, state: State, clients: Tensor) -> Tensor:
        return state["server_variate"] - state["client_variates"][clients]

    def memory(self, state: State, clients: Tensor) -> Tensor:
        return state["server_variate"].expand(len(clients), -1)

    def stand_in(self, state: State, clients: Tensor) -> Tensor:
        return state["client_variates"][clients]

    def offset(self, state: State) -> Tensor:
        return state["server_variate"]


class Scaffold(ControlVariates):
    remembers = "client"

    def __init__(self, parameters: ScaffoldParameters, setting: Setting) -> None:
        super().__init__(parameters, setting)
        self.needs = frozenset({"anchors" if parameters.option == "I" else "gradients"})
        self.starts_warm = parameters.warm_start
        self.table = MemoryTable(setting.client_weights, "client_variates", "server_variate")

    def init(self, w: Tensor) -> State:
        state = self.table.zeros(w)
        if self.parameters.warm_start:
            if self.setting.start_gradients is None:
                raise ValueError("A warm start needs Setting(start_gradients=...).")
            state["client_variates"].copy_(self.setting.start_gradients())
            state["server_variate"].copy_(self.setting.client_weights @ state["client_variates"])
        return state

    def remember(self, state: State, cohort: Cohort, result: LocalResult) -> State:
        fresh = result.anchors if self.parameters.option == "I" else result.gradients
        assert fresh is not None  # `needs` asked for it
        return self.table.write(state, cohort.clients, fresh, cohort.round)
