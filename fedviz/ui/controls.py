"""The form in the sidebar, made from the parameter models: one function per kind of field.

The draft (`fedviz.ui.settings`) in the visitor's session is the truth. A widget shows its value and writes back in a callback, so that
a slider and a typed number can stand for the same value, and hidden controls keep theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import streamlit as st

from fedviz.algorithms import ALGORITHMS
from fedviz.config import ConfigError, SimulationConfig
from fedviz.papers.presets import PRESETS
from fedviz.parameters import in_words
from fedviz.participation.trace import LARGEST_FILE
from fedviz.runs import admission
from fedviz.ui import preview, settings, words
from fedviz.ui.manager import run_manager
from fedviz.ui.session import uninterrupted
from fedviz.ui.settings import LARGEST_TYPED, TOP, Draft, Setting
from fedviz.ui.uploads import taken_up

NO_REFERENCE = "none"
OWN = "own"
REFERENCE = "compare_with"  # beside the config in the draft: the algorithm of the reference run
LIMITS = "limits"  # what is wrong when a run is more than this server, or its memory, allows
SEGMENTS_WIDTH = 36  # characters that fit into one row of segments, with four for the edges of each
DIFFERENCES = ("quantity_skew", "feature_skew", "feature_strength", "weights")
SELECT_WIDTH = 26  # characters that fit into a select box
LONGEST_WRITTEN = 20_000  # characters of a list that a visitor may want to see and edit


@dataclass
class Form:
    """What the visitor has set: a config that can be run, or what is wrong and where."""

    config: SimulationConfig | None
    reference: SimulationConfig | None
    problems: dict[str, str] = field(default_factory=dict)  # path -> message

    @property
    def reason(self) -> str:
        """Why Run is disabled, "" when it is not."""
        if not self.problems:
            return ""
        (path, message), *others = self.problems.items()
        labels = {setting.path: setting.about["label"] for setting in settings.chosen(draft())}
        labels |= {REFERENCE: "Compare with", LIMITS: "Limits"}
        return f"{labels.get(path, path)}: {message}" + (f" (and {len(others)} more)" if others else "")


def draft() -> Draft:
    """The draft of this session."""
    if "draft" not in st.session_state:
        st.session_state.draft = settings.default_draft() | {REFERENCE: "fedavg"}
    return st.session_state.draft


def load(config: SimulationConfig, reference: SimulationConfig | None) -> None:
    """Set the controls to a config."""
    draft().update(settings.to_draft(config) | {REFERENCE: reference.algorithm.name if reference else NO_REFERENCE})


def read() -> Form:
    """The form as it stands."""
    config, problems = settings.read(draft())
    if config is None:
        return Form(None, None, problems)
    wanted = draft()[REFERENCE]
    reference, why = settings.reference_for(config, None if wanted == NO_REFERENCE else wanted)
    if why:
        return Form(config, None, {REFERENCE: why})
    try:
        admission.check(config, reference, limits=run_manager().limits)
    except admission.Refused as refusal:
        return Form(config, reference, {LIMITS: str(refusal)})
    except ConfigError as error:  # the data cannot be dealt as asked
        return Form(config, reference, dict(error.problems))
    return Form(config, reference)


def show(form: Form) -> None:
    """The whole form, in the order in which one thinks: method, data, who takes part, clusters, training, advanced."""
    _presets(form)
    clusters = [s for s in TOP["algorithm"].inside(draft()["algorithm"]) if s.name in ("clusters", "clustering")]
    with st.container(gap="small"):
        _group(form, TOP["algorithm"], leave_out=clusters)
        if form.config:
            st.caption(words.method_costs(form.config))
        _compare_with(form)
    _data(form)
    with st.container(gap="small"):
        _group(form, TOP["participation"])
        preview.participation(form.config)
        if form.config:
            st.caption(words.typeset(words.turns(form.config)))
    for setting in clusters:
        _control(form, setting)
    with st.expander("Training", icon=":material/tune:", key="training"):
        for name in ("rounds", "local_steps", "client_lr", "server_lr", "batch_size"):
            _control(form, TOP[name])
        if form.config and (note := preview.small_clients(form.config)):
            st.caption(f":material/info: {note}")
    with st.expander("Problem and data set", icon=":material/database:", key="problem_and_data"):
        _group(form, TOP["problem"], leave_out=_heterogeneity())
    with st.expander("Advanced", icon=":material/settings:", key="advanced"):
        for name in ("seed", "eval_every", "probe_every"):
            _control(form, TOP[name])
        for setting in TOP["probe"].parts:
            _control(form, setting)
        for name in ("device", "backend"):
            _control(form, TOP[name])
        st.button("Back to the defaults", icon=":material/restart_alt:", on_click=reset, type="tertiary")


def _presets(form: Form) -> None:
    """Ready-made settings; says "your own" as soon as anything differs."""
    now = next((name for name, preset in _ready_made().items() if preset == (form.config, form.reference)), OWN)
    options = [*PRESETS, *([OWN] if now == OWN else [])]
    st.selectbox(
        "Start from",
        options,
        index=options.index(_put("w.preset", now)),
        key="w.preset",
        format_func=lambda name: PRESETS[name].title if name in PRESETS else "Your own settings",
        on_change=_start_from,
        help="Ready-made settings, each of which shows one thing. Choosing one sets all controls below; Run starts it.",
    )
    if now in PRESETS:
        st.caption(PRESETS[now].summary)


@uninterrupted
def _start_from() -> None:
    ready_made = _ready_made().get(st.session_state["w.preset"])
    if ready_made:
        load(*ready_made)


@st.cache_resource(show_spinner=False)
def _ready_made() -> dict[str, tuple[SimulationConfig, SimulationConfig | None]]:
    configs = {name: preset.build() for name, preset in PRESETS.items()}
    return {
        name: (config, settings.reference_for(config, PRESETS[name].reference)[0]) for name, config in configs.items()
    }


def _data(form: Form) -> None:
    """How the data is spread, and over how many clients."""
    with st.container(gap="small"):
        for setting in _heterogeneity():
            if setting.kind == "group":
                _group(form, setting)
        _control(form, TOP["num_clients"])
        preview.labels(form.config)
        if further := [setting for setting in _heterogeneity() if setting.kind != "group"]:
            with st.expander("More differences between clients", icon=":material/diversity_3:", key="differences"):
                for setting in further:
                    _control(form, setting)


def _heterogeneity() -> list[Setting]:
    """What makes clients differ from one another: how the data is dealt, and the rest."""
    inside = TOP["problem"].inside(draft()["problem"])
    return [s for s in inside if s.kind == "group" or s.name in DIFFERENCES]


def _compare_with(form: Form) -> None:
    """Which algorithm runs beside it under the same chance."""
    own = draft()["algorithm"]
    options = [NO_REFERENCE, *(name for name in ALGORITHMS if name != own)]
    key, value = "w." + REFERENCE, draft()[REFERENCE] if draft()[REFERENCE] != own else NO_REFERENCE
    st.selectbox(
        "Compare with",
        options,
        index=options.index(_put(key, value)),
        key=key,
        format_func=lambda name: ALGORITHMS[name].title if name in ALGORITHMS else "nothing",
        on_change=_pick,
        args=(key, REFERENCE),
        help="A second run with the same data, clients and random draws, drawn dotted. It uses its own method's default parameters.",
    )
    _complain(form, REFERENCE)


def _group(form: Form, setting: Setting, leave_out: list[Setting] | None = None) -> None:
    """A choice between models, and the parameters of the chosen one."""
    titles = {tag: model.title for tag, model in setting.candidates.items()}  # type: ignore[attr-defined]
    summaries = "\n".join(f"- **{model.title}**: {model.summary}" for model in setting.candidates.values())  # type: ignore[attr-defined]
    _choose(setting, titles, on_change=_switch, help=f"{_tooltip(form, setting)}\n\n{summaries}")
    _complain(form, f"{setting.path}.{setting.tag}")
    inside = [s for s in setting.inside(draft()[setting.key]) if s not in (leave_out or [])]
    for inner in inside:
        (_group if inner.kind == "group" else _control)(form, inner)
    example = settings.EXAMPLES.get(f"{setting.key}.{draft()[setting.key]}")
    if example:
        st.button(
            f"Fill in an example for {draft()['num_clients']:,} clients",
            key=f"example.{setting.key}",
            icon=":material/edit_note:",
            on_click=_fill_in,
            args=(example,),
            type="tertiary",
        )


@uninterrupted
def _fill_in(example: Callable[[Draft], Draft]) -> None:
    into = draft()
    into.update(example(into))


def _control(form: Form, setting: Setting) -> None:
    """The widget of one field, and beneath it what is wrong with it."""
    if not settings.counts(setting, draft()):
        return
    with st.container(gap=None, key=f"control-{setting.key}") if _has_index(setting) else nullcontext():
        if _has_index(setting):
            st.markdown(f":small[{words.typeset(_label(setting))}]", help=_tooltip(form, setting))
        {"choice": _choice, "switch": _switch_control, "whole": _number, "number": _number, "text": _text}[
            setting.kind
        ](form, setting)
    _complain(form, setting.path)


def _choice(form: Form, setting: Setting) -> None:
    labels = dict(setting.about["choices"])
    value = draft()[setting.key]
    labels.setdefault(value, "as given")  # explicit clusters, say, that came with a link
    if len(labels) > 1:
        _choose(setting, labels, on_change=_pick, help=_tooltip(form, setting))
    else:
        st.text_input(
            _label(setting),
            labels[value],
            disabled=True,
            key=f"w.{setting.key}",
            help=_tooltip(form, setting),
            label_visibility=_visibility(setting),
        )


def _choose(setting: Setting, labels: dict[str, str], *, on_change: Callable[[str, str], None], help: str) -> None:
    """A segmented control for two to four short choices, a select box beyond."""
    key = f"w.{setting.key}"
    short = len(labels) <= 4 and sum(len(label) + 4 for label in labels.values()) <= SEGMENTS_WIDTH
    arguments: dict[str, Any] = {
        "key": key, "format_func": lambda tag: labels[tag], "on_change": on_change, "args": (key, setting.key), "help": help,
        "label_visibility": _visibility(setting),
    }  # fmt: skip
    value, options = _put(key, draft()[setting.key]), list(labels)
    known = value if value in options else options[0]  # a browser may send what was not offered
    if short:
        st.segmented_control(_label(setting), options, default=known, required=True, width="stretch", **arguments)
    else:
        st.selectbox(_label(setting), options, index=options.index(known), **arguments)
        chosen = labels.get(value, "")
        if len(chosen) > SELECT_WIDTH:
            st.caption(chosen)


def _switch_control(form: Form, setting: Setting) -> None:
    key = f"w.{setting.key}"
    value = bool(_put(key, draft()[setting.key]))
    st.toggle(_label(setting), value, key=key, help=_tooltip(form, setting), on_change=_write, args=(key, setting.key))


def _number(form: Form, setting: Setting) -> None:
    """A typed number, and a slider before it where there is a range worth sliding through."""
    span = _span(setting)
    if span is None:
        _typed(form, setting, label_visibility=_visibility(setting))
        return
    with st.container(horizontal=True, vertical_alignment="bottom", wrap=False, gap="small"):
        _slider(form, setting, span)
        _typed(form, setting, label_visibility="collapsed", width=88)


def _typed(form: Form, setting: Setting, **look: Any) -> None:
    key, value, whole = f"w.{setting.key}", draft()[setting.key], setting.kind == "whole"
    common: dict[str, Any] = {
        "key": key,
        "help": _tooltip(form, setting),
        "on_change": _write_whole if whole else _write,
        "args": (key, setting.key),
        **look,
    }
    if isinstance(value, str) or (isinstance(value, int) and abs(value) > LARGEST_TYPED):
        key = f"{key}.text"
        text = common | {"key": key, "on_change": _write, "args": (key, setting.key)}
        st.text_input(_label(setting), _put(key, str(value)), **text)
        return
    if not isinstance(value, int | float):
        value = None  # emptied by the visitor: refused below the control, unless it may be
    # Whole numbers are floats to the browser as well: of an integer it would take 1e3 and 1.5 for 1, and keep the old value where it
    # is too large for it. So what is wrong arrives here, and is refused below the control.
    _put(key, value if value is None else float(value))
    # A number that has a default cannot be emptied.
    default = None if setting.optional or value is None else float(value)
    bare = look["label_visibility"] == "collapsed"  # beside a visible label Streamlit would write "(required)"
    st.number_input(
        _label(setting), value=default, required=bare, step=1.0 if whole else None, format="%g",
        placeholder="auto" if setting.optional else "", **common,
    )  # fmt: skip


def _slider(form: Form, setting: Setting, span: tuple[float, float]) -> None:
    key, value, whole = f"w.{setting.key}.slider", draft()[setting.key], setting.kind == "whole"
    low, high = span
    kinds = int if whole else int | float
    if not isinstance(value, kinds) or not abs(value) <= LARGEST_TYPED or (value <= 0 and setting.about["log"]):
        value = low
    # A typed value may lie beyond what is worth sliding through, but where it is refused nothing is to be slid to.
    least, most = setting.about["minimum"], setting.about["maximum"]
    value = max(value, low if least is None else least)
    value = min(value, high if most is None else most)
    low, high = min(low, value), max(high, value)
    arguments: dict[str, Any] = {
        "key": key,
        "help": _tooltip(form, setting),
        "on_change": _write,
        "args": (key, setting.key),
        "label_visibility": _visibility(setting),
    }
    if setting.about["log"]:
        steps = sorted({*log_steps(low, high, whole=whole), value})
        st.select_slider(
            _label(setting), steps, _put(key, value), format_func=lambda number: f"{number:g}", **arguments
        )
    elif whole:
        st.slider(_label(setting), int(low), int(high), _put(key, int(value)), **arguments)
    else:
        value, step = _put(key, float(value)), (high - low) / 100
        st.slider(_label(setting), float(low), float(high), value, step=step, format="%g", **arguments)


def _text(form: Form, setting: Setting) -> None:
    """A list, written by hand; or from a file, where lists come as files."""
    key, value = f"w.{setting.key}", draft()[setting.key]
    if setting.path in settings.TABLES:
        _upload(setting)
    if isinstance(value, settings.Unreadable):
        value = ""
    if len(value) > LONGEST_WRITTEN:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(f"{setting.about['label']}: {len(value):,} characters, too long to show here.")
            st.button(
                "Empty it", key=f"{key}.empty", on_click=draft().update, args=({setting.key: ""},), type="tertiary"
            )
    else:
        st.text_area(
            _label(setting), _put(key, value), key=key, help=_tooltip(form, setting), height=90, on_change=_write,
            args=(key, setting.key), label_visibility=_visibility(setting),
        )  # fmt: skip
    if form.config and (found := words.found(setting.path, form.config)):
        st.caption(found)


def _upload(setting: Setting) -> None:
    """Takes up a file and is empty again: what was read stands in the control below it, or else what is wrong with it."""
    count = f"{setting.key}.files"
    key = f"w.{setting.key}.file.{st.session_state.setdefault(count, 0)}"

    @uninterrupted
    def take() -> None:
        file, into, seen = st.session_state[key], draft(), st.session_state[count]
        if file is None:
            return
        st.session_state[count] = seen + 1
        into[setting.key] = settings.from_file(setting, file.name, taken_up(file))

    megabytes = LARGEST_FILE // 1_000_000
    st.file_uploader(
        f"{setting.about['label']} from a CSV file", type="csv", key=key, on_change=take, max_upload_size=megabytes
    )


def log_steps(low: float, high: float, *, whole: bool) -> list[float]:
    """1, 2, 5, 10, 20, 50, ... between low and high, both ends included; whole numbers have 3 and 7 as well."""
    mantissas = (1, 2, 3, 5, 7) if whole else (1, 2, 5)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    inner = (float(f"{m}e{power}") for power in range(first, last + 1) for m in mantissas)
    steps = sorted({low, high, *(x for x in inner if low < x < high)})
    return [int(x) for x in steps] if whole else [float(x) for x in steps]


def _span(setting: Setting) -> tuple[float, float] | None:
    """The range of a field's slider; None where typing is better."""
    clients = draft()["num_clients"]
    clients = clients if isinstance(clients, int) and 2 <= clients <= 100_000 else 2
    if setting.name in ("clients_per_round", "clusters"):
        return 1, min(clients, 250) if setting.name == "clusters" else min(clients, 100)
    about = setting.about
    if about["suggested"]:
        return about["suggested"]
    bounded = about["minimum"] is not None and about["maximum"] is not None and about["maximum"] <= 1
    return (about["minimum"], about["maximum"]) if bounded else None


