"""Faults seen in other tools that cut across the rooms: each is a test here; those of one room stand with that room's tests.

The classifier is looked at from outside, on data made for the purpose: 8 x 8 images in the place of `digits`, all black or all white.
"""

import gc
import math
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from fedviz.config import SimulationConfig
from fedviz.participation import PATTERNS
from fedviz.problems import classification, classifier_numba, classifier_torch, datasets
from fedviz.problems.architectures import floats_per_sample
from fedviz.problems.datasets import DATASETS, Dataset
from fedviz.simulation.errors import Diverged
from fedviz.simulation.loop import Simulation, simulate
from tests.problems import ALGORITHMS, label_of, random_quadratics, toy
from tests.test_contract import GENTLE, TUNED

BLACK, WHITE = (
    (shade - DATASETS["digits"].mean[0]) / DATASETS["digits"].deviation[0] for shade in (0, 1)
)  # normalised
KEPT: list[Dataset] = []  # the engine tells data sets apart by identity, so none may be freed while others are made

Hold = Callable[[list[int], list[int]], None]


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hold]:
    """hold(train, test): `digits` is images with these labels, black where the label is 0, white where it is 1."""

    def forget() -> None:
        datasets.train_labels.cache_clear()
        classification._dealt.cache_clear()

    def put(train: list[int], test: list[int]) -> None:
        arrays = []
        for labels in (train, test):
            arrays += [np.repeat(255 * np.array(labels, dtype=np.uint8), 64).reshape(-1, 64), np.array(labels)]
        KEPT.append(Dataset(*arrays))
        monkeypatch.setitem(datasets._LOADED, "digits", KEPT[-1])
        forget()

    yield put
    forget()


def two_clients(algorithm: dict[str, Any], *, weights: str = "uniform", **settings: Any) -> SimulationConfig:
    """Client 0 holds all black images, client 1 all white ones; softmax regression, from zero."""
    partition = {"name": "similarity", "similarity": 0.0}
    problem = {"kind": "classification", "dataset": "digits", "weights": weights, "partition": partition}
    values = {"num_clients": 2, "participation": {"pattern": "full"}, "probe_every": 0, "rounds": 1}
    return SimulationConfig.read({"problem": problem, "algorithm": algorithm, **values, **settings})


