"""The synthetic objective of the Amplified SCAFFOLD paper: two clients, four coordinates, each of them hard in its own way.

    f_i(x) = mu/2 (x1 - c)^2 + H/2 (x2 - sqrt(mu/H) c)^2 + H/8 (x3^2 + max(x3, 0)^2) + a_i/4 x4^2 + s_i zeta x4
    (a, s) = (L, +1) for client 0, (lambda, -1) for client 1; the gradient's third coordinate has noise of deviation sigma

x1 is flat, x2 is steep, x3 is noisy and kinked, and in x4 the clients pull apart. In float64 unless told otherwise, on the CPU, from
x = 0. The optimum of the mean objective is (c, sqrt(mu/H) c, 0, 0). The paper's code reports F, which counts x4 twice:
(L + lambda)/4 x4^2, where the mean of the two clients has (L + lambda)/8 x4^2; records have both, as `objective` and `mean_objective`.

Crawshaw, Liu, Federated Learning under Periodic Client Participation and Heterogeneous Data, NeurIPS 2024, section 5.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedviz.keyed_random import Purpose, normals
from fedviz.parameters import parameter
from fedviz.problems.base import Evaluation, Precision, Problem, ProblemParameters, Progress, precision

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from fedviz.config import SimulationConfig

DIMENSION = 4
CLIENTS = 2


def _curvature(default: float, symbol: str, help: str) -> Any:
    return parameter(
        default, label=f"Curvature {symbol}", symbol=symbol, help=help, gt=0, le=1e6, log=True, suggested=(0.1, 100)
    )


class LowerBound(ProblemParameters):
    title: ClassVar = "Hard case"
    summary: ClassVar = "Two clients that pull apart in one direction, with steep, flat and noisy directions besides."
    formula: ClassVar = (
        r"\begin{aligned}f_i(x)=\;&\tfrac{\mu}{2}(x_1-c)^2+\tfrac{H}{2}\bigl(x_2-\sqrt{\mu/H}\,c\bigr)^2\\"
        r"&+\tfrac{H}{8}\bigl(x_3^2+\max(x_3,0)^2\bigr)\\&+\tfrac{a_i}{4}x_4^2\pm\zeta x_4,\quad a=(L,\lambda)\end{aligned}"
    )
    kind: Literal["lower_bound"] = "lower_bound"
    steep: float = _curvature(16.0, "H", "Of the steep and of the noisy direction.")
    flat: float = _curvature(1.0, "μ", "Of the flat direction.")
    first_client: float = _curvature(2.0, "L", "Of client 0 where the clients disagree.")
    second_client: float = _curvature(1.0, "λ", "Of client 1 where the clients disagree.")
    distance: float = parameter(
        1.0,
        label="Distance",
        symbol="c",
        help="Of the optimum from the start, along the flat direction.",
        ge=-1e6,
        le=1e6,
        suggested=(0, 10),
    )
    pull: float = parameter(
        16.0,
        label="Disagreement",
        symbol="ζ",
        help="How hard the two clients pull in opposite directions; 0 is not at all.",
        ge=0,
        le=1e6,
        suggested=(0, 100),
    )
    noise: float = parameter(
        1.0, label="Gradient noise", symbol="σ", help="Standard deviation, in the third coordinate only.", ge=0, le=1e6
    )
    dtype: Precision = precision("float64")

    def problem_with(self, num_clients: int) -> tuple[str, str] | None:
        if num_clients != CLIENTS:
            return "num_clients", f"got {num_clients:,}, allowed {CLIENTS}: this problem is defined for two clients"
        return None

    def dimension(self) -> int:
        return DIMENSION

    def data_bytes(self, num_clients: int) -> int:
        return 2 * CLIENTS * DIMENSION * self.itemsize()

    def draw_bytes(self, steps: int, batch_size: int, num_clients: int, seed: int) -> int:
        return 2 * steps * self.itemsize()

    def build(self, config: SimulationConfig, device: str, progress: Progress) -> Problem:
        return LowerBoundProblem(self, config.seed)


class LowerBoundProblem(Problem):
    """Gradients as curvature_i * x + linear_i, and the kink: H/4 max(x3, 0) on top."""

    num_clients = CLIENTS

    def __init__(self, parameters: LowerBound, seed: int) -> None:
        import torch

        p, tensor = parameters, lambda values: torch.tensor(values, dtype=getattr(torch, parameters.dtype))
        self.noise, self.seed, self.kink = p.noise, seed, p.steep / 4
        self.client_weights = tensor([0.5, 0.5])
        self.optimum = tensor([p.distance, math.sqrt(p.flat / p.steep) * p.distance, 0.0, 0.0])
        shared = [p.flat, p.steep, p.steep / 4]
        self.curvature = tensor([[*shared, p.first_client / 2], [*shared, p.second_client / 2]])
        self.linear = -self.curvature * self.optimum + tensor([[0.0, 0.0, 0.0, p.pull], [0.0, 0.0, 0.0, -p.pull]])

    def start(self) -> Tensor:
        return self.optimum.new_zeros(DIMENSION)

    def draws(self, clients: NDArray[np.int64], round: int, steps: int, replica: int = 0) -> Any:
        noise = None
        if self.noise:
            drawn = normals(self.seed, Purpose.GRADIENT_NOISE, round=round, client=clients, replica=replica, size=steps)
            noise = self.optimum.new_tensor(drawn) * self.noise  # [S, steps]
        return self.curvature[clients], self.linear[clients], noise

    def gradient(self, u: Tensor, draws: Any, step: int, out: Tensor) -> Tensor:
        curvature, linear, noise = draws
        self._exact(u, curvature, linear, out)
        if noise is not None:
            out[:, 2] += noise[:, step]
        return out

    def _exact(self, u: Tensor, curvature: Tensor, linear: Tensor, out: Tensor) -> Tensor:
        """Into out [S, d]: grad f_i at u."""
        out.copy_(u).mul_(curvature).add_(linear)
        out[:, 2].add_(u[..., 2].clamp(min=0), alpha=self.kink)
        return out

    def pass_evaluations(self, clients: NDArray[np.int64], steps: int) -> int:
        return len(clients) * steps

    def client_gradients(self, w: Tensor, clients: NDArray[np.int64]) -> Tensor:
        curvature = self.curvature[clients]
        return self._exact(
            w.expand(len(clients), -1), curvature, self.linear[clients], curvature.new_empty(curvature.shape)
        )

    def full_evaluations(self, clients: NDArray[np.int64]) -> int:
        return len(clients)

    def evaluate(self, w: Tensor) -> Evaluation:
        curvature = self.client_weights @ self.curvature
        away = w - self.optimum
        positive = max(float(w[2]), 0.0)
        # In x4 the clients' linear terms cancel in the mean; F counts its curvature twice.
        parts = 0.5 * curvature * away**2
        mean = float(parts.sum()) + 0.5 * self.kink * positive**2
        gradient = curvature * away
        gradient[2] += self.kink * positive
        return Evaluation(
            objective=mean + float(parts[3]),
            mean_objective=mean,
            gradient_norm_sq=float(gradient @ gradient),
            distance=float(away.norm()),
        )
