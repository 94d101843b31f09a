"""Who is available, and who takes part, in every round. A new pattern is a file with a parameter model, and a line here."""

from typing import Annotated

from pydantic import Field

from fedviz.participation.base import Facts, Law, Participation, ParticipationParameters
from fedviz.participation.cyclic import Cyclic, StochasticCyclic
from fedviz.participation.independent import Bernoulli, Markov
from fedviz.participation.trace import Trace
from fedviz.participation.uniform import Full, Regularized, Uniform

AnyParticipation = Annotated[
    Full | Uniform | Regularized | Cyclic | StochasticCyclic | Bernoulli | Markov | Trace,
    Field(discriminator="pattern"),
]
PATTERNS: dict[str, type[ParticipationParameters]] = {
    "uniform": Uniform,
    "cyclic": Cyclic,
    "stochastic_cyclic": StochasticCyclic,
    "regularized": Regularized,
    "bernoulli": Bernoulli,
    "markov": Markov,
    "full": Full,
    "trace": Trace,
}

__all__ = [
    "PATTERNS",
    "AnyParticipation",
    "Bernoulli",
    "Cyclic",
    "Facts",
    "Full",
    "Law",
    "Markov",
    "Participation",
    "ParticipationParameters",
    "Regularized",
    "StochasticCyclic",
    "Trace",
    "Uniform",
]
