"""What the page says about a setting is true of that setting: sentences are looked up by what must and must not be claimed."""

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedviz import figures
from fedviz.algorithms import ALGORITHMS
from fedviz.config import SimulationConfig, fill_in
from fedviz.papers.presets import PRESETS
from fedviz.ui import settings, words


def config(algorithm="fedavg", pattern=None, **more):
    values = {"algorithm": algorithm if isinstance(algorithm, dict) else {"name": algorithm}, **more}
    if pattern:
        values["participation"] = pattern if isinstance(pattern, dict) else {"pattern": pattern}
    return SimulationConfig.read(fill_in(values))


def quadratics(noise=0.0, alike=False, **more):
    linear = [[1.0]] * 4 if alike else [[1.0], [-1.0], [2.0], [-2.0]]
    problem = {"kind": "quadratics", "curvature": [[1.0]] * 4, "linear": linear, "start": [1.0], "noise": noise}
    pattern = more.pop("pattern", {"pattern": "uniform", "clients_per_round": 2})
    return config(problem=problem, num_clients=4, pattern=pattern, **more)


def test_every_algorithm_says_what_to_watch():
    assert all(model.watch for model in ALGORITHMS.values())
    assert (
        len({words.watch(config(name)) for name in ALGORITHMS}) >= len(ALGORITHMS) - 2
    )  # FedAdam says what FedYogi says


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_not_contradicted(preset):
    said = words.watch(PRESETS[preset].build())
    must = {
        "random_clusters": "disagree", "cyclic": "which group is on duty", "similar": "look alike", "drift": "drift", "clusters": "sooner",
    }  # fmt: skip
    assert must.get(preset, "") in said


def test_random_clusters_are_not_promised_to_fall():
    by_chance = words.watch(config({"name": "cluster_fedvarp", "clusters": 10, "clustering": "random"}))
    assert "may be larger" in by_chance
    assert "sooner" not in by_chance
    one = words.watch(config({"name": "cluster_fedvarp", "clusters": 1, "clustering": "label"}))
    assert "FedAvg" in one
    assert "nothing is remembered" in one
    all_of_them = words.watch(config({"name": "cluster_fedvarp", "clusters": 100, "clustering": "label"}))
    assert "once all clients have been seen" in all_of_them


def test_alike_clients_leave_nothing_to_remember():
    for alike in (
        config("fedvarp", problem={"partition": {"name": "iid"}}),
        config("fedvarp", problem={"partition": {"name": "similarity", "similarity": 1.0}}),
        quadratics(alike=True),
    ):
        assert "look alike" in words.watch(alike, config("scaffold"))
        assert "SCAFFOLD should do about as well" in words.watch(alike, config("scaffold"))
    unlike_images = config("fedvarp", problem={"partition": {"name": "iid"}, "feature_skew": "rotation"})
    assert "look alike" not in words.watch(unlike_images)
    assert "look alike" not in words.watch(quadratics())


def test_full_participation_speaks_of_what_is_left():
    assert "correction of every local step" in words.watch(config("scaffold", "full"))
    assert "gradient noise and drift" in words.watch(config("fedavg", "full"))
    assert "drift alone" in words.watch(quadratics(pattern="full"))
    assert "gradient noise and drift" in words.watch(quadratics(noise=1.0, pattern="full"))
    assert "plain gradient descent" in words.watch(config("sgd", "full"))
    assert "all error is gradient noise" in words.watch(config("fedavg", "full", local_steps=1))
    loose = {"pattern": "stochastic_cyclic", "clients_per_round": 100}
    assert "Everybody" not in words.watch(config("fedavg", loose))  # as many as are there, never more than a few


def test_exact_gradients_let_a_memory_go_down_to_zero():
    assert "down to zero" in words.watch(quadratics(algorithm="fedvarp"))
    assert "down to zero" not in words.watch(quadratics(noise=1.0, algorithm="fedvarp"))
    assert "noise keeps it above zero" in words.watch(config("fedvarp"))
    assert "every 20 rounds" in words.watch(config("fedvarp"))  # 5 of 100


