"""Memory: estimated by hand here, and refused with both numbers."""

import pytest

from fedviz.config import SimulationConfig
from fedviz.runs import Refused
from fedviz.runs.admission import _left_by_limits, check, estimate, free_bytes, in_words


def test_the_estimate_of_the_default_run_is_the_one_made_by_hand():
    # FedVARP, N = 100, S = 5, B = 16, softmax: d = 785 * 10, float32, 12,000 images of 784 bytes, 200 rounds.
    found, d = estimate(SimulationConfig()), 7850
    assert found.memories == 4 * d * (100 + 1 + 4)
    assert found.data == 12_000 * 784 * (1 + 4)
    one_pass = 6 * 4 * d + 16 * (784 * 4 + 3 * 8 * 30)
    assert found.cohort == 5 * one_pass
    assert found.probe == 2 * 100 * d * (4 + 8) * 3 + 100 * one_pass
    assert found.total == found.memories + found.cohort + found.data + found.probe + found.records
    assert 100e6 < found.total < 200e6


def test_no_probe_takes_no_memory_and_clusters_take_less_than_clients():
    def of(**settings):
        return estimate(SimulationConfig.read(settings))

    assert of(probe_every=0).probe == 0
    many = {"num_clients": 5000}
    assert (
        of(algorithm={"name": "fedavg"}, **many).memories < of(algorithm={"name": "cluster_fedvarp"}, **many).memories
    )
    assert of(algorithm={"name": "cluster_fedvarp"}, **many).memories * 100 < of(**many).memories
    assert of(rounds=1_000_000).records > 1000 * of(rounds=200).records


def test_a_run_that_needs_too_much_is_refused_with_both_numbers():
    big = SimulationConfig.read({"num_clients": 5_000})
    needed = estimate(big).total
    check(big, free=int(needed / 0.79))
    with pytest.raises(Refused) as refusal:
        check(big, free=int(needed / 0.81))
    assert in_words(needed) in str(refusal.value)
    assert in_words(int(needed / 0.81)) in str(refusal.value)
    assert "80 %" in str(refusal.value)
    # A reference counts, too.
    with pytest.raises(Refused):
        check(big, big, free=int(needed / 0.79))


def test_what_is_free_is_a_plausible_number_of_bytes():
    assert 1e7 < free_bytes() < 1e14


def test_a_limit_of_a_container_counts_in_both_versions(tmp_path):
    files, membership = tmp_path / "cgroup", tmp_path / "self"

    def write(folder, **values):
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            (folder / name.replace("__", ".")).write_text(f"{value}\n")

    # Version 2: no limit on the group itself, one above it; 10 of the used 60 are file cache, which gives way.
    write(files / "shop" / "app", memory__max="max", memory__current=5, memory__stat="anon 5\ninactive_file 0")
    write(files / "shop", memory__max=100, memory__current=60, memory__stat="anon 50\ninactive_file 10")
    membership.write_text("0::/shop/app\n")
    assert _left_by_limits(files, membership) == [50]
    # Version 1, in a container that sees only the root of its group.
    write(files / "memory", memory__limit_in_bytes=1000, memory__usage_in_bytes=1300, memory__stat="cache 0")
    membership.write_text("5:cpu:/x\n4:memory:/not/visible\n0::/\n")
    assert _left_by_limits(files, membership) == [0]
    assert _left_by_limits(files, tmp_path / "missing") == []


def test_bytes_in_words():
    assert [in_words(size) for size in (0, 999, 1234, 999_600, 47e6, 2.345e9, 5e13)] == [
        "0 B", "999 B", "1.23 kB", "1 MB", "47 MB", "2.35 GB", "50 TB"
    ]  # fmt: skip
