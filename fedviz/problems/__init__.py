"""Federated objectives. A new problem is a file with a parameter model and a `Problem`, and a line here."""

from typing import Annotated

from pydantic import Field

from fedviz.problems.base import Problem, ProblemError, ProblemParameters, Progress
from fedviz.problems.classification import Classification
from fedviz.problems.quadratics import Quadratics

AnyProblem = Annotated[Classification | Quadratics, Field(discriminator="kind")]
PROBLEMS: dict[str, type[ProblemParameters]] = {"classification": Classification, "quadratics": Quadratics}

__all__ = [
    "PROBLEMS",
    "AnyProblem",
    "Classification",
    "Problem",
    "ProblemError",
    "ProblemParameters",
    "Progress",
    "Quadratics",
]
