"""Diagonal quadratics: the test bed on which everything can be checked by hand.

    f_i(w) = 1/2 sum_j a_ij w_j^2 + sum_j b_ij w_j,   gradient  a_i * w + b_i + noise * normal

In float64 unless told otherwise, on the CPU. The optimum is w* = -(sum p_i b_i) / (sum p_i a_i), where the denominators are positive.

a and b are given as lists, or made from the quantities in which the SCAFFOLD paper speaks of heterogeneity, each of them exact:

    smallest and largest curvature of the mean objective: mu and beta, the others between them in equal ratios
    max over i, j of |a_ij - mean_i a_ij| = delta, the largest distance of a client's Hessian from the mean one
    (1/N) sum |grad f_i(w*)|^2 = G^2,   w* = 0, at distance 1 from the start (1, ..., 1) / sqrt(d)

With N = 2, d = 1 and mu = beta = delta = 1 these are, up to the sign of G, the two parabolas x^2 + G x and -G x of its figure 3.

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020, assumptions A1 and A2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedviz.keyed_random import Purpose, normals
from fedviz.parameters import parameter
from fedviz.problems.base import Evaluation, Precision, Problem, ProblemParameters, Progress, precision

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedviz.config import SimulationConfig

Matrix = list[list[float]]


ROWS = COORDINATES = 10_000  # at most


class Quadratics(ProblemParameters):
    title: ClassVar = "Quadratics"
    summary: ClassVar = (
        "Each client has a small parabola, drawn so that they differ as much as is asked, or given in numbers; the best point for all "
        "is known exactly."
    )
    formula: ClassVar = (
        r"\begin{aligned}&f_i(w)=\sum_j\bigl(\tfrac12a_{ij}w_j^2+b_{ij}w_j\bigr)\\"
        r"&g_i(w)=\nabla f_i(w)+\sigma\xi,\quad\xi\sim\mathcal N(0,I)\end{aligned}"
    )
    DRAWN: ClassVar = ("coordinates", "flat", "steep", "curvature_dissimilarity", "gradient_dissimilarity")
    kind: Literal["quadratics"] = "quadratics"
    gradient_dissimilarity: float = parameter(
        1.0,
        label="Disagreement",
        symbol="G",
        help="Root mean square of the clients' gradients at the best point for all; 0 is none.",
        ge=0,
        le=1e6,
        suggested=(0, 10),
    )
    curvature_dissimilarity: float = parameter(
        0.5,
        label="Difference of curvatures",
        symbol="δ",
        help="The largest distance of a client's curvature from the mean; 0 is none. Above μ, some clients may curve downwards.",
        ge=0,
        le=1e6,
        suggested=(0, 2),
    )
    flat: float = parameter(
        0.1,
        label="Smallest curvature",
        symbol="μ",
        help="Of the mean objective, along its first coordinate.",
        gt=0,
        le=1e6,
        log=True,
        suggested=(0.01, 10),
    )
    steep: float = parameter(
        1.0,
        label="Largest curvature",
        symbol="β",
        help="Of the mean objective, along its last coordinate; at least the smallest.",
        gt=0,
        le=1e6,
        log=True,
        suggested=(0.01, 10),
    )
    coordinates: int = parameter(
        10,
        label="Coordinates",
        symbol="d",
        help="How many numbers are optimised.",
        ge=1,
        le=COORDINATES,
        log=True,
        suggested=(1, 1000),
    )
    curvature: Matrix | None = parameter(
        None,
        label="Curvature",
        symbol="a",
        help="Instead of drawing: one row a client, one number a coordinate, as in [[2], [0]].",
        min_length=1,
        max_length=ROWS,
    )
    linear: Matrix | None = parameter(
        None,
        label="Linear term",
        symbol="b",
        help="Needed beside given curvatures: one row a client, one number a coordinate, as in [[1], [-1]].",
        min_length=1,
        max_length=ROWS,
    )
    start: list[float] | None = parameter(
        None,
        label="Start",
        help="One number a coordinate, as in [1]; where it is empty, all are equal, at distance 1 from zero.",
        min_length=1,
        max_length=COORDINATES,
    )
    noise: float = parameter(
        0.0, label="Gradient noise", symbol="σ", help="Standard deviation in each coordinate.", ge=0, le=1e6
    )
    dtype: Precision = precision("float64")

    def problem_with(self, num_clients: int) -> tuple[str, str] | None:
        if self.curvature is None and self.linear is None:
            return self._problem_with_drawing(num_clients)
        for field, rows in (("curvature", self.curvature), ("linear", self.linear)):
            if rows is None:
                return field, "is needed: curvature and linear term are given together, or neither of them"
            if len(rows) != num_clients:
                return field, f"got {len(rows):,} rows for {num_clients:,} clients: give one row a client"
            d = self.dimension()
            for number, row in enumerate(rows):
                if not row:
                    return field, f"row {number} is empty: give one number a coordinate, at least one"
                if len(row) != d:
                    return (
                        field,
                        f"row {number} has {_count(len(row), 'number')}, row 0 of curvature has {d}: give as many",
                    )
        return self._problem_with_start()

    def _problem_with_drawing(self, num_clients: int) -> tuple[str, str] | None:
        if self.steep < self.flat:
            return "steep", f"got {self.steep:g}, allowed from {self.flat:g}, the smallest curvature"
        if self.coordinates == 1 and self.steep != self.flat:
            return (
                "coordinates",
                f"got 1, but curvatures from {self.flat:g} to {self.steep:g}: these need 2 coordinates",
            )
        for field in ("curvature_dissimilarity", "gradient_dissimilarity"):
            if num_clients == 1 and getattr(self, field):
                return field, f"got {getattr(self, field):g}, allowed 0: a single client does not differ from the mean"
        return self._problem_with_start()

    def _problem_with_start(self) -> tuple[str, str] | None:
        if self.start and len(self.start) != (d := self.dimension()):
            return "start", f"got {_count(len(self.start), 'number')} for {_count(d, 'coordinate')}: give as many"
        return None

    def clients_are_alike(self) -> bool:
        """Whether all clients have one and the same objective."""
        if self.curvature is None or self.linear is None:
            return self.curvature_dissimilarity == self.gradient_dissimilarity == 0
        return all(rows.count(rows[0]) == len(rows) for rows in (self.curvature, self.linear))

    def coefficients(self, num_clients: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(a, b), both [N, d]: as given, or drawn."""
        if self.curvature is not None and self.linear is not None:
            return np.array(self.curvature, dtype=np.float64), np.array(self.linear, dtype=np.float64)
        N, d = num_clients, self.coordinates
        directions = normals(seed, Purpose.OBJECTIVE, client=np.arange(N), size=2 * d)
        directions -= directions.mean(0)
        curvatures, gradients = directions[:, :d], directions[:, d:]
        mean = np.geomspace(self.flat, self.steep, d)
        if N > 1:  # a single client's directions are zero, as what is asked for
            curvatures *= self.curvature_dissimilarity / np.abs(curvatures).max()
            gradients *= self.gradient_dissimilarity / np.sqrt((gradients**2).sum(1).mean())
        return mean + curvatures, gradients

    def dimension(self) -> int:
        return self.coordinates if self.curvature is None else len(self.curvature[0])

    def data_bytes(self, num_clients: int) -> int:
        arrays = 8 if self.curvature is None else 2  # a and b, and what drawing them takes
        return arrays * num_clients * self.dimension() * self.itemsize()

    def draw_bytes(self, steps: int, batch_size: int, num_clients: int, seed: int) -> int:
        return 2 * steps * self.dimension() * self.itemsize()

    def build(self, config: SimulationConfig, device: str, progress: Progress) -> Problem:
        return QuadraticProblem(self, config.num_clients, config.seed)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class QuadraticProblem(Problem):
    def __init__(self, parameters: Quadratics, num_clients: int, seed: int) -> None:
        import torch

        d = parameters.dimension()
        start = parameters.start or [d**-0.5] * d
        self.curvature, self.linear, self.first = (
            torch.tensor(values, dtype=getattr(torch, parameters.dtype))
            for values in (*parameters.coefficients(num_clients, seed), start)
        )
        self.noise, self.seed, self.num_clients = parameters.noise, seed, num_clients
        self.client_weights = self.first.new_full((self.num_clients,), 1 / self.num_clients)
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
