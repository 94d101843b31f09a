"""Diagonal quadratics: the test bed on which everything can be checked by hand.

    f_i(w) = 1/2 sum_j curvature_ij w_j^2 + sum_j linear_ij w_j,   gradient  curvature_i * w + linear_i + noise * normal

In float64, on the CPU. The optimum is w* = -(sum p_i linear_i) / (sum p_i curvature_i), where the denominators are positive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedviz.keyed_random import Purpose, normals
from fedviz.parameters import parameter
from fedviz.problems.base import Evaluation, Problem, ProblemParameters, Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedviz.config import SimulationConfig

Matrix = list[list[float]]


class Quadratics(ProblemParameters):
    title: ClassVar = "Quadratics"
    summary: ClassVar = "Each client has a small parabola; the best point for all is known exactly."
    kind: Literal["quadratics"] = "quadratics"
    curvature: Matrix = parameter(
        label="Curvature",
        help="One row a client, one number a coordinate: [[2], [0]].",
        min_length=1,
        max_length=10_000,
    )
    linear: Matrix = parameter(
        label="Linear term",
        help="One row a client, one number a coordinate: [[1], [-1]].",
        min_length=1,
        max_length=10_000,
    )
    start: list[float] = parameter(label="Start", help="One number a coordinate: [1].", min_length=1, max_length=10_000)
    noise: float = parameter(
        0.0, label="Gradient noise", symbol="σ", help="Standard deviation in each coordinate.", ge=0, le=1e6
    )

    def problem_with(self, num_clients: int) -> tuple[str, str] | None:
        for field, rows in (("curvature", self.curvature), ("linear", self.linear)):
            if len(rows) != num_clients:
                return field, f"got {len(rows)} rows for {num_clients} clients: give one row a client"
            wrong = next((n for n, row in enumerate(rows) if len(row) != len(self.start)), None)
            if wrong is not None:
                return field, f"row {wrong} has {len(rows[wrong])} numbers, start has {len(self.start)}: give as many"
        return None

    def dimension(self) -> int:
        return len(self.start)

    def data_bytes(self) -> int:
        return 2 * len(self.curvature) * self.dimension() * self.itemsize()

    def itemsize(self) -> int:
        return 8

    def draw_bytes(self, steps: int, batch_size: int, num_clients: int, seed: int) -> int:
        return 2 * steps * self.dimension() * self.itemsize()

    def build(self, config: SimulationConfig, device: str, progress: Progress) -> Problem:
        return QuadraticProblem(self, config.seed)


class QuadraticProblem(Problem):
    def __init__(self, parameters: Quadratics, seed: int) -> None:
        import torch

        self.curvature, self.linear, self.first = (
            torch.tensor(values, dtype=torch.float64)
            for values in (parameters.curvature, parameters.linear, parameters.start)
        )
        self.noise, self.seed = parameters.noise, seed
        self.num_clients = len(self.curvature)
        self.client_weights = torch.full((self.num_clients,), 1 / self.num_clients, dtype=torch.float64)
        mean_curvature = self.client_weights @ self.curvature
        self.optimum = None if (mean_curvature <= 0).any() else -(self.client_weights @ self.linear) / mean_curvature

    def start(self) -> Tensor:
        return self.first.clone()

    def draws(self, clients: NDArray[np.int64], round: int, steps: int, replica: int = 0) -> Any:
        d = len(self.first)
        if not self.noise:
            return self.curvature[clients], self.linear[clients], None
        noise = normals(self.seed, Purpose.GRADIENT_NOISE, round=round, client=clients, replica=replica, size=steps * d)
        return (
            self.curvature[clients],
            self.linear[clients],
            self.first.new_tensor(noise).reshape(-1, steps, d) * self.noise,
        )

    def gradient(self, u: Tensor, draws: Any, step: int, out: Tensor) -> Tensor:
        curvature, linear, noise = draws
        out.copy_(u).mul_(curvature).add_(linear)
        return out if noise is None else out.add_(noise[:, step])

    def pass_evaluations(self, clients: NDArray[np.int64], steps: int) -> int:
        return len(clients) * steps

    def client_gradients(self, w: Tensor, clients: NDArray[np.int64]) -> Tensor:
        return self.curvature[clients] * w + self.linear[clients]

    def full_evaluations(self, clients: NDArray[np.int64]) -> int:
        return len(clients)

    def evaluate(self, w: Tensor) -> Evaluation:
        gradient = self.client_weights @ (self.curvature * w + self.linear)
        values = (0.5 * self.curvature * w**2 + self.linear * w).sum(1)
        objective = float(self.client_weights @ values)
        return Evaluation(
            objective=objective,
            gradient_norm_sq=float(gradient @ gradient),
            distance=None if self.optimum is None else float((w - self.optimum).norm()),
        )
