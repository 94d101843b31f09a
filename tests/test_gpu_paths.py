"""What is made for a GPU, exercised on the CPU: images as bytes, products in bfloat16, and how often a round waits for the device."""

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedviz.config import ConfigError, SimulationConfig
from fedviz.problems import ProblemError, datasets, images
from fedviz.problems.classifier_torch import TorchClassifier
from fedviz.problems.images import Images
from fedviz.problems.models import MODELS
from fedviz.problems.transfer import Fetched
from fedviz.simulation import device
from fedviz.simulation.lockstep import simulate_many
from fedviz.simulation.loop import Simulation, simulate
from tests.problems import ALGORITHMS, comparable, label_of, small_classification
from tests.test_backends import numbers


def classification(**settings: Any) -> dict[str, Any]:
    return {"kind": "classification", **settings}


def trained(model: str, dtype: str = "float32", **settings: Any) -> SimulationConfig:
    """Two rounds with PyTorch on small images, measured at the end."""
    small: dict[str, Any] = {"rounds": 2, "eval_every": 2, "probe_every": 2, "probe": {"clients": 4, "check_every": 0}}
    problem = classification(dataset="digits", model=model, dtype=dtype, **settings.pop("problem", {}))
    return small_classification({"name": "scaffold"}, problem=problem, backend="torch", **{**small, **settings})


def outcome(config: SimulationConfig) -> tuple[torch.Tensor, list[float]]:
    """(the model, all numbers of the record) at the end."""
    *_, last = simulate(config)
    assert last.w is not None
    return last.w.clone(), numbers(comparable(last))


@pytest.fixture
def bytes_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "BYTES_ON", {"cpu"})


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passes of a GPU: a cohort as one batch, by buffers that stay."""
    real = TorchClassifier.__init__

    def made(self: TorchClassifier, *arguments: Any) -> None:
        real(self, *arguments)
        self.records, self.one_by_one = True, False

    monkeypatch.setattr(TorchClassifier, "__init__", made)
    monkeypatch.setattr("fedviz.simulation.device._chosen", lambda config: "cpu")
    monkeypatch.setattr("fedviz.problems.classification.Classification.problem_on", lambda self, device: None)


# --- images as bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model", ["softmax", "mlp", "cnn"])
def test_bytes_become_the_normalised_floats_that_models_take(model: str, dtype: torch.dtype, bytes_here: None) -> None:
    """Expected: the formula, in float64, with softmax regression's 1 for the bias at the end. Three channels, unlike."""
    info = datasets.DATASETS["cifar10"]
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3072), dtype=np.uint8)
    expected = (pixels / 255 - np.repeat(info.mean, 1024)) / np.repeat(info.deviation, 1024)
    if model == "softmax":
        expected = np.append(expected, np.ones((5, 1)), 1)
    made = Images.of(pixels, info, "cpu", dtype, MODELS[model](model, info.image, 10))
    assert made.stored.dtype == torch.uint8
    assert made.stored.numel() == expected.size
    rows, within = torch.tensor([4, 0, 0, 2]), 1e-6 if dtype == torch.float32 else 1e-14
    out, half = torch.empty(4, made.stored.shape[1], dtype=dtype), torch.empty(4, made.stored.shape[1]).bfloat16()
    made.gather(rows, out)
    np.testing.assert_allclose(out, expected[rows], rtol=0, atol=within)
    assert torch.equal(made[rows], out)
    assert torch.equal(made[1:3], made[torch.tensor([1, 2])])
    made.gather(rows, half)
    assert torch.equal(half, out.bfloat16())


