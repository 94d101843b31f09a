"""Federated objectives. A new problem is a file with a parameter model and a `Problem`, and a line here."""

from typing import Annotated

from pydantic import Field

from fedviz.problems.base import Evaluation, Problem, ProblemError, ProblemParameters, Progress
from fedviz.problems.classification import Classification
from fedviz.problems.lower_bound import LowerBound
from fedviz.problems.quadratics import Quadratics

AnyProblem = Annotated[Classification | Quadratics | LowerBound, Field(discriminator="kind")]
PROBLEMS: dict[str, type[ProblemParameters]] = {
    "classification": Classification,
    "quadratics": Quadratics,
    "lower_bound": LowerBound,
}

__all__ = [
    "PROBLEMS",
    "AnyProblem",
    "Classification",
    "Evaluation",
    "LowerBound",
    "Problem",
    "ProblemError",
    "ProblemParameters",
    "Progress",
    "Quadratics",
]
