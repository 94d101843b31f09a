"""Make recorded_default.json.gz: the default run and its FedAvg reference, which the page shows before anybody has pressed Run.

Run `python assets/build_recorded_default.py` after a change to the default settings or to what a record holds. Every number in the
file comes from the simulation.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from fedviz import __version__
from fedviz.config import SimulationConfig
from fedviz.simulation.device import describe
from fedviz.simulation.loop import simulate

TARGET = Path(__file__).parent / "recorded_default.json.gz"


def recorded(config: SimulationConfig) -> dict[str, Any]:
    """A finished run in the form of a JSON export (fedviz/runs/export.py)."""
    return {
        "fedviz": __version__,
        "device": describe(config),
        "state": "finished",
        "config": config.to_dict(),
        "records": [record.to_dict() for record in simulate(config)],
    }


def main() -> None:
    torch.set_num_threads(1)
    settings = {"device": "cpu"}
    run = recorded(SimulationConfig.read(settings))
    run["reference"] = recorded(SimulationConfig.read({**settings, "algorithm": {"name": "fedavg"}}))
    for part in (run, run["reference"]):
        part["config"]["device"] = "auto"  # it stands for the default run, wherever it was recorded
    text = json.dumps(run, allow_nan=False, separators=(",", ":"))
    TARGET.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{TARGET}: {len(run['records'])} records and {TARGET.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