def test_turns_speak_of_the_group_on_duty():
    assert "does not fade" in words.watch(config("fedavg", "cyclic"))
    assert "fade once all groups have had a turn" in words.watch(config("fedvarp", "cyclic"))
    assert "20 rounds" in words.watch(config("amplified_fedavg", "cyclic"))  # five groups, four rounds each
    assert "soften" in words.watch(config("fedavg", "stochastic_cyclic"))


def test_who_is_available_is_named_where_nobody_is_drawn():
    trace = {"pattern": "trace", "cohorts": [[0, 3], [1]], "repeat": True}
    for pattern in ("markov", trace):
        assert "that part is zero" in words.watch(config("fedavg", pattern))
        assert "nothing is remembered" in words.watch(config("fedavg", pattern))
        assert "fades" in words.watch(config("fedvarp", pattern))
    assert "shrinks to zero" in words.watch(config("fedavg", "regularized"))


def test_the_formula_has_a_bias_where_not_all_can_be_drawn():
    for plain in (config(), config(pattern="bernoulli"), config(pattern="full"), config("mifa", "full")):
        assert "interaction" not in words.error_formula(plain)
        assert "v̄_A" not in words.error_symbols(plain)
    for pattern, bias in (
        ("cyclic", "which group was on duty"), ("markov", "who was available"), ("regularized", "who was available"),
        ({"pattern": "bernoulli", "weighting": "inverse"}, "who was available"),
    ):  # fmt: skip
        formula = words.error_formula(config(pattern=pattern))
        assert rf"\text{{{bias}}}" in formula
        assert "interaction" in formula
        assert "v̄_A" in words.error_symbols(config(pattern=pattern))
    assert "old memories" in words.error_formula(config("mifa"))


def test_an_interaction_is_spoken_of_only_where_the_formula_has_one():
    assert words.error_caption(config(pattern="full")) == "The error of that step, part by part."
    assert words.error_caption(config()) == "The error of that step, part by part."
    assert words.error_caption(config(pattern="cyclic")) == (
        "The error of that step, part by part; the interaction is what bias and drift share, and may be negative."
    )


def test_the_setting_of_quadratics_is_the_one_that_was_chosen():
    """Those of this config are given; those of the default are drawn."""
    given = words.looking_at(quadratics(), None)[0]
    assert "Each client has a small parabola, given in numbers." in given
    assert "drawn" not in given
    drawn = words.looking_at(config(problem={"kind": "quadratics"}), None)[0]
    assert "drawn so that they differ as much as is asked; the best point for all is known exactly." in drawn
    assert "given" not in drawn


def test_symbols_are_those_of_the_formulas():
    assert "y: what the server remembers" in words.error_symbols(config("fedvarp"))
    assert "y:" not in words.error_symbols(config("fedavg"))
    assert "c_i, c:" in words.error_symbols(config("scaffold"))
    assert "G_i, G:" in words.error_symbols(config("amplified_scaffold"))
    assert "ḡ_i:" in words.error_symbols(config("scaffold"))
    assert "δ: the participants' mean move; m: δ gathered over past rounds; s:" in words.error_symbols(
        config("fedadam")
    )
    assert "g_i(u):" in words.error_symbols(config("fedprox"))
    for hidden in ("ḡ_i:", "δ:", "m:", "s:", "g_i(u):", "q:"):
        assert hidden not in words.error_symbols(config("fedvarp"))
    assert "full-batch" in words.error_symbols(config(probe={"mode": "full"}))


def test_every_chart_is_explained():
    charts = {"loss", "accuracy", "decomposition", "participation", "heterogeneity", "windows"}
    assert words.CHART_HELP.keys() == charts
    explained = words.CHART_HELP["decomposition"]
    assert all(word in explained for word in ("Log", "linear", "Absolute", "relative", "As measured", "as in theory"))


def test_settings_are_written_as_they_were_set():
    assert words.title(config("fedvarp")) == "FedVARP · 5 of 100 clients · similarity 5\u00a0%"
    assert words.live_value("client_lr", config()) == "η_c·τ = 0.3"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("η_c, η_s", r"$\eta_{c}$, $\eta_{s}$"),
        ("p_sample = 5", r"$p_{\mathrm{sample}}$ = 5"),
        ("q_r^i: ḡ_i of Δ_i", r"$q_{r}^{i}$: $\bar g_{i}$ of $\Delta_{i}$"),
        ("majority_label or max_a_b", r"majority\_label or max\_a\_b"),
        ("$5 for [w]", r"\$5 for \[w\]"),
    ],
)
def test_symbols_with_an_index_become_formulas_and_all_else_stays_text(text, shown):
    assert words.typeset(text) == shown


