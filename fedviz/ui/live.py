"""The main area: state, buttons, progress and charts of one run, redrawn while it computes.

All of it is one Streamlit fragment with a timer, which the page drops when the run ends. It only reads; buttons act through
callbacks on the run manager, so nothing here waits for anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import streamlit as st

from fedviz import figures
from fedviz.figures import Figure
from fedviz.runs.run import Run
from fedviz.ui import actions, words
from fedviz.ui.actions import PACES
from fedviz.ui.controls import Form
from fedviz.ui.live_plotly import live_plotly
from fedviz.ui.shown import Shown, recorded_default

READING_HELP = """The squared distance between the server's step and the true gradient, split into parts that add up:

- **who took part**: the cohort was drawn at random
- **which group was on duty**: the available clients differ from all
- **minibatch noise**: what even full participation would keep
- **client drift**: local steps lead away from the gradient; κ is how long the step is along it, cosine how well it points

*Log* compares sizes, *Linear* stacks the parts. *Absolute* shows squared norms in gradient units, *Relative* divides by the squared
length of the mean step and leaves out harmless shortening. *As in theory* counts the noise of the drawn clients as noise, not as
who took part; the total is the same."""
SCRUBBER_HELP = "On a paused or finished run: marks a round on all charts, and the numbers are those of that round."
TICK = 0.75  # seconds between two looks at a live run


@dataclass(frozen=True)
class Scene:
    """What one full run of the page has found; ticks look at the same run again."""

    address: str | None  # the run that the address names, whether there is one or not
    run: Run | None  # None: nothing was run yet
    shown: Shown | None  # the recorded default where there is no run
    previous: Shown | None  # drawn faint
    form: Form
    changed: bool  # the controls no longer say what the run has
    embedded: bool


@dataclass(frozen=True)
class Now:
    """How the run stands at this tick."""

    state: str
    live: bool
    message: str

    @classmethod
    def of(cls, scene: Scene) -> Now:
        run = scene.run
        if run is None:
            return cls("recorded" if scene.shown else "ready", False, "")
        live, state, message = run.live, run.state, run.message
        if live and not state.live and run.reference is not None:  # one of the two is done, the other one goes on
            return cls(
                str(run.reference.state),
                True,
                f"{run.config.algorithm.title} is done; {run.reference.config.algorithm.title} goes on.",
            )
        if state == "queued" and run.queue_position:
            message = f"Number {run.queue_position} in line: it starts when a place is free."
        return cls(str(state), live, message)


def show(scene: Scene) -> None:
    """The main area, with a timer while the run is live."""
    live = scene.run is not None and scene.run.live
    st.fragment(_tick, run_every=TICK if live else None)(scene, live)


def _tick(scene: Scene, live: bool) -> None:
    run = scene.run
    if actions.run_id() != scene.address:
        st.rerun()  # Run was pressed: the page now shows another run
    # The state before the records: a run that has ended by now has all its records in place.
    now = Now.of(scene)
    shown = Shown.of(run) if run else scene.shown
    if not scene.embedded:
        _headline(scene, now)
        _buttons(scene, now)
    if scene.embedded:
        _progress(scene, shown)
        cursor = None
    else:
        left, right = st.columns([2, 1], vertical_alignment="bottom")
        with left:
            _progress(scene, shown)
        with right:
            cursor = _scrubber(shown, still=not now.live or now.state == "paused")
    before = scene.previous or recorded_default()
    if shown is not None and len(shown.records):
        _charts(shown, scene.previous, cursor)
    elif now.live and before is not None:
        st.caption(
            ":material/history: Still the charts from before; the new run takes their place with its first record."
        )
        _charts(before, None, None)
    if live and not now.live:
        st.rerun()  # it has ended: the full page drops the timer


def _headline(scene: Scene, now: Now) -> None:
    """The badge, and one sentence."""
    badge = words.BADGES[now.state]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(badge.word, icon=badge.icon, color=badge.color)
        if scene.changed:
            st.badge("settings changed: press Run to see", icon=":material/edit:", color="orange")
        st.caption(words.escape(now.message or badge.sentence), width="stretch")


def _buttons(scene: Scene, now: Now) -> None:
    """Always the same four buttons at the same places; what makes no sense now is disabled."""
    live, reason = now.live, scene.form.reason
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "Run", key="run", type="primary", icon=":material/play_arrow:", width=130, on_click=actions.start,
            disabled=bool(reason) or (live and not scene.changed), help=reason or None,
        )  # fmt: skip
        paused = now.state == "paused"
        st.button(
            "Resume" if paused else "Pause", key="pause", icon=":material/resume:" if paused else ":material/pause:", width=130,
            on_click=actions.resume if paused else actions.pause, disabled=not live,
        )  # fmt: skip
        st.button(
            "Step", key="step", icon=":material/skip_next:", width=110, on_click=actions.step,
            disabled=now.state not in ("running", "paused"), help="Exactly one round, then stand still.",
        )  # fmt: skip
        st.button("Stop", key="stop", icon=":material/stop:", width=110, on_click=actions.stop, disabled=not live)
        _pace(scene, live)
    refused = st.session_state.get("refused")
    if reason:
        st.caption(f":red[:material/error: Run is off. {words.escape(reason)}]")
    elif refused:
        st.caption(f":red[:material/error: {words.escape(refused)}]")
    elif scene.form.config and (scene.changed or scene.run is None):
        st.caption(words.escape(words.will_happen(scene.form.config, scene.form.reference)))


def _pace(scene: Scene, live: bool) -> None:
    """Rounds a second; the run's own where it is live, so that two tabs agree."""
    if live and scene.run is not None:
        name = next((name for name, pace in PACES.items() if pace == scene.run.pace), "max")
        if st.session_state.get("pace") != name:
            st.session_state.pace = name
    elif "pace" not in st.session_state:
        st.session_state.pace = "max"
    st.segmented_control(
        "Rounds a second",
        list(PACES),
        key="pace",
        required=True,
        format_func=lambda name: name if name == "max" else f"{name}/s",
        label_visibility="collapsed",
        on_change=actions.set_pace,
    )


