"""The main area: state, buttons, progress and charts of one run, brought up to date while it computes.

Everything that can be seen is drawn by the page. A Streamlit fragment with a timer, the tick, then writes what changes with every
round, and has the page drawn again when anything else did. Both only read; buttons act through callbacks on the run manager, so
nothing here waits for anything.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fedviz.runs.run import Run, RunState
from fedviz.ui import actions, charts, words
from fedviz.ui.actions import PACES
from fedviz.ui.controls import Form
from fedviz.ui.fork import fork_button
from fedviz.ui.manager import run_manager
from fedviz.ui.session import session
from fedviz.ui.shown import Shown, recorded_default

SCRUBBER_HELP = "Marks a round on all charts, and the numbers are those of that round."
RESUMES = "Goes on from the last checkpoint, as the same run, to the same curves as if it had never ended."
EMBEDDED = "A finished run of the default settings, recorded earlier."
TICK = 0.75  # seconds between two looks at a live run
LONG_TICK = 5.0  # ... and at one that has ended, but may be continued
MOMENT = 0.25  # seconds in which all viewers of a running run see the same, so that its charts are made once for all


@dataclass(frozen=True)
class Scene:
    """What the page has found; ticks look at the same run again."""

    run: Run | None  # None: nothing was run yet
    shown: Shown | None  # the recorded default where there is no run
    previous: Shown | None  # drawn faint
    form: Form
    changed: bool  # the controls no longer say what the run has
    embedded: bool
    not_yours: str = ""  # why the visitor cannot control the run


@dataclass(frozen=True)
class Now:
    """How the run stands."""

    state: str
    live: bool
    message: str

    @classmethod
    def of(cls, scene: Scene) -> Now:
        run = scene.run
        if run is None:
            return cls("recorded" if scene.shown else "ready", False, "")
        live, state, message, other = run.live, run.state, run.message, run.reference
        if live and not state.live and other is not None:  # one of the two is done, the other one goes on
            end = f"{run.config.algorithm.title} is done" if state == "finished" else _end(run)
            return cls(str(other.state), True, f"{end.rstrip('.')}. {other.config.algorithm.title} goes on.")
        if state == "queued" and run.queue_position:
            message = f"Number {run.queue_position:,} in line. {message}"
        if other is not None and other.state in ("diverged", "failed") and other.message != run.message:
            message = f"{message or words.BADGES[state].sentence} {_end(other)}"
        return cls(str(state), live, message)


def _end(run: Run) -> str:
    """How a run ended, with its name: "FedAvg diverged in round 12: ..."."""
    name, state, message = run.config.algorithm.title, str(run.state), run.message
    if message.lower().startswith(state):
        return f"{name} {message[0].lower()}{message[1:]}"
    return f"{name}: {message}"


@dataclass
class Stage:
    """What was drawn, for the ticks to compare with, and the places that they write to."""

    now: Now
    shown: Shown | None
    cursor: int | None
    progress: DeltaGenerator
    charts: charts.Drawn | None  # None: nothing was ever run, or they are those from before


def show(scene: Scene) -> None:
    """The main area, with a timer while something may happen to the run."""
    stage, run = _stage(scene), scene.run
    if stage.now.live:
        with st.container(key="unseen"):
            st.fragment(_tick, run_every=TICK)(scene, stage)
    elif run is not None and run.can_resume:
        with st.container(key="idle"):
            st.fragment(_long_tick, run_every=LONG_TICK)(run.id, run.state, run.round)


def _stage(scene: Scene) -> Stage:
    """Draw everything."""
    run = scene.run
    # The state before the records: a run that has ended by now has all its records in place.
    now = Now.of(scene)
    shown = _look(run, now) if run else scene.shown
    cursor = None
    if scene.embedded:
        _headline(scene, now)
        progress = st.empty()
    else:
        with st.container(key="controls", horizontal=True, vertical_alignment="center", gap="small"):
            _buttons(scene, now)
            _pace(scene, now.live)
            progress = st.container(key="progress").empty()
        with st.container(key="standing", horizontal=True, vertical_alignment="center", gap="small"):
            _headline(scene, now)
            if shown and shown.last_round and (not now.live or now.state == "paused"):
                cursor = _scrubber(shown)
                if run is not None:
                    fork_button(scene.form, run, shown.last_round if cursor is None else cursor)
    _progress(progress, scene, shown)
    drawn, before = None, scene.previous or recorded_default()
    if shown is not None and len(shown.records):
        drawn = charts.draw(shown, scene.previous, cursor)
    elif now.live and before is not None:
        charts.draw(before, None, None)  # until the new run has its first record
    return Stage(now, shown, cursor, progress, drawn)


def _tick(scene: Scene, stage: Stage) -> None:
    """Write what a round changes. Streamlit takes 0.2 ms and more for each element written, so it is not the page once more."""
    run = scene.run
    assert run is not None  # else there is no timer
    if run.live:
        run_manager().watch(run.id)
    now = Now.of(scene)
    shown = _look(run, now)
    if now != stage.now or (now.state != "running" and stage.shown and shown.extent != stage.shown.extent):
        st.rerun()  # buttons, words and slider stand otherwise
    _progress(stage.progress, scene, shown)
    places = stage.charts
    if charts.feed(places, shown, scene.previous, stage.cursor) if places else not len(shown.records):
        return
    st.rerun()  # the first records are there, or a chart more


def _long_tick(run_id: str, state: RunState, round: int) -> None:
    """Somebody else, or the visitor in another tab, may have continued the run since it was drawn, and it may have ended again."""
    run = actions.run_or_none(run_id)
    if run is None or (run.state, run.round) != (state, round):
        st.rerun()


def _look(run: Run, now: Now) -> Shown:
    """The records to draw: all there are, or while rounds come by themselves those of this moment."""
    if now.state != "running":
        return Shown.of(run)
    moment = int(time.monotonic() / MOMENT)
    shown: Shown = charts.once(("shown", run.id, moment), lambda: Shown.of(run))
    return shown


def _headline(scene: Scene, now: Now) -> None:
    """The badge, and the one thing that is to be said now."""
    badge, reason, refused = words.BADGES[now.state], scene.form.reason, session().refused
    wrong = "" if scene.embedded else f"Run is off. {reason}" if reason else refused or ""
    changed = scene.changed and not scene.embedded and not wrong
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="headline"):
        with st.container(key="badges", width="content", gap="xxsmall"):
            st.badge(badge.word, icon=badge.icon, color=badge.color)
            if changed:
                st.badge("settings changed: press Run to see", icon=":material/edit:", color="orange")
        if wrong:
            st.markdown(f":red[:material/error: {words.escape(wrong)}]", width="stretch")
        else:
            st.caption(words.escape(_sentence(scene, now, changed)), width="stretch")


def _sentence(scene: Scene, now: Now, changed: bool) -> str:
    if now.live and scene.run is not None and not len(scene.run.records):
        said = (now.message or words.BADGES[now.state].sentence).rstrip(".")
        drawn = "the run before it" if scene.previous else "a recorded run of the default settings"
        return f"{said}. Until it has computed its first round the charts show {drawn}."
    if scene.embedded and scene.run is None:
        return EMBEDDED
    if scene.form.config and (changed or scene.run is None):
        return words.will_happen(scene.form.config, scene.form.reference)
    return now.message or words.BADGES[now.state].sentence


def _buttons(scene: Scene, now: Now) -> None:
    """Always the same four buttons at the same places; what makes no sense now is disabled."""
    live, reason, paused, foreign = now.live, scene.form.reason, now.state == "paused", scene.not_yours
    resumes = paused or (not live and scene.run is not None and scene.run.can_resume)
    with st.container(key="buttons", horizontal=True, width="content", gap="small"):
        st.button(
            "Run", key="run", type="primary", icon=":material/play_arrow:", on_click=actions.start,
            disabled=bool(reason) or (live and not scene.changed), help=reason or None,
        )  # fmt: skip
        st.button(
            "Resume" if resumes else "Pause", key="pause", icon=":material/resume:" if resumes else ":material/pause:",
            on_click=actions.resume if resumes else actions.pause, disabled=bool(foreign) or not (live or resumes),
            help=foreign or (RESUMES if resumes and not paused else None),
        )  # fmt: skip
        st.button(
            "Step", key="step", icon=":material/skip_next:", on_click=actions.step, disabled=bool(foreign) or not paused,
            help=foreign or ("Exactly one round, then stand still." if paused
                             else "Pause first: then it goes on by exactly one round."),
        )  # fmt: skip
        st.button(
            "Stop", key="stop", icon=":material/stop:", on_click=actions.stop, disabled=bool(foreign) or not live,
            help=foreign or None,
        )  # fmt: skip


def _pace(scene: Scene, live: bool) -> None:
    """Rounds a second; the run's own where it is live, so that two tabs agree."""
    if live and scene.run is not None:
        name = next((name for name, pace in PACES.items() if pace == scene.run.pace), "max")
        if st.session_state.get("pace") != name:
            st.session_state.pace = name
    elif st.session_state.get("pace") not in PACES:
        st.session_state.pace = "max"
    st.segmented_control(
        "Rounds a second",
        list(PACES),
        default=st.session_state.pace,  # for a browser that is still loading when the page is drawn again
        key="pace",
        required=True,
        format_func=lambda name: name if name == "max" else f"{name}/s",
        label_visibility="collapsed",
        on_change=actions.set_pace,
        disabled=bool(scene.not_yours) and live,
        help=scene.not_yours if live and scene.not_yours else None,
    )


