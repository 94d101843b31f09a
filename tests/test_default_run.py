"""What the page promises with its default settings, on the real data."""

import numpy as np
import pytest
import torch

from fedviz.config import SimulationConfig
from fedviz.simulation.loop import simulate


@pytest.mark.slow
def test_fedvarp_beats_fedavg_on_the_default_run_over_three_seeds() -> None:
    """Means over the last tenth of 200 rounds: training loss at least 0.06 lower, accuracy at least 0.80, Part at most 1/20.

    Measuring changes nothing about a run (tests/test_reproducibility.py), so only the end is measured here.
    """
    torch.set_num_threads(1)
    loss: dict[str, list[float]] = {"fedavg": [], "fedvarp": []}
    accuracy: dict[str, list[float]] = {"fedavg": [], "fedvarp": []}
    for seed in range(3):
        part = {}
        for name in loss:
            config = SimulationConfig.read(
                {"algorithm": {"name": name}, "seed": seed, "probe_every": 200, "eval_every": 2}
            )
            assert (config.rounds, config.num_clients, config.local_steps) == (200, 100, 30)
            records = list(simulate(config))
            late = [record.evaluation for record in records if record.round > 180 and record.evaluation]
            loss[name].append(float(np.mean([e.train_loss for e in late])))
            accuracy[name].append(float(np.mean([e.test_accuracy for e in late])))
            part[name] = records[-1].decomposition.participation
        assert part["fedvarp"] <= part["fedavg"] / 20
    assert np.mean(loss["fedavg"]) - np.mean(loss["fedvarp"]) >= 0.06
    assert np.mean(accuracy["fedvarp"]) >= 0.80