def _label(setting: Setting) -> str:
    """The name of a control, as it is read out."""
    symbol = setting.about["symbol"]
    return f"{setting.about['label']} ({symbol})" if symbol else setting.about["label"]


def _has_index(setting: Setting) -> bool:
    """Whether its symbol has to be typeset: then what is seen stands above the control, for its name must be plain text."""
    return "_" in setting.about["symbol"]


def _visibility(setting: Setting) -> Literal["visible", "collapsed"]:
    return "collapsed" if _has_index(setting) else "visible"


def _tooltip(form: Form, setting: Setting) -> str:
    """The help, what is allowed, and what the present values come to."""
    about = setting.about
    lines = [about["help"]]
    if about["minimum"] is not None and about["maximum"] is not None:
        lines.append(
            f"Allowed: {'above ' if about['above'] else ''}{in_words(about['minimum'])} to {in_words(about['maximum'])}."
        )
    now = words.typeset(words.live_value(setting.path, form.config)) if form.config else ""
    return "\n\n".join([*lines, f"**{now}**"] if now else lines)


def _complain(form: Form, path: str) -> None:
    message = form.problems.get(path)
    if message:
        st.markdown(f":red[:small[:material/error: {words.escape(message[0].upper() + message[1:])}]]")


def _put(key: str, value: Any) -> Any:
    """Show `value` in the widget `key`, and give it back to be its default as well: a browser is told once what is put into a widget,
    and one that is still loading when the page is drawn again has only the default to go by.

    Left alone where it shows that already, so that fast typing is never overwritten.
    """
    if key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value
    return value


