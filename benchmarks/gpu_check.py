"""On a machine with an NVIDIA GPU: are its records those of the CPU, and how fast is it? Meant for five minutes; not tried on one yet.

    python benchmarks/gpu_check.py                         check every model, measure W1, W2 and lockstep on the GPU
    python benchmarks/gpu_check.py --device cpu --tiny     the same script where there is no GPU, to see that it runs

Exit code 0: every model's records agree within 1e-5. 1: they do not. 2: there is no such device.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedviz.benchmarks import report
from fedviz.benchmarks.agreement import TOLERANCE, agreement
from fedviz.benchmarks.tables import Table, markdown
from fedviz.benchmarks.workloads import WORKLOADS, Plan, device_for


def show(title: str, tables: list[Table], notes: list[str]) -> None:
    print(f"\n{title}\n", flush=True)
    for table in tables:
        print("\n".join(markdown(table)), flush=True)
    print("\n".join(notes), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check a GPU against the CPU, and measure it.")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--tiny", action="store_true", help="on very little data; the speeds mean nothing")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a block lasts")
    chosen = parser.parse_args()
    try:
        plan = Plan(device_for(chosen.device), chosen.seconds, tiny=chosen.tiny)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    checked = agreement(plan)
    show("Agreement with the CPU", [checked], [])
    for name in ("w1", "w2", "lockstep"):
        found = WORKLOADS[name].measure(plan)
        show(WORKLOADS[name].title, found.tables, found.notes)
    print(report.describe(plan.device))
    apart = [str(row[0]) for row in checked.rows if not isinstance(row[2], float) or not row[2] < TOLERANCE]
    if apart:
        print(f"Further than {TOLERANCE:g} from the CPU: {', '.join(apart)}.", file=sys.stderr)
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
