"""Every back end gives the records of the reference: PyTorch's batched local SGD, itself held to one client at a time elsewhere."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedviz.config import ConfigError
from fedviz.problems import classifier_torch, kernels, workers
from fedviz.simulation import device
from fedviz.simulation.loop import Simulation, simulate
from tests.problems import ALGORITHMS, comparable, label_of, small_classification


def classification(**settings: Any) -> dict[str, Any]:
    return {"kind": "classification", **settings}


def numbers(value: Any) -> list[float]:
    """All numbers of a nested record, in order."""
    if isinstance(value, dict):
        return [number for inner in value.values() for number in numbers(inner)]
    if isinstance(value, list):
        return [number for inner in value for number in numbers(inner)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_the_compiled_back_end_gives_the_records_of_the_reference(
    algorithm: dict[str, Any], dtype: str, tolerance: float
) -> None:
    """Unequal clients (17 of 4,000 images), a batch size that is no multiple of a block, an odd number of steps, all that is measured."""
    settings = {
        "num_clients": 17,
        "batch_size": 13,
        "rounds": 3,
        "probe_every": 3,
        "probe": {"check_every": 1, "clients": 6},
    }
    torch_records, numba_records = (
        [
            (record.w.clone(), comparable(record))
            for record in simulate(
                small_classification(algorithm, problem=classification(dtype=dtype), backend=backend, **settings)
            )
        ]
        for backend in ("torch", "numba")
    )
    assert len(torch_records) == 4
    for (w, expected), (ours, found) in zip(torch_records, numba_records, strict=True):
        assert w.dtype == getattr(torch, dtype)
        assert float((w - ours).abs().max()) < tolerance
        assert numbers(found) == pytest.approx(numbers(expected), rel=20 * tolerance, abs=20 * tolerance)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 5, 16, 700])
@pytest.mark.parametrize("dataset", ["digits", "fashion_mnist_mini"])
def test_no_batch_size_leaves_a_remainder(batch_size: int, dataset: str) -> None:
    one, other = (
        [
            record.w.clone()
            for record in simulate(
                small_classification(
                    {"name": "fedavg"},
                    problem=classification(dataset=dataset, dtype="float64"),
                    batch_size=batch_size,
                    rounds=2,
                    probe_every=0,
                    backend=backend,
                )
            )
        ][-1]
        for backend in ("torch", "numba")
    )
    assert float((one - other).abs().max()) < 1e-12


@pytest.mark.parametrize("classes", [1, 3, 10, 47])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_kernels_against_plain_algebra(classes: int, count: int) -> None:
    """Logits, residuals, products, loss and rightness of `count` images, computed anew with numpy on unpadded arrays."""
    random = np.random.default_rng(3)
    width, labels_padded = 32, -(-classes // 10) * 10
    images, w = np.zeros((9, width)), np.zeros((labels_padded, width))
    images[:, :20], w[:classes, :20] = random.normal(size=(9, 20)), random.normal(size=(classes, 20))
    rows, labels = random.integers(0, 9, count), random.integers(0, classes, 9)
    weights = random.uniform(0.1, 1, count)

    z = np.full((count, labels_padded), 99.0)
    kernels.logits(images, rows, w, z)
    plain = images[rows] @ w[:classes].T
    np.testing.assert_allclose(z[:, :classes], plain, rtol=1e-12)

    shares = np.exp(plain) / np.exp(plain).sum(1, keepdims=True)
    loss, right = kernels.loss_and_right(labels, rows, weights, classes, z)
    assert loss == pytest.approx(-weights @ np.log(shares[np.arange(count), labels[rows]]), rel=1e-12)
    assert right == (plain.argmax(1) == labels[rows]).sum()

    kernels.residuals(labels, rows, weights, classes, z)
    expected = weights[:, None] * (shares - np.eye(classes)[labels[rows]])
    np.testing.assert_allclose(z[:, :classes], expected, rtol=1e-9, atol=1e-15)
    assert not z[:, classes:].any()

    products = np.ones((labels_padded, width))
    kernels.add_products(images, rows, z, products)
    np.testing.assert_allclose(products[:classes, :20], 1 + expected.T @ images[rows, :20], rtol=1e-9, atol=1e-14)
    assert (products[classes:] == 1).all()


KERNELS = """
import hashlib
import numpy as np
from fedviz.problems import kernels
kernels.compile_all(np.float32)
random, rows = np.random.default_rng(0), np.arange(70)
images, w = random.normal(size=(70, 800)).astype(np.float32), random.normal(size=(10, 800)).astype(np.float32) / 100
out, weights, labels = np.zeros_like(w), np.full(70, 1 / 70, np.float32), random.integers(0, 10, 70)
loss = kernels.add_gradient(images, labels, rows, weights, 10, w, out)
print(loss, kernels.test_measures(images, labels, rows, 10, w), hashlib.sha256(out.tobytes()).hexdigest())
"""


def test_a_process_that_compiles_and_one_that_loads_give_the_same_numbers(tmp_path: Path) -> None:
    """The first run on a machine, and the second: sums in another order would differ in the last digits."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", KERNELS], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    )
    assert list(tmp_path.rglob("*.nbc"))  # so the second loaded
    assert first == second