@pytest.mark.parametrize("model", ["softmax", "mlp"])
@pytest.mark.parametrize("skew", ["none", "contrast"])
def test_a_run_on_bytes_is_the_run_on_floats(
    model: str, skew: str, as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trained(model, problem={"feature_skew": skew})
    w, expected = outcome(config)
    monkeypatch.setattr(images, "BYTES_ON", {"cpu"})
    stored = Simulation(config).problem.train_x.stored.dtype  # type: ignore[attr-defined]
    assert stored == (torch.uint8 if skew == "none" else torch.float32)  # unlike images are no bytes any more
    found, ours = outcome(config)
    assert float((found - w).abs().max()) < 1e-6
    assert ours == pytest.approx(expected, rel=1e-4, abs=1e-5)


# --- mixed precision --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["softmax", "mlp", "cnn"])
def test_a_mixed_gradient_is_off_by_what_bfloat16_rounds_away(model: str, as_on_a_gpu: None) -> None:
    """bfloat16 keeps 8 bits; four roundings lie between images and gradients (images, weights, activations, what comes back)."""
    exact, mixed = (Simulation(trained(model, dtype)).problem for dtype in ("float64", "mixed_bfloat16"))
    clients = np.array([2, 5])
    gradients = []
    for problem in (exact, mixed):
        assert isinstance(problem, TorchClassifier)
        draws, w = problem.draws(clients, 1, 1), problem.start()
        gradients.append(problem.gradient(w.expand(2, -1), draws, 0, w.new_empty(2, len(w))).double())
    scale = float(gradients[0].abs().max())
    assert 0 < float((gradients[0] - gradients[1]).abs().max()) < 8 * 2**-8 * scale


@pytest.mark.parametrize("model", ["softmax", "mlp"])
def test_mixed_passes_by_buffers_are_the_passes_themselves(
    model: str, as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, expected = outcome(trained(model, "mixed_bfloat16"))
    monkeypatch.setattr("fedviz.problems.classifier_torch.RECORDED_STEPS", 0)
    plain, ours = outcome(trained(model, "mixed_bfloat16"))
    assert torch.equal(w, plain)
    assert ours == expected


def test_clients_one_by_one_are_mixed_as_well_and_parameters_stay_single() -> None:
    single, mixed = (outcome(trained("mlp", dtype))[0] for dtype in ("float32", "mixed_bfloat16"))
    assert mixed.dtype == torch.float32
    assert 1e-6 < float((single - mixed).abs().max()) < 1e-2
    assert not torch.equal(mixed, mixed.bfloat16().float())


def test_evaluations_and_full_data_gradients_are_not_mixed() -> None:
    single, mixed = (Simulation(trained("mlp", dtype)).problem for dtype in ("float32", "mixed_bfloat16"))
    w, everybody = single.start(), np.arange(20)
    assert single.evaluate(w) == mixed.evaluate(w)
    assert torch.equal(single.client_gradients(w, everybody), mixed.client_gradients(w, everybody))


def test_a_mixed_run_in_another_thread_changes_nothing_about_a_single_one() -> None:
    alone = outcome(trained("mlp"))
    mixed = [threading.Thread(target=outcome, args=(trained("mlp", "mixed_bfloat16", seed=s),)) for s in (1, 2)]
    for thread in mixed:
        thread.start()
    beside = outcome(trained("mlp"))
    for thread in mixed:
        thread.join()
    assert torch.equal(alone[0], beside[0])
    assert alone[1] == beside[1]


def test_runs_of_other_precision_are_not_one_batch(as_on_a_gpu: None) -> None:
    several = [trained("softmax", dtype, eval_every=0) for dtype in ("float32", "mixed_bfloat16")]
    expected = [outcome(config)[0] for config in several]
    found = {which: record.w.clone() for which, record in simulate_many(several, one_batch=True)}  # type: ignore[union-attr]
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize(
    "settings",
    [{"device": "cpu"}, {"backend": "numba"}, {"device": "cpu", "backend": "torch"}],
)
def test_mixed_softmax_on_a_cpu_is_refused(settings: dict[str, Any]) -> None:
    problem = classification(dtype="mixed_bfloat16")
    with pytest.raises(
        ConfigError,
        match=r"problem\.dtype: got mixed_bfloat16, allowed float32 or float64: softmax.*Choose another model",
    ):
        small_classification({"name": "fedavg"}, problem=problem, **settings)


def test_where_automatic_is_a_cpu_mixed_softmax_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_classification({"name": "fedavg"}, problem=classification(dtype="mixed_bfloat16"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.choose(config) == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ProblemError, match=r"problem\.dtype: got mixed_bfloat16, allowed float32"):
        device.choose(config)


def test_mixed_precision_is_refused_where_there_are_no_minibatches() -> None:
    with pytest.raises(ConfigError, match=r"problem\.dtype: got mixed_bfloat16.*takes no minibatches"):
        small_classification({"name": "sgd"}, problem=classification(model="mlp", dtype="mixed_bfloat16"))
    with pytest.raises(ConfigError, match=r'problem\.dtype: got "mixed_bfloat16", allowed "float32" or "float64"'):
        small_classification({"name": "fedavg"}, problem={"kind": "quadratics", "dtype": "mixed_bfloat16"})


# --- waiting for the device -------------------------------------------------------------------------------------------


class Watched(TorchDispatchMode):
    """What happens on a device: an operation, or a wait of the host for numbers that it has not asked for with `Fetched`."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen.append("wait" if name in self.WAITING else "work")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a["name"] != "amplified_scaffold"], ids=label_of)
def test_a_round_waits_for_the_device_once_and_at_its_end(
    algorithm: dict[str, Any], as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of a device reach the host by item (and bool, float, int), tolist, cpu or numpy. None but those of `Fetched`, and all
    work is queued before the first of them is waited for. (Amplified SCAFFOLD also asks at a window's end who took part in it.)"""
    config = small_classification(algorithm, backend="torch", probe_every=0, eval_every=2, rounds=4, local_steps=2)
    run = Simulation(config)
    run.first()
    run.advance(1)
    watched = Watched()
    real = Fetched.read

    def read(self: Fetched) -> list[float]:
        watched.seen.append("fetched")
        return real(self)

    monkeypatch.setattr(Fetched, "read", read)
    for name in ("tolist", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, _waiting(watched, getattr(torch.Tensor, name)))
    for round, fetches in ((2, 2), (3, 1)):  # with an evaluation, and without
        watched.seen.clear()
        with watched:
            run.advance(round)
        assert watched.seen.count("work") > 10
        assert watched.seen.count("fetched") == fetches
        assert "work" not in watched.seen[watched.seen.index("fetched") :]
        assert watched.seen.count("wait") == fetches  # the reading itself


def _waiting(watched: Watched, real: Any) -> Any:
    def method(self: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        watched.seen.append("wait")
        return real(self, *arguments, **named)

    return method
