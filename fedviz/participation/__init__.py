"""Who is available, and who takes part, in every round. A new pattern is a file with a parameter model, and a line here."""

from typing import Annotated

from pydantic import Field

from fedviz.participation.base import Law, Participation, ParticipationParameters
from fedviz.participation.cyclic import Cyclic
from fedviz.participation.trace import Trace
from fedviz.participation.uniform import Full, Uniform

AnyParticipation = Annotated[Full | Uniform | Cyclic | Trace, Field(discriminator="pattern")]
PATTERNS: dict[str, type[ParticipationParameters]] = {
    "full": Full,
    "uniform": Uniform,
    "cyclic": Cyclic,
    "trace": Trace,
}

__all__ = [
    "PATTERNS",
    "AnyParticipation",
    "Cyclic",
    "Full",
    "Law",
    "Participation",
    "ParticipationParameters",
    "Trace",
    "Uniform",
]