def _progress(scene: Scene, shown: Shown | None) -> None:
    """A bar, and "round 143 of 300 · 212 rounds/s · 1 s left · CPU"."""
    if shown is None:
        st.progress(0.0, "No rounds yet")
        return
    run, done, planned = scene.run, shown.last_round, shown.config.rounds
    parts = [f"round {done:,} of {planned:,}"]
    if run is not None and run.live:
        if run.rounds_per_second:
            parts.append(f"{words.number(run.rounds_per_second)} rounds/s")
        if run.seconds_left is not None:
            parts.append(f"{words.duration(run.seconds_left)} left")
    if run is not None and run.device:
        parts.append(run.device)
    st.progress(min(1.0, done / planned), " · ".join(parts))


def _scrubber(shown: Shown | None, *, still: bool) -> int | None:
    """The round to look at; None while computing, and at the last round."""
    if shown is None:
        return None
    planned, last = max(1, shown.config.rounds), shown.last_round
    if not still or not last:
        st.slider("Look at round", 0, planned, 0, key="cursor-waiting", disabled=True, help=SCRUBBER_HELP)
        return None
    # The chosen round follows the newest one, unless the visitor has moved away from it.
    key, seen = f"cursor-{shown.key}", f"cursor-{shown.key}-seen"
    if st.session_state.get(key) in (None, st.session_state.get(seen)) or st.session_state[key] > last:
        st.session_state[key] = last
    st.session_state[seen] = last
    chosen = min(st.slider("Look at round", 0, planned, key=key, help=SCRUBBER_HELP), last)
    return chosen if chosen < last else None


def _charts(shown: Shown, previous: Shown | None, cursor: int | None) -> None:
    """Loss and accuracy, then why, then who."""
    views = [view for view in (shown.view, shown.reference_view, previous and previous.as_previous()) if view]
    left, right = st.columns(2)
    with left.container(border=True, height="stretch"):
        chart = st.container()
        log = _option("loss_scale", {"linear": "Linear", "log": "Log"}) == "log"
        with chart:
            _draw(figures.loss(views, cursor=cursor, log=log), "loss")
    with right.container(border=True, height="stretch"):
        _draw(figures.accuracy(views, cursor=cursor), "accuracy")
        st.caption(words.measured_on(shown.config))
    _decomposition(shown, cursor)
    left, right = st.columns(2)
    with left.container(border=True):
        _draw(figures.participation(shown.view, cursor), "participation")
    with right.container(border=True):
        _draw(figures.heterogeneity(shown.view, cursor=cursor), "heterogeneity")


def _decomposition(shown: Shown, cursor: int | None) -> None:
    """The heart of the page: where the server's error comes from."""
    with st.container(border=True):
        reading = st.container()
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            log = _option("scale", {"log": "Log", "linear": "Linear"}) == "log"
            relative = _option("size", {"absolute": "Absolute", "relative": "Relative"}) == "relative"
            theory = _option("split", {"telescoped": "As measured", "theory": "As in theory"}) == "theory"
        split: Literal["telescoped", "theory"] = "theory" if theory else "telescoped"
        reference = shown.reference_view
        sentence = figures.reading(shown.view, cursor, relative=relative, split=split, reference=reference)
        reading.markdown(f"**{words.escape(sentence)}**", help=READING_HELP)
        figure = figures.decomposition(
            shown.view, reference, scale="log" if log else "linear", relative=relative, split=split, cursor=cursor
        )
        _draw(figure, "decomposition", 380)
        gradients, probes = (shown.records.last(f"costs.{name}_evaluations") for name in ("gradient", "probe"))
        st.caption(words.probe_share(gradients, probes))


def _option(name: str, choices: dict[str, str]) -> str:
    """A small choice of how to draw; it redraws the charts and nothing else."""
    key = f"draw_{name}"
    st.session_state.setdefault(key, next(iter(choices)))
    chosen = st.segmented_control(
        name.replace("_", " "),
        list(choices),
        key=key,
        required=True,
        format_func=choices.__getitem__,
        label_visibility="collapsed",
    )
    return str(chosen)


def _draw(figure: Figure, key: str, height: int = 300) -> None:
    live_plotly(figure, key=key, height=height)
