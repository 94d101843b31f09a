"""What a run tells: one `RoundRecord` a round, and the `Checkpoint` that a run can go on from.

Record 0 is the starting point; records 1 ... `rounds` follow. Losses and norms are in the units of the objective; the parts of the
decomposition are squared norms in gradient units (the papers' Delta divides by the client rate times the local steps).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fedviz.problems.base import Evaluation

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedviz.config import SimulationConfig


@dataclass(frozen=True, slots=True)
class Decomposition:
    """E|v - grad f(w)|^2 and its parts at the state before the round's step, given the clients that are available.

    total = participation + noise + bias + drift + interaction, exactly. Raw unbiased estimates: they may be slightly negative.
    """

    participation: float  # who was drawn among the available, given frozen memories
    participation_sampling: float  # the part of it that would remain without gradient noise (Part_H)
    noise: float  # gradient noise that even full availability would keep
    bias: float  # the available clients differ from all (which group is on duty; a method's own bias)
    drift: float  # mode "cheap": includes the bias that noise itself causes
    interaction: float  # cross terms; may be negative
    total: float
    mode: str  # "cheap" | "full"
    noise_drift: float | None  # |b|^2, the bias that noise itself causes along a pass; mode "full" only
    gradient_norm_sq: float  # |grad f|^2
    direction_norm_sq: float  # |E v_bar|^2: the mean full-participation direction
    shrinkage: float | None  # kappa = <E v_bar, grad f> / |grad f|^2
    cosine: float | None  # between E v_bar and grad f
    perpendicular: float | None  # drift across the gradient, |e_perp|^2
    dissimilarity: float  # sigma_g^2 = mean |grad f_i - grad f|^2
    within_cluster_dissimilarity: float | None  # sigma_K^2, the mean over clients
    largest_cluster_dissimilarity: float | None  # the same of the cluster where it is largest
    clusters: int | None  # K behind it: the algorithm's own clusters, else the groups of equal majority label
    state_error: float | None  # mean over clients of |memory_i - grad f_i|^2; None for methods without memory
    probed_clients: int
    check: float | None = None  # an independent estimate of total, with its standard error
    check_error: float | None = None


@dataclass(frozen=True, slots=True)
class WindowDecomposition:
    """|V - grad f(w_start)|^2 of a whole window of an amplified method, on the path taken; see fedviz/simulation/windows.py."""

    participation: float
    noise: float | None  # mode "full" only; part of the drift in mode "cheap"
    drift: float
    movement: float  # the gradient changes while the model moves within the window
    interaction: float  # cross terms; may be negative
    total: float
    rounds: int  # P


@dataclass(frozen=True, slots=True)
class Costs:
    """Sums since the start of the run."""

    gradient_evaluations: int = 0  # gradients of single samples taken by the algorithm
    probe_evaluations: int = 0  # the same, taken to measure the decomposition
    floats_up: int = 0
    floats_down: int = 0
    seconds: float = 0.0  # wall-clock, without pauses; the only field that is not reproducible


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A run after some round, as a value: all that `simulate(config, resume_from=...)` needs."""

    config: SimulationConfig
    round: int
    w: Tensor  # [d]
    state: dict[str, Tensor]
    renewed_in: np.ndarray  # [N] the round in which a client's memory was last renewed, 0 = never
    costs: Costs
    window: dict[str, Tensor]  # sums of the window being measured, if any


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round. `w` ([d]) and `checkpoint()` are valid until the next record is asked for: copy `w` to keep it."""

    round: int
    cohort: list[int]  # sorted client ids; empty in record 0 and when nobody took part
    weights: list[float]  # [S] = N p_i q_i
    evaluation: Evaluation | None
    decomposition: Decomposition | None
    costs: Costs
    diagnostics: dict[str, float] = field(default_factory=dict)
    window: WindowDecomposition | None = None  # at the end of a measured window
    w: Tensor | None = None
    checkpoint: Callable[[], Checkpoint] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but `w` and `checkpoint`, as plain JSON values."""
        return {
            "round": self.round,
            "cohort": self.cohort,
            "weights": self.weights,
            "evaluation": asdict(self.evaluation) if self.evaluation else None,
            "decomposition": asdict(self.decomposition) if self.decomposition else None,
            "costs": asdict(self.costs),
            "diagnostics": self.diagnostics,
            "window": asdict(self.window) if self.window else None,
        }