# --- control variates: the number of steps ----------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [3, 5, 12, 50], ids=lambda b: f"batch{b}")
@pytest.mark.parametrize("epochs", [1, 5])
def test_variates_of_a_constant_gradient_are_that_gradient_for_any_number_of_epochs_and_any_batch(
    hold: Hold, epochs: int, batch: int
) -> None:
    """12 black and 8 white images; 3 and 12 divide 12, 5 does not, 50 is more than all.

    Every image of a client is the same and the rate is next to nothing, so each step's gradient is that at zero, where all ten labels
    have chance 1/10: (1/10 - [c = label]) (x, 1) in the row of label c.
    """
    hold([0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0], [0, 1])
    steps = epochs * max(1, 12 // batch)
    config = two_clients({"name": "scaffold"}, local_steps=steps, batch_size=batch, client_lr=1e-9)
    variates = list(simulate(config))[-1].checkpoint().state["client_variates"]
    for client, pixel in ((0, BLACK), (1, WHITE)):
        chances = torch.full((10,), 0.1)
        chances[client] -= 1
        expected = torch.outer(chances, torch.tensor([pixel] * 64 + [1.0]))
        assert torch.allclose(variates[client].reshape(10, 65), expected, atol=1e-5)


# --- evaluation -------------------------------------------------------------------------------------------------------


def right_on_black_and_wrong_on_white() -> torch.Tensor:
    """Softmax rows (64 weights, bias): black images have loss 0 and are recognised; white ones have loss 1 and are taken for black.

    Logits z_0 - z_1 = 60 on black: loss log(1 + e^-60) = 0. On white log(e - 1) > 0: loss log(1 + e^log(e - 1)) = log e = 1. Both
    follow from one pixel: slope * pixel + bias. The other labels are at -200: chance 0.
    """
    slope = (math.log(math.e - 1) - 60) / (WHITE - BLACK)
    w = torch.zeros(10, 65, dtype=torch.float64)
    w[0, 0], w[0, 64] = slope, 60 - slope * BLACK
    w[2:, 64] = -200
    return w.flatten().to(torch.float32)


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_measures_are_means_over_all_samples_by_the_clients_weights(
    hold: Hold, monkeypatch: pytest.MonkeyPatch, at_once: int, backend: str
) -> None:
    """Sizes 99 and 1 with losses 0 and 1: 1/2 where clients count alike, 1/100 by size. 99 of 100 test images right: 0.99, loss 0.01.

    However many are evaluated at once: the last batch alone would give 0 or 1.
    """
    monkeypatch.setattr(classifier_torch, "CHUNK_BYTES", at_once * 4 * floats_per_sample("softmax", (1, 8, 8)))
    monkeypatch.setattr(classifier_numba, "SAMPLES_AT_ONCE", at_once)
    for train, test, loss, accuracy in (
        ([0] * 99 + [1], [0] * 99 + [1], 0.01, 0.99),
        ([1] * 99 + [0], [1] * 99 + [0], 0.99, 0.01),
    ):
        hold(train, test)
        for weights, expected in (("uniform", 0.5), ("size", loss)):
            run = Simulation(two_clients({"name": "fedavg"}, weights=weights, backend=backend))
            measured = run.problem.evaluate(right_on_black_and_wrong_on_white())
            assert measured.train_loss == pytest.approx(expected, abs=1e-4)
            assert measured.test_loss == pytest.approx(loss, abs=1e-4)
            assert measured.test_accuracy == pytest.approx(accuracy)


def test_test_images_are_never_trained_on(hold: Hold) -> None:
    """Other test images, other measures of them, and the same model bit for bit."""
    runs = []
    for test in ([0, 1], [1, 1, 1, 0]):
        hold([0, 1] * 20, test)
        records = list(simulate(two_clients({"name": "scaffold"}, rounds=4, local_steps=3, eval_every=1)))
        runs.append((records[-1].w.clone(), records[-1].evaluation))
    (w, measured), (w_other, measured_other) = runs
    assert torch.equal(w, w_other)
    assert measured.train_loss == measured_other.train_loss
    assert measured.test_loss != measured_other.test_loss


def test_training_and_test_digits_are_together_the_digits_each_once() -> None:
    """scikit-learn's 1,797 images, as multisets of their bytes."""
    from sklearn.datasets import load_digits

    data = datasets.load("digits")
    ours = [image.tobytes() for image in (*data.train_images, *data.test_images)]
    theirs = [np.round(image * 255 / 16).astype(np.uint8).tobytes() for image in load_digits().data]
    assert len(ours) == 1797
    assert sorted(ours) == sorted(theirs)


def test_the_last_round_is_measured_with_the_model_that_the_run_ends_with(hold: Hold) -> None:
    """Computed anew from the record's own w, by the formula of the cross-entropy, in float64."""
    hold([0, 1] * 20, [0, 1, 1])
    for record in simulate(two_clients({"name": "fedavg"}, rounds=3, local_steps=4, client_lr=0.01, eval_every=1)):
        rows, losses = record.w.double().reshape(10, 65), []
        for label, pixel in ((0, BLACK), (1, WHITE)):
            logits = rows[:, :64].sum(1) * pixel + rows[:, 64]
            losses.append(float(torch.logsumexp(logits, 0) - logits[label]))
        assert record.evaluation.train_loss == pytest.approx(sum(losses) / 2, rel=1e-5)
        assert record.evaluation.test_loss == pytest.approx((losses[0] + 2 * losses[1]) / 3, rel=1e-5)


# --- runs that diverge ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedvarp"])
def test_a_run_that_overflows_ends_after_its_last_finite_round(algorithm: str) -> None:
    """f = x^2 for everybody, rate 10, one step: x becomes x - 20 x = -19 x. 19^241 = 1.5e308 is the last that a float64 holds."""
    problem = {"kind": "quadratics", "curvature": [[2.0], [2.0]], "linear": [[0.0], [0.0]], "start": [1.0]}
    everybody = {"participation": {"pattern": "full"}, "local_steps": 1, "client_lr": 10.0, "rounds": 400}
    path, ended = [], None
    try:
        for record in simulate(toy({"name": algorithm}, problem=problem, **everybody)):
            path.append(float(record.w))  # noqa: PERF401 - one by one: what came before the end is the point
    except Diverged as error:
        ended = error.round
    assert ended == 242
    assert path == [pytest.approx(float((-19) ** round), rel=1e-12) for round in range(242)]


# --- memory -----------------------------------------------------------------------------------------------------------


def bytes_reached_from(run: Simulation) -> int:
    """Bytes of all that the run keeps alive, however deep."""
    total, seen, todo = 0, set(), [run]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing) + (thing.untyped_storage().nbytes() if isinstance(thing, torch.Tensor) else 0)
        # A function reaches its whole module; what it may keep is what it closes over.
        todo.extend(thing.__closure__ or () if isinstance(thing, FunctionType) else gc.get_referents(thing))
    return total


def live_tensors() -> int:
    gc.collect()
    return sum(type(thing) is torch.Tensor for thing in gc.get_objects())


PERMUTATION = {"pattern": "cyclic", **TUNED["cyclic"], "sampler": "permutation"}
MIXTURES = [
    *(
        pytest.param(algorithm, {"pattern": "uniform", **TUNED["uniform"]}, id=label_of(algorithm))
        for algorithm in ALGORITHMS
    ),
    *(pytest.param({"name": "fedavg"}, {"pattern": name, **TUNED.get(name, {})}, id=name) for name in PATTERNS),
    pytest.param({"name": "fedavg"}, PERMUTATION, id="permutation"),
]


@pytest.mark.parametrize(("algorithm", "pattern"), MIXTURES)
def test_memory_is_flat_after_the_third_round(algorithm: dict[str, Any], pattern: dict[str, Any]) -> None:
    """Rounds 3 and 99, both ends of a window of three: not a tensor more, and less than a list would grow by in 96 rounds."""
    config = random_quadratics(
        algorithm,
        rounds=99,
        participation=pattern,
        noise=0.1,
        probe_every=11,
        probe={"check_every": 0},
        eval_every=11,
        server_lr=GENTLE.get(algorithm["name"], 1.0),
    )
    run = Simulation(config)
    run.begin()
    held = {}
    for round in range(1, 100):
        run.advance(round)
        if round in (3, 99):
            held[round] = bytes_reached_from(run), live_tensors()
    assert held[99][0] - held[3][0] < 96 * 8 / 2
    assert held[99][1] <= held[3][1]


def test_a_client_more_takes_a_memory_more_and_nothing_else() -> None:
    """SCAFFOLD in dimension 3, float64: [N, 3] variates and one [3] mean are 24 (N + 1) bytes, before and after 20 rounds."""
    for clients in (6, 60):
        for record in simulate(random_quadratics({"name": "scaffold"}, num_clients=clients, rounds=20)):
            state = record.checkpoint().state
            assert sum(tensor.numel() * tensor.element_size() for tensor in state.values()) == 24 * (clients + 1)