def _progress(place: DeltaGenerator, scene: Scene, shown: Shown | None) -> None:
    """A bar, and "round 143 of 300 · 212 rounds/s · 1 s left · CPU"."""
    if shown is None:
        place.progress(0.0, "No rounds yet")
        return
    run, done, planned = scene.run, shown.last_round, shown.config.rounds
    parts = [f"round {done:,} of {planned:,}"]
    if run is not None and run.live:
        if run.rounds_per_second:
            parts.append(f"{words.number(run.rounds_per_second)} rounds/s")
        if run.seconds_left is not None:
            parts.append(f"{words.duration(run.seconds_left)} left")
    if run is not None and run.device:
        parts.append(words.escape(run.device))  # an imported run may say anything
    place.progress(min(1.0, done / planned), " · ".join(parts))


def _scrubber(shown: Shown) -> int | None:
    """The round to look at; None at the last one."""
    planned, last = shown.config.rounds, shown.last_round
    # The chosen round follows the newest one, unless the visitor has moved away from it.
    key, seen = f"cursor-{shown.key}", f"cursor-{shown.key}-seen"
    if st.session_state.get(key) in (None, st.session_state.get(seen)) or st.session_state[key] > last:
        st.session_state[key] = last
    st.session_state[seen] = last
    looked_at = st.session_state[key]
    chosen = st.slider(
        "Look at round", 0, planned, looked_at, key=key, format="localized", help=SCRUBBER_HELP, width=280
    )
    chosen = min(chosen, last)
    return chosen if chosen < last else None
