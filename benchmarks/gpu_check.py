"""On a machine with an NVIDIA GPU: are its records those of the CPU, and how fast is it? Meant for five minutes; not tried on one yet.

    python benchmarks/gpu_check.py                         check every model, and that rounds do not wait; measure W1, W2, lockstep
                                                           and mixed precision on the GPU
    python benchmarks/gpu_check.py --device cpu --tiny     the same script where there is no GPU, to see that it runs

Exit code 0: every model's records agree within 1e-5, and no round waits. 1: not so. 2: there is no such device.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedviz.benchmarks import report
from fedviz.benchmarks.agreement import TOLERANCE, agreement, precision, waits
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
    waiting = waits(plan)
    show("Rounds and the device", [waiting], [])
    for name in ("w1", "w2", "lockstep"):
        found = WORKLOADS[name].measure(plan)
        show(WORKLOADS[name].title, found.tables, found.notes)
    show("Precision", [precision(plan)], [])
    print(report.describe(plan.device))
    apart = [str(row[0]) for row in checked.rows if not isinstance(row[2], float) or not row[2] < TOLERANCE]
    if apart:
        print(f"Further than {TOLERANCE:g} from the CPU: {', '.join(apart)}.", file=sys.stderr)
    slow = [str(row[0]) for row in waiting.rows if str(row[1]).startswith("waits")]
    if slow:
        print(f"A round waits for the device: {', '.join(slow)}.", file=sys.stderr)
    return 1 if apart or slow else 0


if __name__ == "__main__":
    sys.exit(main())
