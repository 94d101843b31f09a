"""What a federated problem offers to the round loop: gradients of all clients of a cohort at once, and an evaluation.

f(w) = sum_i p_i f_i(w). Everything works on flat parameter vectors: one start vector [d], a cohort's local models [S, d].
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedviz.parameters import Parameters, parameter
from fedviz.problems.local_sgd import Rule, local_sgd

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from fedviz.config import SimulationConfig

# The local passes of one of several runs: its problem, w [d], clients [S], rule, round.
PassOfRun = tuple["Problem", "Tensor", "NDArray[np.int64]", Rule, int]
Progress = Callable[[str], None]  # told, in words, what is being prepared


class ProblemError(RuntimeError):
    """The data or the partition cannot be had as asked; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The model after the round, on all data (never on the cohort's only). None where a problem has no such measure."""

    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None  # in [0, 1]
    gradient_norm_sq: float | None = None  # |grad f(w)|^2
    objective: float | None = None
    mean_objective: float | None = None  # sum_i p_i f_i(w), where the paper's reported objective is something else
    distance: float | None = None  # |w - w*|, None without a known optimum


Precision = Literal["float32", "float64"]


def precision(default: Precision, **more: str) -> Any:
    """The parameter `dtype` of a problem; more: what else it may choose, with its name on the page."""
    mixed = " Mixed: minibatches and their products are bfloat16, all else is single." if more else ""
    return parameter(
        default,
        label="Precision",
        help=f"Digits that are kept of every number; double is slower and takes twice the memory.{mixed}",
        choices={"float32": "single (32 bits)", "float64": "double (64 bits)", **more},
    )


class ProblemParameters(Parameters):
    """The parameter model of a problem, with what the pages say about it."""

    title: ClassVar[str]
    summary: ClassVar[str]
    formula: ClassVar[str]  # LaTeX: f_i, the objective of client i
    kind: str
    dtype: str

    def problem_with(self, num_clients: int) -> tuple[str, str] | None:
        """(field, message) of the first setting that does not fit N clients, None if all do."""
        return None

    def problem_with_data(self, num_clients: int, seed: int) -> tuple[str, str] | None:
        """(field, message) of a setting that does not fit the data itself; None if all do, or while the data is not at hand."""
        return None

    def problem_on(self, device: str) -> tuple[str, str] | None:
        """(field, message) of the first setting that makes no sense on `device`, None if all do."""
        return None

    def to_download(self) -> str:
        """The name of a data set that would have to be downloaded first, "" where nothing is missing."""
        return ""

    def dimension(self) -> int:
        """d, the length of the parameter vector; loads no data."""
        raise NotImplementedError

    def data_bytes(self, num_clients: int) -> int:
        """Bytes of data that a run holds in memory."""
        raise NotImplementedError

    def itemsize(self) -> int:
        """Bytes of one parameter."""
        return 8 if self.dtype == "float64" else 4

    def backend(self, device: str) -> str:
        """What computes on `device` unless told otherwise: "torch" or "numba". The fastest that was measured, never timed anew."""
        return "torch"

    def draw_bytes(self, steps: int, batch_size: int, num_clients: int, seed: int) -> int:
        """Bytes that the randomness and the samples of one client's pass take, at most."""
        raise NotImplementedError

    def sample_count(self, num_clients: int) -> int:
        """Samples of all clients together, as sample gradients are counted; loads no data."""
        return num_clients

    def batch(self, batch_size: int, samples: int) -> int:
        """Sample gradients of one local step of a client with so many samples."""
        return 1

    def majority_labels(self, num_clients: int, seed: int) -> NDArray[np.int64] | None:
        """[N] the label each client has most of; None where there are no labels."""
        return None

    def build(self, config: SimulationConfig, device: str, progress: Progress) -> Problem:
        """The problem, ready to run. Raises ProblemError."""
        raise NotImplementedError


class Problem:
    """A federated objective on a device. Draws are keyed: the same (round, client, replica) always gives the same minibatches."""

    computes_without_lock: ClassVar[bool] = False  # of the interpreter, so that threads gain something
    num_clients: int
    client_weights: Tensor  # [N] p_i

    def start(self) -> Tensor:
        """w_0 [d]."""
        raise NotImplementedError

    def draws(self, clients: NDArray[np.int64], round: int, steps: int, replica: int = 0) -> Any:
        """The randomness of the local passes of `clients` [S]; to be handed to `gradient`. Replica 0 is the training run itself."""
        raise NotImplementedError

    def gradient(self, u: Tensor, draws: Any, step: int, out: Tensor) -> Tensor:
        """Into `out` [S, d], returned: stochastic gradients at the local models u [S, d] in local step `step` (from 0)."""
        raise NotImplementedError

    def local_passes(
        self,
        w: Tensor,
        clients: NDArray[np.int64],
        rule: Rule,
        round: int,
        replica: int = 0,
        between_steps: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Tensor]:
        """(Delta_i, mean raw gradient), both [S, d], of local passes of `clients` [S] from w [d]. between_steps may raise to leave."""
        draws = self.draws(clients, round, rule.steps, replica)

        def gradient(u: Tensor, step: int, out: Tensor) -> None:
            between_steps()
            self.gradient(u, draws, step, out)

        return local_sgd(w.expand(len(clients), -1), gradient, rule)

    def batch_key(self) -> Hashable:
        """Equal for problems whose local passes can be one batch, see `together`."""
        return id(self)

    def together(self, passes: Sequence[PassOfRun]) -> list[tuple[Tensor, Tensor]]:
        """`local_passes` of several runs whose problems have the same `batch_key`, as one batch."""
        raise NotImplementedError

    def pass_evaluations(self, clients: NDArray[np.int64], steps: int) -> int:
        """Gradients of single samples that the local passes of `clients` take together."""
        raise NotImplementedError

    def client_gradients(self, w: Tensor, clients: NDArray[np.int64]) -> Tensor:
        """[S, d] full-data gradients of f_i at w: one model [d] for all, or one for each client [S, d]."""
        raise NotImplementedError

    def full_evaluations(self, clients: NDArray[np.int64]) -> int:
        """Gradients of single samples in `client_gradients` of `clients`."""
        raise NotImplementedError

    def evaluate(self, w: Tensor) -> Evaluation:
        """Measures at w [d], on all data."""
        raise NotImplementedError

    def evaluating(self, w: Tensor) -> Callable[[], Evaluation]:
        """`evaluate` begun: where a device works by itself, all is queued, and what is returned waits for the result."""
        return lambda: self.evaluate(w)
