"""Bad settings are refused before anything starts, naming field, value and what is allowed."""

import json
from typing import Any

import pytest

from fedviz.algorithms import ALGORITHMS
from fedviz.config import ConfigError, SimulationConfig, with_settings
from fedviz.papers.presets import PRESETS
from fedviz.parameters import shown
from fedviz.participation import PATTERNS
from fedviz.problems import PROBLEMS
from fedviz.problems.partitions import PARTITIONS

QUADRATIC = ["problem.kind=quadratics", "problem.curvature=[[1],[1]]", "problem.linear=[[1],[1]]", "problem.start=[0]"]
DRAWN = ["problem.kind=quadratics"]
ALONE = ["num_clients=1", "participation.pattern=full"]
BAD: list[tuple[list[str], str, str]] = [
    # settings, field of the message, what the message says
    (["num_clients=0"], "num_clients", "got 0, allowed a whole number from 1 to 100,000"),
    (["num_clients=4"], "participation.clients_per_round", "got 5, allowed 1 to 4"),
    (["num_clients=20000"], "num_clients", "got 20,000, allowed 1 to 10,000"),
    (["participation.clients_per_round=101"], "participation.clients_per_round", "got 101, allowed 1 to 100"),
    (["participation.pattern=cyclic", "participation.groups=101"], "participation.groups", "got 101, allowed 1 to 100"),
    (["participation.pattern=cyclic", "participation.groups=25"], "participation.clients_per_round", "allowed 1 to 4"),
    (
        ["participation.pattern=trace", "participation.cohorts=[[0,0]]"],
        "participation.cohorts",
        "round 1 names a client twice",
    ),
    (
        ["participation.pattern=trace", "participation.cohorts=[[100]]"],
        "participation.cohorts",
        "client 100, allowed 0 to 99",
    ),
    (
        ["participation.pattern=trace", "participation.cohorts=[[0]]"],
        "participation.cohorts",
        "got cohorts for 1 of 200 rounds",
    ),
    (["participation.pattern=trace", "participation.cohorts=[]"], "participation.cohorts", "got []"),
    (
        ["participation.pattern=trace", "participation.cohorts=[[0],[2,-1]]"],
        "participation.cohorts",
        "entry 1, 1: got -1, allowed a whole number from 0",
    ),
    (
        ["participation.pattern=trace", "participation.cohorts=[[true]]"],
        "participation.cohorts",
        "entry 0, 0: got true, allowed a whole number from 0",
    ),
    (
        ["participation.pattern=trace", "participation.cohorts=[0]"],
        "participation.cohorts",
        "entry 0: got 0, allowed a list of whole numbers from 0",
    ),
    (
        [*QUADRATIC, "num_clients=2", "problem.curvature=[1,2]"],
        "problem.curvature",
        "entry 0: got 1, allowed a list of numbers",
    ),
    ([*QUADRATIC, "problem.start=[[1]]"], "problem.start", "entry 0: got [1], allowed a number"),
    (
        [*QUADRATIC, "num_clients=2", "problem.linear=[[1],[NaN]]"],
        "problem.linear",
        "entry 1, 0: got NaN, allowed a number",
    ),
    (["algorithm=" + "[" * 60_000], "algorithm", "got"),
    (["participation.pattern=sometimes"], "participation.pattern", "got 'sometimes', allowed 'full', 'uniform'"),
    (["algorithm.name=cluster_fedvarp", "algorithm.clusters=101"], "algorithm.clusters", "got 101, allowed 1 to 100"),
    (
        ["algorithm.name=cluster_fedvarp", "algorithm.clustering=age"],
        "algorithm.clustering",
        'got "age", allowed "label"',
    ),
    (
        ["algorithm.name=cluster_fedvarp", "algorithm.clustering=5"],
        "algorithm.clustering",
        'got 5, allowed "label" or "random" or "kmeans" or {"labels": [...]}',
    ),
    (["probe.replicas=1"], "probe.replicas", "got 1, allowed a whole number from 2 to 16"),
    (["probe.clients=3"], "probe.clients", "got 3, allowed a whole number from 4 to 100,000"),
    (["probe.mode=exact"], "probe.mode", 'got "exact", allowed "cheap" or "full"'),
    (["probe.every=3"], "probe.every", "allowed here: check_every, clients, mode, replicas, windows_every"),
    (["probe=cheap"], "probe", "expected a group of settings, as in probe.mode=cheap"),
    ([*DRAWN, "problem.noise=-1"], "problem.noise", "got -1, allowed a number from 0 to 1,000,000"),
    ([*DRAWN, "problem.flat=1e7"], "problem.flat", "got 10000000.0, allowed a number above 0 to 1,000,000"),
    (
        ["algorithm.name=cluster_fedvarp", "algorithm.clustering.labels=[0,1]"],
        "algorithm.clustering.labels",
        "got 2 labels for 100",
    ),
    (["algorithm.name=fedsgd"], "algorithm.name", "got 'fedsgd', allowed 'fedavg', 'fedprox'"),
    (["algorithm.name=scaffold", "algorithm.option=III"], "algorithm.option", 'got "III", allowed "I" or "II"'),
    (["algorithm.name=fedprox", "algorithm.mu=-1"], "algorithm.mu", "got -1, allowed a number from 0 to 10,000"),
    (["algorithm.name=fedavgm", "algorithm.beta=1"], "algorithm.beta", "got 1, allowed a number from 0 to below 1"),
    (["algorithm.mu=1"], "algorithm.mu", "there is no such setting"),
    (["problem.partition.similarity=1.5"], "problem.partition.similarity", "got 1.5, allowed a number from 0 to 1"),
    (["problem.partition.similarity=-0.1"], "problem.partition.similarity", "got -0.1, allowed a number from 0 to 1"),
    (
        ["problem.partition.name=shards", "problem.partition.shards_per_client=0"],
        "problem.partition.shards_per_client",
        "got 0, allowed a whole number from 1",
    ),
    (
        ["participation.clients_per_round=0.7"],
        "participation.clients_per_round",
        "got 0.7, allowed a whole number from 1",
    ),
    (
        ["problem.partition.name=pathological"],
        "problem.partition.name",
        "got 'pathological', allowed 'iid', 'similarity'",
    ),
    (["problem.dataset=imagenet"], "problem.dataset", 'got "imagenet", allowed "fashion_mnist_mini"'),
    (["client_lr=0"], "client_lr", "got 0, allowed a number above 0"),
    (["client_lr=-0.1"], "client_lr", "got -0.1, allowed a number above 0"),
    (["client_lr=NaN"], "client_lr", "got NaN, allowed a number above 0"),
    (["server_lr=Infinity"], "server_lr", "got Infinity, allowed a number above 0"),
    (["client_lr=1e999"], "client_lr", "got Infinity, allowed a number above 0"),
    (["rounds=1.5"], "rounds", "got 1.5, allowed a whole number from 1"),
    (["rounds=true"], "rounds", "got true, allowed a whole number from 1"),
    (["rounds=many"], "rounds", 'got "many", allowed a whole number from 1'),
    (["rounds="], "rounds", 'got "", allowed a whole number from 1'),
    (["rounds=99999999999999999999"], "rounds", "got 99999999999999999999, allowed a whole number from 1"),
    (["local_steps=0"], "local_steps", "got 0, allowed a whole number from 1"),
    (["batch_size=0"], "batch_size", "got 0, allowed a whole number from 1"),
    (["seed=-1"], "seed", "got -1, allowed a whole number from 0"),
    (["eval_every=-1"], "eval_every", "got -1, allowed a whole number from 0"),
    (["device=tpu"], "device", 'got "tpu", allowed "auto" or "cpu"'),
    (["momentum=0.9"], "momentum", "there is no such setting"),
    (["rounds"], "rounds", "expected path=value"),
    (["rounds.a=1"], "rounds", "got {"),
    (["rounds=60", "rounds.a=1"], "rounds.a", "there is no such setting: rounds is a single value"),
    (["algorithm=fedavg"], "algorithm", 'got "fedavg"'),
    (
        [*QUADRATIC, "problem.curvature=null"],
        "problem.curvature",
        "is needed: curvature and linear term are given together",
    ),
    ([*QUADRATIC, "problem.linear=null", "num_clients=2"], "problem.linear", "is needed"),
    (
        [*QUADRATIC, "num_clients=2", "problem.curvature=[[],[]]", "problem.start=null"],
        "problem.curvature",
        "row 0 is empty: give one number a coordinate, at least one",
    ),
    (
        [*QUADRATIC, "num_clients=2", "problem.linear=[[1],[]]"],
        "problem.linear",
        "row 1 is empty: give one number a coordinate, at least one",
    ),
    (
        [*QUADRATIC, "num_clients=2", "problem.curvature=[[1,2],[1]]"],
        "problem.curvature",
        "row 1 has 1 number, row 0 of curvature has 2: give as many",
    ),
    (
        [*QUADRATIC, "num_clients=2", "problem.linear=[[1],[1,2]]"],
        "problem.linear",
        "row 1 has 2 numbers, row 0 of curvature has 1: give as many",
    ),
    ([*DRAWN, "problem.flat=2"], "problem.steep", "got 1, allowed from 2, the smallest curvature"),
    ([*DRAWN, "problem.flat=0"], "problem.flat", "got 0, allowed a number above 0"),
    ([*DRAWN, "problem.coordinates=1"], "problem.coordinates", "got 1, but curvatures from 0.1 to 1: these need 2"),
    ([*DRAWN, "problem.coordinates=0"], "problem.coordinates", "got 0, allowed a whole number from 1 to 10,000"),
    ([*DRAWN, "problem.start=[0,0]"], "problem.start", "got 2 numbers for 10 coordinates"),
    ([*DRAWN, *ALONE], "problem.curvature_dissimilarity", "got 0.5, allowed 0: a single client"),
    ([*DRAWN, *ALONE, "problem.curvature_dissimilarity=0"], "problem.gradient_dissimilarity", "got 1, allowed 0"),
    (
        [*DRAWN, "problem.curvature_dissimilarity=-1"],
        "problem.curvature_dissimilarity",
        "got -1, allowed a number from 0",
    ),
    ([*QUADRATIC, "num_clients=3"], "problem.curvature", "got 2 rows for 3 clients"),
    (
        [*QUADRATIC, "num_clients=2", "problem.start=[0,0]"],
        "problem.start",
        "got 2 numbers for 1 coordinate: give as many",
    ),
]


