"""What the papers claim, as data: the runs to make, the number to take from each, and what is expected of the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedviz.config import SimulationConfig, fill_in
from fedviz.papers.expectations import Expectation
from fedviz.papers.statistics import Statistic

Paper = Literal["scaffold", "fedvarp", "amplified"]
Cost = Literal["seconds", "minutes", "hours"]
Config = dict[str, Any]

PAPERS: dict[Paper, str] = {
    "scaffold": "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020",
    "fedvarp": "Jhunjhunwala et al., FedVARP: Tackling the Variance Due to Partial Client Participation, UAI 2022",
    "amplified": "Crawshaw, Liu, Federated Learning under Periodic Client Participation and Heterogeneous Data, NeurIPS 2024",
}
COSTS: tuple[Cost, ...] = ("seconds", "minutes", "hours")


@dataclass(frozen=True)
class Claim:
    """One claim. Without arms it cannot be tried here, and `incomparable` says why."""

    id: str
    paper: Paper
    source: str  # where in the paper
    says: str  # the claim, in a sentence
    cost: Cost = "seconds"  # of all its seeds on two cores
    arms: Mapping[str, Config] = field(default_factory=dict)  # name -> nested config, without the seed
    statistic: Statistic | None = None
    expectation: Expectation | None = None
    seeds: int = 3
    must_run_seeds: int = 0  # on the must-run list with so many seeds; 0: not on it
    should_hold: bool = True  # False: known not to hold here; kept and shown
    note: str = ""  # how the setting here differs, or what to know about the number
    incomparable: str = ""  # why there is nothing to run

    def config(self, arm: str, seed: int) -> SimulationConfig:
        return SimulationConfig.read(fill_in({**self.arms[arm], "seed": seed}))


def merged(base: Mapping[str, Any], **changes: Any) -> Config:
    """`base` with changes; a dict within a dict is merged, everything else replaced."""
    result = dict(base)
    for name, value in changes.items():
        inner = result.get(name)
        result[name] = merged(inner, **value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return result
