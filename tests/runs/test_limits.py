"""What a server allows: read from the environment, said aloud, and held to, with the estimate and the limit in the refusal."""

import re

import pytest

from fedviz.config import SimulationConfig
from fedviz.runs import LimitError, Limits, Refused, admission
from tests.runs.fakes import config


def test_hosting_is_strict_by_default_and_each_limit_can_be_set_apart():
    local, hosted = Limits.from_environment({}), Limits.from_environment({"FEDVIZ_HOSTED": "1"})
    assert (local.hosted, local.executor, local.rounds, local.queued_per_visitor) == (False, "thread", None, 32)
    assert (hosted.hosted, hosted.executor, hosted.queued_per_visitor) == (True, "process", 3)
    assert None not in (hosted.rounds, hosted.memory_bytes, hosted.gradient_evaluations, hosted.stored_bytes)
    chosen = Limits.from_environment(
        {
            "FEDVIZ_HOSTED": "1", "FEDVIZ_EXECUTOR": "thread", "FEDVIZ_CONCURRENT": "7", "FEDVIZ_QUEUE": "5",
            "FEDVIZ_QUEUED_PER_VISITOR": "2", "FEDVIZ_RUN_MEMORY": "1e9", "FEDVIZ_RUN_GRADIENTS": "2e6",
            "FEDVIZ_RUN_ROUNDS": "0", "FEDVIZ_RUN_BYTES": "3000", "FEDVIZ_PAUSE_UNWATCHED": "90", "FEDVIZ_EXPIRE": "2",
            "FEDVIZ_ADMIN_TOKEN": "correct horse battery",
        }
    )  # fmt: skip
    assert chosen == Limits(
        True, "thread", 7, 5, 2, 1_000_000_000, 2_000_000, None, 3000, 90.0, 172_800.0, "correct horse battery"
    )
    lines = "\n".join(chosen.describe())
    assert "7 runs compute at a time" in lines
    assert "1 GB" in lines
    assert "after 2 days" in lines
    assert "horse" not in lines + repr(chosen)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("FEDVIZ_HOSTED", "yes", "1"),
        ("FEDVIZ_EXECUTOR", "ray", "thread or process"),
        ("FEDVIZ_CONCURRENT", "0", "from 1"),
        ("FEDVIZ_CONCURRENT", "1.5", "whole"),
        ("FEDVIZ_QUEUE", "many", "a number"),
        ("FEDVIZ_RUN_MEMORY", "inf", "a number"),
        ("FEDVIZ_RUN_ROUNDS", "-3", "from 0"),
        ("FEDVIZ_ADMIN_TOKEN", "short", "12 or more"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name, value, allowed):
    with pytest.raises(LimitError, match=rf"{name}.*{re.escape(allowed)}"):
        Limits.from_environment({name: value})


def test_the_work_of_a_run_is_counted_as_by_hand():
    # 5 of 100 clients, 10 local steps of 16; every 8th of 200 rounds is measured with 2 passes of all 100 clients and
    # 10,000 full gradients, every 5th of these with 64 cohorts of 5.
    chosen = SimulationConfig.read({"local_steps": 10, "batch_size": 16, "rounds": 200, "probe_every": 8})
    training, probes = 200 * 5 * 10 * 16, 25 * (10_000 + 2 * 100 * 10 * 16)
    assert admission.gradient_evaluations(chosen) == training + probes + 5 * 64 * 5 * 10 * 16
    assert admission.gradient_evaluations(config(rounds=30, probe_every=0)) == 30 * 1 * 2  # one client, two steps


def test_estimates_of_work_and_bytes_are_not_far_from_what_a_run_takes():
    import json

    from fedviz.simulation.loop import simulate

    chosen = SimulationConfig.read({"rounds": 16, "probe_every": 8, "eval_every": 4, "algorithm": {"name": "scaffold"}})
    records = [record.to_dict() for record in simulate(chosen)]
    costs = records[-1]["costs"]
    taken = costs["gradient_evaluations"] + costs["probe_evaluations"]
    assert 0.6 < admission.gradient_evaluations(chosen) / taken < 1.7
    written = sum(len(json.dumps(record, separators=(",", ":"))) for record in records)
    state = 2 * 4 * 7850 * (100 + 1 + 1)  # two checkpoints of w, the clients' variates and the server's
    assert 0.6 < (admission.stored_bytes(chosen) - state) / written < 1.7


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"rounds": 19}, "20 rounds; this server allows 19"),
        ({"gradient_evaluations": 30}, "about 80 sample gradients with its measurements; this server allows 30"),
        ({"memory_bytes": 100}, "of memory; this server allows 100 B"),
        ({"stored_bytes": 100}, "on the disk; this server allows 100 B"),
    ],
)
def test_a_run_beyond_a_budget_is_refused_with_estimate_and_limit(start, limits, said):
    manager = start(limits=Limits(**limits))
    pair = config(probe_every=0), config("fedprox", probe_every=0)  # 2 runs of 20 rounds, one client, two steps
    with pytest.raises(Refused, match=re.escape(said)):
        manager.submit(*pair)
    start(limits=Limits(rounds=20, gradient_evaluations=80, memory_bytes=10**6, stored_bytes=10**6)).submit(*pair)