def test_nothing_said_of_a_problem_without_data_speaks_of_minibatches():
    for method in ALGORITHMS:
        clusters = {"clusters": 2, "clustering": "random"} if method == "cluster_fedvarp" else {}
        setting = quadratics(noise=1.0, pattern="full", algorithm={"name": method, **clusters})
        said = [*words.looking_at(setting, None), words.error_formula(setting), words.error_symbols(setting)]
        assert not [sentence for sentence in said if "minibatch" in sentence]
    assert not [part.words for part in figures.style.PARTS.values() if "minibatch" in part.words]
    draft = settings.default_draft() | settings.to_draft(quadratics(noise=1.0))
    helps = {each.path: each.about["help"] for each in settings.chosen(draft)}
    assert not [path for path, text in helps.items() if "minibatch" in text]


def test_no_line_ends_between_a_number_and_percent():
    """No text that the page or a chart writes has a common space there; docstrings may."""
    found = []
    for file in (*Path(words.__file__).parent.glob("*.py"), *Path(figures.__file__).parent.glob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
        docstrings = [node.value for node in nodes if isinstance(node, ast.Expr)]
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
        found += [(file.name, text) for text in texts if isinstance(text, str) and re.search(r" %(?!\w)", text)]
    assert found == []
    assert words.percent(0.25) == "25.0\u00a0%"


def test_a_trace_in_which_nobody_takes_part_can_be_spoken_of():
    """An empty cohort is a legal round, and so is a trace of nothing else: no sentence may divide by its size."""
    values = {"participation": {"pattern": "trace", "cohorts": [[]], "repeat": True}}
    for algorithm in ALGORITHMS:
        config = SimulationConfig.read(values | {"algorithm": {"name": algorithm}})
        assert len(words.looking_at(config, None)) == 3
        assert words.title(config)
        assert words.live_value("rounds", config)


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("full", ["p_sample = 100\u00a0%", "ρ² = 0.01,", "No round is empty."]),
        (
            {"pattern": "uniform", "clients_per_round": 20},
            ["In a round", "p_sample = 20\u00a0%", "ρ² = 0.05,", "No round is empty."],
        ),
        (
            {"pattern": "regularized", "clients_per_round": 4},
            ["In 25 rounds (the window P)", "p_sample = 100\u00a0%", "ρ² = 0.25,"],
        ),
        # 5 of 20 on duty, in each of 4 rounds: 1 - (3/4)^4
        ("cyclic", ["In 20 rounds (the window P)", "p_sample = 68.4\u00a0%", "ρ² = 0.2,", "No round is empty."]),
        # (1 - 0.8)^20 (1 - 0.1)^80 = 1.0e-14 · 2.2e-4
        (
            "stochastic_cyclic",
            ["starts again after 20 rounds (the window P)", "empty with a chance of 2.29×10⁻¹⁶\u00a0%"],
        ),
        (
            {"pattern": "bernoulli", "chance": 0.05},
            ["In a round", "p_sample = 5\u00a0%", "empty with a chance of 0.592\u00a0%"],
        ),  # 0.95^100
        (
            {"pattern": "markov", "mean_on": 5.0, "mean_off": 95.0},
            ["p_sample = 5\u00a0%", "empty with a chance of 0.592\u00a0%"],
        ),
        (
            {"pattern": "trace", "cohorts": [[0], [], [1], [2]], "repeat": True},
            ["starts again after 4 rounds (the window P)", "Nobody takes part in 1 of the 4 rounds that are given."],
        ),
        (
            {"pattern": "trace", "cohorts": [[0]] * 200},
            ["The 200 rounds that are given do not start again.", "No round is empty."],
        ),
        (  # a million rounds, all but the last of them empty: given, not by chance
            {"pattern": "trace", "cohorts": [[]] * 999_999 + [[1]]},
            ["Nobody takes part in 999,999 of the 1,000,000 rounds that are given."],
        ),
        # 1 - 1e-7 to the hundredth power is 0.99999
        (
            {"pattern": "bernoulli", "chance": 1e-7},
            ["p_sample = 1×10⁻⁵\u00a0%", "empty with a chance of over 99.9\u00a0%."],
        ),
    ],
    ids=lambda x: x["pattern"] if isinstance(x, dict) else x if isinstance(x, str) else "",
)
def test_what_theory_asks_of_a_pattern_is_said_with_its_numbers(pattern, parts):
    said = words.turns(config(pattern=pattern))
    for part in parts:
        assert part in said, said
    assert ("empty with" in said) == any("empty with" in part for part in parts)
    assert ("starts again" in said) == any("starts again" in part for part in parts)
    assert ("ρ²" in said) == any("ρ²" in part for part in parts)
    assert ("p_sample" in said) == any("p_sample" in part for part in parts)


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [  # softmax regression on 28 x 28 images with 10 labels: d = 785 · 10, in numbers of 4 bytes; N = 100
        (
            "fedavg",
            "Remembers nothing from round to round. In a round each participant receives d and sends d; d = 7,850.",
        ),
        (
            "scaffold",
            "Remembers (N + 1)·d = 792,850 numbers (3.17 MB). In a round each participant receives 2d and sends 2d; d = 7,850.",
        ),
        ("cluster_fedvarp", "Remembers (K + 1)·d = 86,350 numbers (345 kB)."),  # K = 10
        ("fedadam", "Remembers 2d = 15,700 numbers (62.8 kB)."),
    ],
    ids=lambda x: x if " " not in x else "",
)
def test_what_a_method_remembers_and_sends_is_said_as_a_formula_and_in_numbers(algorithm, said):
    assert words.method_costs(config(algorithm)).startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        "# a",
        "<script>alert(1)</script>",
        "[l](http://x.y)",
        "www.x.y",
        "a@b.cd",
        ":smile: :red[x] :material/home:",
        "$x$ `y` *z* ~~s~~ &lt;",
    ],
)
def test_what_others_write_is_shown_as_it_is(text):
    shown = words.plain(text)
    assert shown.replace("\\", "").replace("\u2060", "") == text
    marks = "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~"
    assert all(sign not in marks or before == "\\" for before, sign in zip(" " + shown, shown, strict=False))
    assert "://" not in shown
    assert "www" not in shown or "www\\." not in shown