@uninterrupted
def _write(key: str, setting: str) -> None:
    """A widget has changed: into the draft with it."""
    draft()[setting] = st.session_state[key]


@uninterrupted
def _write_whole(key: str, setting: str) -> None:
    """The same for a whole number, which the browser sends as a float. One that it cannot tell from its neighbours stays a float."""
    into, value = draft(), st.session_state[key]
    exact = isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_TYPED
    into[setting] = int(value) if exact else value


@uninterrupted
def _pick(key: str, setting: str) -> None:
    """The same for a choice, which a browser may also have emptied: then it stays as it was."""
    if st.session_state[key] is not None:
        _write(key, setting)


@uninterrupted
def _switch(key: str, group: str) -> None:
    """Another candidate is chosen: what both have (clients per round, say) is taken along, lists start with an example."""
    into, after = draft(), st.session_state[key]
    if after is None:
        return
    before, into[group] = into[group], after
    old = {s.name: s.key for s in _setting(group).inside(before)}
    for setting in _setting(group).inside(after):
        if setting.name in old:
            into[setting.key] = into[old[setting.name]]
    into.update(settings.NEEDS.get(f"{group}.{after}", {}))
    example = settings.EXAMPLES.get(f"{group}.{after}")
    values = example(into) if example else {}
    if any(into[name] in ("", None) for name in values):  # a list is still to be written: the example as a whole
        into.update(values)


def _setting(key: str) -> Setting:
    return next(setting for setting in settings.chosen(draft()) if setting.key == key)


@uninterrupted
def reset() -> None:
    """Every control as it was at first."""
    draft().update(settings.default_draft() | {REFERENCE: "fedavg"})
