"""What an algorithm is: pure functions over flat vectors.

Parameters are one vector w of length d, per-client state is an [N, d] (or [K, d]) tensor, a cohort of S clients is one [S, d] batch.
One round of any algorithm is

    local pass     u <- u - eta_c (g_i(u) + correction_i + mu (u - w)),  repeated `steps` times from u = w
    Delta_i        the mean of (g_i + correction_i + mu (u - w)) over the pass, in gradient units
    direction      v = offset + gain * sum_S weights_i (Delta_i - memory_i)
    move           w <- w - eta_s eta_c steps v
    remember       the state takes up what the cohort brought

An algorithm overrides only what differs. The decomposition of the server's error uses `memory`, `offset` and `gain` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedviz.parameters import Parameters

if TYPE_CHECKING:
    from torch import Tensor

State = dict[str, "Tensor"]


@dataclass(frozen=True)
class Setting:
    """What is fixed for a run. The client rate and the number of steps stand here only."""

    num_clients: int
    client_lr: float
    server_lr: float
    steps: int  # local steps of a pass; 1 for an algorithm whose `local` is "gradient"
    client_weights: Tensor  # [N] the objective's p_i, summing to 1
    clusters: Tensor | None = None  # [N] int64, the cluster of each client
    window: int = 1  # P, the pattern's period: the default of methods that act once in a window
    start_gradients: Callable[[], Tensor] | None = None  # () -> [N, d], grad f_i at the start, for warm starts


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round."""

    round: int  # 1-based
    clients: Tensor  # [S] int64, sorted ids
    weights: Tensor  # [S] = N p_i q_i


@dataclass(frozen=True)
class LocalResult:
    """What the cohort's local passes bring back; all in gradient units."""

    updates: Tensor  # [S, d] Delta_i
    gradients: Tensor | None = None  # [S, d] mean raw minibatch gradient, where `needs` has "gradients"
    anchors: Tensor | None = None  # [S, d] full-data gradient at w, where `needs` has "anchors"


class AlgorithmParameters(Parameters):
    """The parameter model of an algorithm, with what the pages say about it."""

    title: ClassVar[str]  # as the field writes it
    summary: ClassVar[str]  # one plain sentence
    watch: ClassVar[str] = ""  # what to look for in the decomposition where chance decides who takes part
    formula: ClassVar[str]  # LaTeX of the server's direction and of what is remembered, a statement a line
    paper: ClassVar[str]
    vectors_down: ClassVar[int] = 1  # vectors of length d a participant receives and sends in a round
    vectors_up: ClassVar[int] = 1
    local: ClassVar[str] = "sgd"  # or "gradient": a participant sends one full-data gradient instead of a pass
    server_rate_fixed: ClassVar[bool] = False  # only defined for a server rate of 1
    counts_alike: ClassVar[bool] = False  # only defined where participants are averaged
    work: ClassVar[str] = "S·τ·B sample gradients"  # of the participants in a round

    def state_vectors(self, num_clients: int) -> int:
        """How many vectors of length d the server and all clients remember together."""
        return 0

    def build(self, setting: Setting) -> Algorithm:
        raise NotImplementedError


class Algorithm:
    """FedAvg's skeleton, on which every algorithm overrides what differs."""

    needs: frozenset[str] = frozenset()  # of "gradients", "anchors"
    remembers: ClassVar[str | None] = None  # "client" | "cluster": whose memory ages; None for memoryless methods
    starts_warm: bool = False  # whether `init` fills all memories
    mu: float = 0.0

    def __init__(self, parameters: Any, setting: Setting) -> None:
        self.parameters = parameters
        self.setting = setting

    def init(self, w: Tensor) -> State:
        """The state before round 1, for a start at w [d]."""
        return {}

    def correction(self, state: State, clients: Tensor) -> Tensor | None:
        """[S, d] added to every local gradient of `clients`, fixed during a pass; None for none."""
        return None

    def memory(self, state: State, clients: Tensor) -> Tensor | None:
        """[S, d] what is subtracted from the updates of `clients`; None for nothing."""
        return None

    def stand_in(self, state: State, clients: Tensor) -> Tensor | None:
        """[S, d] what is remembered in place of the gradients of `clients`; None for methods without memory."""
        return self.memory(state, clients)

    def offset(self, state: State) -> Tensor | None:
        """[d] what is added back; None for nothing."""
        return None

    def gain(self, size: int) -> float:
        """The factor before the cohort's mean, for a cohort of `size` clients."""
        return 1.0

    def remember(self, state: State, cohort: Cohort, result: LocalResult) -> State:
        """The state after the round; may reuse the buffers of `state`."""
        return state

    def direction(self, state: State, cohort: Cohort, result: LocalResult) -> Tensor:
        """v [d] = offset + gain * sum_S weights_i (Delta_i - memory_i), in gradient units. Changes nothing."""
        memory, offset = self.memory(state, cohort.clients), self.offset(state)
        difference = result.updates if memory is None else result.updates - memory
        v = self.gain(len(cohort.clients)) * (cohort.weights @ difference)
        return v if offset is None else offset + v

    @property
    def reach(self) -> float:
        """eta_c * steps: what turns a direction, in gradient units, into a difference of models."""
        return self.setting.client_lr * self.setting.steps

    def renewed(self, state: State, cohort: Cohort) -> Tensor:
        """[any] ids of the clients whose memory the round of `cohort` renews, told before its step."""
        return cohort.clients

    def step(self, state: State, w: Tensor, cohort: Cohort, result: LocalResult | None) -> tuple[Tensor, State]:
        """(w, state) after a round; `result` is None when nobody took part, which by default changes nothing."""
        if result is None:
            return w, state
        v = self.direction(state, cohort, result)
        return w - self.setting.server_lr * self.reach * v, self.remember(state, cohort, result)


class MemoryTable:
    """A table of remembered vectors [rows, d] with its weighted mean [d], kept as two tensors of a state.

    The mean is moved by each change and, because float32 sums drift, formed anew every `REFRESH` rounds.
    """

    REFRESH: ClassVar[int] = 100

    def __init__(self, weights: Tensor, table: str = "memory", mean: str = "mean") -> None:
        self.weights, self.table, self.mean = weights, table, mean  # weights [rows], summing to 1

    def zeros(self, w: Tensor) -> State:
        return {self.table: w.new_zeros(len(self.weights), len(w)), self.mean: w.new_zeros(len(w))}

    def write(self, state: State, rows: Tensor, values: Tensor, round: int) -> State:
        """Put `values` [S, d] into `rows` [S] (distinct), in place."""
        table, mean = state[self.table], state[self.mean]
        mean += self.weights[rows] @ (values - table[rows])
        table[rows] = values
        if round % self.REFRESH == 0:
            mean.copy_(self.weights @ table)
        return state