def test_the_number_of_threads_changes_nothing() -> None:
    found = []
    for count in (1, 2, 3):
        with workers.at_most(count):
            found.append([comparable(record) for record in simulate(small_classification({"name": "scaffold"}))])
    assert found[0] == found[1] == found[2]


def test_a_clients_update_does_not_depend_on_who_else_takes_part() -> None:
    """Client 3 alone, and among four: the same numbers, to the bit."""
    updates = []
    for cohort in ([3], [1, 3, 7, 9]):
        config = small_classification(
            {"name": "fedvarp"}, participation={"pattern": "trace", "cohorts": [cohort]}, rounds=1, probe_every=0
        )
        record = list(simulate(config))[-1]
        updates.append(record.checkpoint().state["memory"][3])
    assert torch.equal(*updates)


def test_stop_is_heard_within_a_pass_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedviz.problems.classifier_numba.WORK_AT_ONCE", 2 * 2 * 16 * 10 * 800)  # two steps
    asked = []

    def between_steps() -> None:
        asked.append(None)
        if len(asked) > 3:
            raise KeyboardInterrupt

    config = small_classification({"name": "fedavg"}, local_steps=7, rounds=1, probe_every=0, eval_every=0)
    with pytest.raises(KeyboardInterrupt):
        list(simulate(config, between_steps=between_steps))


def test_a_failure_in_a_thread_is_raised_once_all_have_ended() -> None:
    done = []

    def work(item: int) -> int:
        if item == 0:
            raise ValueError("zero")
        done.append(item)
        return item

    with workers.at_most(2):
        with pytest.raises(ValueError, match="zero"):
            workers.in_parallel(work, [0, 1, 2])
        assert sorted(done) == [1, 2]
        assert workers.in_parallel(work, [3, 1, 2]) == [3, 1, 2]


def test_work_within_shared_work_is_done_in_place() -> None:
    """Two threads that both wait for a free thread would wait for ever."""
    with workers.at_most(2):
        nested = workers.in_parallel(lambda n: workers.in_parallel(lambda m: n * m, [1, 2, 3]), [1, 2, 3])
    assert nested == [[1, 2, 3], [2, 4, 6], [3, 6, 9]]


@pytest.mark.parametrize(
    "settings",
    [
        {"problem": classification(model="mlp")},
        {"device": "cuda"},
        {"problem": {"kind": "lower_bound"}, "num_clients": 2, "participation": {"pattern": "full"}},
    ],
)
def test_numba_is_refused_where_it_computes_nothing(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"backend: got numba.*softmax regression on the CPU.*auto or torch"):
        small_classification({"name": "fedavg"}, backend="numba", **settings)


def test_the_automatic_back_end_is_a_fixed_rule_and_is_named() -> None:
    expected = {"softmax": "CPU with Numba", "mlp": "CPU with PyTorch", "cnn": "CPU with PyTorch"}
    for model, words in expected.items():
        config = small_classification({"name": "fedavg"}, problem=classification(model=model), device="cpu")
        assert device.describe(config) == words


def test_float64_has_the_digits_of_float64() -> None:
    """The same run in both precisions: apart by what float32 rounds away, and by no more."""
    single, double = (
        [
            record.w.double()
            for record in simulate(
                small_classification({"name": "fedavg"}, problem=classification(dtype=dtype), probe_every=0)
            )
        ][-1]
        for dtype in ("float32", "float64")
    )
    apart = float((single - double).abs().max())
    assert 0 < apart < 1e-6


@pytest.mark.parametrize("algorithm", [{"name": "scaffold"}, {"name": "fedprox", "mu": 0.5}], ids=label_of)
def test_a_replayed_pass_is_the_pass_itself(algorithm: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffers of a CUDA graph, with the steps themselves in the place of the graph; more kinds of cohorts than are kept."""
    settings: dict[str, Any] = {
        "participation": {"pattern": "bernoulli", "chance": 0.3},
        "rounds": 12,
        "backend": "torch",
    }
    plain = [comparable(record) for record in simulate(small_classification(algorithm, **settings))]
    assert len({len(record["cohort"]) for record in plain}) > 3

    real, made = classifier_torch.TorchClassifier.__init__, []

    def recording(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        self.records = True
        made.append(self)

    monkeypatch.setattr(classifier_torch.TorchClassifier, "__init__", recording)
    monkeypatch.setattr(classifier_torch, "RECORDED_AT_MOST", 2)
    assert [comparable(record) for record in simulate(small_classification(algorithm, **settings))] == plain
    assert len(made[0].recorded) == 2


def test_a_run_that_is_over_leaves_nothing_behind_and_needs_no_collector() -> None:
    """N memories of length d would otherwise stay until the garbage collector comes by."""
    gc.disable()
    try:
        run = Simulation(small_classification({"name": "fedvarp"}, backend="torch", probe_every=0))
        run.begin()
        over = weakref.ref(run)
        del run
        assert over() is None
    finally:
        gc.enable()


def test_networks_share_the_images_that_they_take_alike() -> None:
    mlp, cnn = (
        Simulation(small_classification({"name": "fedavg"}, problem=classification(model=model))).problem
        for model in ("mlp", "cnn")
    )
    assert mlp.train_x.stored.data_ptr() == cnn.train_x.stored.data_ptr()