def test_lines_and_signs_that_cannot_be_seen_become_spaces():
    assert words.plain("a\n\n b\x00\u202ec") == "a b c"


def test_a_moment_is_told_by_the_visitors_clock_else_by_utc_and_says_so():
    noon = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    assert words.when(noon, "Asia/Kolkata") == "01 Jul 2026, 17:30"
    for unknown in (None, "", "Mars/Olympus", "../../etc/passwd", "\x00"):
        assert words.when(noon, unknown) == "01 Jul 2026, 12:00 UTC"


@pytest.mark.parametrize(
    ("state", "message", "said"),
    [
        ("stopped", "Stopped after round 937.", "Stopped after round 937"),
        (
            "interrupted",
            "Interrupted after round 3: the server ended. Resume continues it.",
            "Interrupted after round 3",
        ),
        ("diverged", "Diverged in round 3. The steps are too long: 1.5e+03.", "Diverged in round 3"),
        ("finished", "All 40 rounds are done.", ""),
        ("running", "Computing.", ""),
    ],
)
def test_the_list_says_how_far_a_run_got_that_ended_early(state, message, said):
    assert words.standing(state, message) == said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see http://x.y/z", "see http:\u2060//x.y/z"),
        ("WWW.x.y or a@b.c", "WWW\u2060.x.y or a@\u2060b.c"),
        (":smile: :100: :material/home:", ":\u2060smile: :\u2060100: :\u2060material/home:"),
        ("At 11:56, round 1,000: the loss 0.5.", "At 11:56, round 1,000: the loss 0.5."),
    ],
)
def test_escaped_text_holds_no_link_and_no_icon(text, shown):
    assert words.escape(text) == shown


@pytest.mark.parametrize(
    ("rounds", "said"), [(1, "for 1 round, "), (2, "for 2 rounds, "), (2_000, "for 2,000 rounds, ")]
)
def test_what_will_happen_counts_rounds(rounds, said):
    assert said in words.will_happen(SimulationConfig(rounds=rounds), None)