@pytest.mark.parametrize(
    ("settings", "field", "message"), BAD, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_a_bad_setting_is_refused_by_field_value_and_range(settings: list[str], field: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_settings(settings)
    assert field in dict(refused.value.problems)
    assert message in dict(refused.value.problems)[field]


@pytest.mark.parametrize("setting", ["problem.dataset=mnist", "problem.partition.name=iid"])
def test_a_group_that_the_base_gives_as_a_value_is_what_is_refused(setting: str) -> None:
    """The fault is in the base, not in the setting that would have gone into the group."""
    with pytest.raises(ConfigError) as refused:
        with_settings([setting], {"problem": "x"})
    assert refused.value.problems == [
        ("problem", 'got "x", expected a group of settings, as in problem.kind=classification')
    ]
    with pytest.raises(ConfigError) as refused:
        with_settings(["problem.partition.similarity=1"], {"problem": {"partition": 3}})
    assert refused.value.problems[0] == (
        "problem.partition",
        "got 3, expected a group of settings, as in problem.partition.name=similarity",
    )


def test_no_message_is_in_the_words_of_the_validation_library() -> None:
    """Every number and choice of every model, set to what it cannot be, is answered with what is allowed."""
    groups = {
        "algorithm.name": ALGORITHMS,
        "participation.pattern": PATTERNS,
        "problem.partition.name": PARTITIONS,
        "problem.kind": PROBLEMS,
    }
    tried = 0
    for tag, models in groups.items():
        prefix, own = tag.rsplit(".", 1)
        for choice, model in models.items():
            for name in set(model.model_fields) - {own, "partition"}:
                with pytest.raises(ConfigError) as refused:
                    with_settings([f"{tag}={choice}", f'{prefix}.{name}={{"a":1}}'])
                message = dict(refused.value.problems)[f"{prefix}.{name}"]
                lists = shown(model, name)["help"]
                assert "allowed" in message or lists in message
                tried += 1
    for name in set(SimulationConfig.model_fields) - {"algorithm", "participation", "problem", "probe"}:
        with pytest.raises(ConfigError, match=f"{name}: got .*, allowed"):
            SimulationConfig.read({name: {"a": 1}})
    for name in SimulationConfig.model_fields["probe"].annotation.model_fields:
        with pytest.raises(ConfigError, match=rf"probe\.{name}: got .*, allowed"):
            SimulationConfig.read({"probe": {name: {"a": 1}}})
    assert tried > 30


def test_label_clusters_need_labels() -> None:
    algorithm = [
        "algorithm.name=cluster_fedvarp",
        "algorithm.clusters=2",
        "num_clients=2",
        "participation.pattern=full",
    ]
    with pytest.raises(ConfigError, match="this problem has no labels"):
        with_settings([*QUADRATIC, *algorithm])
    with_settings([*QUADRATIC, *algorithm, "algorithm.clustering=random"])


def test_several_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        with_settings(["rounds=0", "client_lr=0", "seed=x"])
    assert set(dict(refused.value.problems)) == {"rounds", "client_lr", "seed"}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"rounds": 1e400}', "\x00"])
def test_text_that_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        SimulationConfig.read(text)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_valid_run_that_survives_json_and_the_command_line(preset: str) -> None:
    config = PRESETS[preset].build()
    assert SimulationConfig.read(json.dumps(config.to_dict())) == config
    assert with_settings(arguments(config.to_command())) == config


def arguments(command: str) -> list[str]:
    import shlex

    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "fedviz", "run"]
    assert words[4::2] == ["--set"] * (len(words[4:]) // 2)
    return words[5::2]


def test_the_command_line_of_any_change_gives_the_change_back() -> None:
    for settings in (
        ["rounds=60"], ["rounds=60", "probe_every=7"], ["seed=9223372036854775807"], ["eval_every=0", "probe_every=0"],
        ["algorithm.name=fedprox", "algorithm.mu=0"], ["problem.kind=quadratics"], ["algorithm.name=fedprox", "algorithm.mu=0.1"],
        ["problem.kind=quadratics", "problem.curvature_dissimilarity=0"], ["client_lr=1e-05"], ["problem.partition.name=iid"],
        ["participation.pattern=trace", "participation.cohorts=[[1,2],[]]", "participation.repeat=true"],
    ):  # fmt: skip
        config = with_settings(settings)
        assert with_settings(arguments(config.to_command())) == config


def test_a_command_line_leaves_out_what_follows_from_its_choices() -> None:
    shown = "--set algorithm.name=scaffold --set algorithm.warm_start=true"
    config = with_settings(["algorithm.name=scaffold", "algorithm.warm_start=true", "algorithm.option=II"])
    assert config.to_command() == f"python -m fedviz run {shown}"
    drawn = with_settings(["problem.kind=quadratics", "problem.steep=1", "problem.coordinates=7"])
    assert drawn.to_command() == "python -m fedviz run --set problem.kind=quadratics --set problem.coordinates=7"


def test_choosing_another_model_drops_the_parameters_of_the_presets_choice() -> None:
    """The cluster preset has clusters, which FedAvg does not know; what is set beside the choice still counts."""
    clusters, drift = PRESETS["clusters"].config, PRESETS["drift"].config
    assert with_settings(["algorithm.name=fedavg"], clusters).algorithm.name == "fedavg"
    assert with_settings(["algorithm.mu=2", "algorithm.name=fedprox"], clusters).algorithm.mu == 2
    assert with_settings(["algorithm.clusters=4"], clusters).algorithm.clusters == 4
    assert with_settings(["algorithm.name=cluster_fedvarp"], clusters).algorithm.clusters == 10
    assert with_settings(["algorithm.name=fedavg"], drift).problem == PRESETS["drift"].build().problem
    with pytest.raises(ConfigError, match=r"algorithm\.mu: there is no such setting; allowed here: name"):
        with_settings(["algorithm.name=fedavg", "algorithm.mu=2"], clusters)


def test_the_automatic_intervals_follow_the_rounds() -> None:
    """A hundredth and a twenty-fifth of the rounds, one at least."""
    assert [(c.eval_every, c.probe_every) for c in (with_settings([f"rounds={r}"]) for r in (10, 200, 2000))] == [
        (1, 1), (2, 8), (20, 80),
    ]  # fmt: skip


def every_parameter() -> list[tuple[Any, str]]:
    models = [SimulationConfig, *ALGORITHMS.values(), *PATTERNS.values(), *PARTITIONS.values(), *PROBLEMS.values()]
    return [(model, name) for model in models for name in model.model_fields if name not in ("name", "pattern", "kind")]


@pytest.mark.parametrize(("model", "name"), every_parameter(), ids=lambda x: getattr(x, "__name__", x))
def test_every_parameter_says_what_it_is(model: Any, name: str) -> None:
    about = shown(model, name)
    assert about["label"][0].isupper()
    assert about["help"].endswith((".", "]", "]."))


def test_mifa_is_refused_where_participants_are_not_averaged() -> None:
    """Its direction is the mean of everybody's last update; dividing by the chance to come would count newcomers twice."""
    settings = ["algorithm.name=mifa", "participation.pattern=bernoulli", "participation.weighting=inverse"]
    with pytest.raises(ConfigError) as caught:
        with_settings(settings)
    assert caught.value.problems[0][0] == "participation.weighting"
    assert "got inverse, allowed average" in caught.value.problems[0][1]
    assert with_settings(settings[:2]).algorithm.name == "mifa"
