"""The page "Runs": one's own runs and published ones; to find, open, compare, rename, publish, delete, import and export them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from fedviz import figures
from fedviz.algorithms import ALGORITHMS
from fedviz.config import ConfigError, SimulationConfig
from fedviz.figures.overlay import ACCURACY, LOSS, MOST, measure_of
from fedviz.runs import export
from fedviz.runs.admission import Refused
from fedviz.runs.run import Run, RunState
from fedviz.runs.store import StoreError
from fedviz.ui import actions, charts, pages, settings, words
from fedviz.ui.live_plotly import live_plotly
from fedviz.ui.manager import run_manager
from fedviz.ui.page import STYLE
from fedviz.ui.session import session, uninterrupted, went_back
from fedviz.ui.shown import Shown
from fedviz.ui.uploads import taken_up
from fedviz.ui.visitor import FORGETFUL, is_forgotten, visitor

LOADED = 200  # runs that are searched and ordered, the newest; and again for each press of "Look further back"
COMPARED, TICKED = "compare", "ticked"  # query parameters; the second only where it is not the same
PAGE = 20  # runs shown at first, and again for each press of "Show more"
LARGEST_IMPORT = 20  # MB
LONGEST_TITLE = 80
INTERVALS = ("eval_every", "probe_every")
TOLD = (
    "participation",
    "problem.partition",
    "num_clients",
    "seed",
    "rounds",
    *INTERVALS,
)  # paths, by titles or other facts
MOST_APART = 2  # differences that a name in the charts holds
# Where the list is scrolled, the charts come above what is in view.
INTO_VIEW = """<script>{
  const charts = document.querySelector(".st-key-comparison"), top = charts?.getBoundingClientRect().top;
  if (top < 100 || top > innerHeight / 2) charts.scrollIntoView();
}</script>"""
SORTS: dict[str, Callable[[Run], object]] = {
    "Newest first": lambda run: -run.created.timestamp(),
    "Oldest first": lambda run: run.created.timestamp(),
    "By name": lambda run: name(run).lower(),
    "By method": lambda run: run.config.algorithm.title.lower(),
}


def show() -> None:
    """The whole page."""
    st.html(STYLE)
    pages.back()
    with st.container(key="title", horizontal=True, vertical_alignment="center"):
        st.header("Runs", anchor=False)
        _import()
    hosted = run_manager().limits.hosted
    st.caption(
        "Your runs, and those that others have published." if hosted else "All runs that are kept on this machine."
    )
    if is_forgotten():
        st.caption(f":material/cookie_off: {FORGETFUL}")
    said, session().said = session().said, None
    if said:
        st.error(words.plain(said), icon=":material/error:")
    loaded = st.session_state.setdefault("runs_loaded", LOADED)
    try:
        runs = run_manager().runs(visitor(), limit=loaded + 1)
    except StoreError as error:
        st.error(words.plain(str(error)), icon=":material/database_off:")
        return
    runs, older = runs[:loaded], len(runs) > loaded
    selection = st.container(key="selection", horizontal=True, vertical_alignment="center", gap="small")
    comparison = st.container(key="comparison")
    found = _found(runs) if runs else []
    most = st.session_state.setdefault("runs_shown", PAGE)
    chosen = _chosen(found[:most], {run.id: run for run in runs})
    if runs:
        with selection:
            _selection(chosen)
    with comparison:
        _comparison(chosen.compared)
        if missing := _not_here():
            st.caption(
                f":material/link_off: This link compares {words.count(missing, 'run')} more, not kept here or beyond {MOST}."
            )
    if chosen.is_new:
        with selection:
            st.html(INTO_VIEW, unsafe_allow_javascript=True)
    if not runs:
        st.info("There are none yet. Press Run on the page of the simulation, or import one.", icon=":material/info:")
    elif not found:
        st.info("No run fits. Search for less, or empty the filters.", icon=":material/search_off:")
    ticked = {run.id for run in chosen.ticked}
    for run in found[:most]:
        _row(run, is_full=len(ticked) >= MOST and run.id not in ticked)
    if len(found) > most:
        st.button(f"Show more ({len(found) - most:,} left)", key="more_runs", on_click=_show_more)
    elif older:
        st.caption(f"These are among the newest {loaded:,} runs.")
        st.button("Look further back", key="older_runs", on_click=_look_further_back)


def name(run: Run) -> str:
    """What a run is called: by its owner, else by its settings. Not Markdown."""
    return run.title or words.title(run.config)


@uninterrupted
def _show_more() -> None:
    st.session_state.runs_shown += PAGE


@uninterrupted
def _look_further_back() -> None:
    st.session_state.runs_loaded += LOADED


# --- finding


def _found(runs: Sequence[Run]) -> list[Run]:
    """Those that search and filters leave, in the order asked for; all four stand in the address."""
    methods = {ALGORITHMS[run.config.algorithm.name].title for run in runs}
    states = {words.BADGES[run.state].word for run in runs}
    with st.container(key="filters", horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(
            "Search", key="search", bind="query-params", max_chars=100, placeholder="name, method or setting",
            icon=":material/search:", width=260,
        )  # fmt: skip
        wanted_methods = st.multiselect(
            "Method", sorted({model.title for model in ALGORITHMS.values()} & methods), key="method", bind="query-params",
            placeholder="all", width=260,
        )  # fmt: skip
        wanted_states = st.multiselect(
            "State", [words.BADGES[state].word for state in RunState if words.BADGES[state].word in states], key="state",
            bind="query-params", placeholder="all", width=220,
        )  # fmt: skip
        order = st.selectbox("Order", list(SORTS), key="order", bind="query-params", width=180)
    asked = text.lower().split()
    return sorted(
        (
            run
            for run in runs
            if _fits(run, asked)
            and (not wanted_methods or run.config.algorithm.title in wanted_methods)
            and (not wanted_states or words.BADGES[run.state].word in wanted_states)
        ),
        key=SORTS[order],  # type: ignore[arg-type]
    )


def _fits(run: Run, asked: Sequence[str]) -> bool:
    """Whether all words are found; an id is found by how it begins, as in the names of exported files."""
    if not asked:
        return True
    text, begins = _searchable(run), run.id.lower()
    return all(word in text or (len(word) >= 8 and begins.startswith(word)) for word in asked)


def _searchable(run: Run) -> str:
    _moment, *facts = _facts(run)  # not its digits, among which numbers of settings would be found
    return " ".join([name(run), *facts, words.BADGES[run.state].word]).lower()


# --- one run


def _row(run: Run, *, is_full: bool) -> None:
    """is_full: as many others are ticked as can be compared."""
    badge, owned = words.BADGES[run.state], run_manager().may_control(run, visitor())
    with st.container(border=True, key=f"run-{run.id}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"head-{run.id}"):
            st.checkbox(
                f"Compare {words.plain(name(run))}", key=_box(run.id), label_visibility="collapsed", disabled=is_full,
                help=f"At most {MOST} at a time." if is_full else "Tick it to draw it in one chart with others.",
            )  # fmt: skip
            pages.to_run(run.id, words.plain(name(run)))
            st.badge(badge.word, icon=badge.icon, color=badge.color)
            if run.published:
                st.badge("published", icon=":material/public:", color="gray")
            with st.popover(
                "Change or export", icon=":material/more_horiz:", key=f"menu-{run.id}", on_change="rerun"
            ) as menu:
                if menu.open:
                    _menu(run, owned)
        st.caption(words.plain(" · ".join(_facts(run))))


def _facts(run: Run) -> list[str]:
    """What there is to know of a run besides its name, the more telling first."""
    done = (
        f"round {max(run.round, 0):,} of {run.config.rounds:,}" if run.live else words.count(run.config.rounds, "round")
    )
    facts = [words.when(run.created, st.context.timezone), *([words.title(run.config)] if run.title else []), done]
    facts += [end] if (end := words.standing(run.state, run.message)) else []
    facts += [f"beside {run.reference.config.algorithm.title}"] if run.reference is not None else []
    facts += [f"seed {run.config.seed}", *_unusual(run.config)]
    if run.forked_at is not None:
        facts.append(f"continues another run from round {run.forked_at:,}")
    facts += ["imported"] if run.imported else []
    return facts + ([run.device] if run.device else []) + [f"fedviz {run.version}"]


def _unusual(config: SimulationConfig) -> list[str]:
    """Settings that are not as they are at first, but for those that the title and the other facts tell."""
    described = settings.described(config)
    return [described[path] for path in config.differences() if path in described and not path.startswith(TOLD)]


def _names(runs: Sequence[Run]) -> list[str]:
    """What runs are called in the charts: those of one name with what tells them apart, if nothing else does the time of their start."""
    called, about = [name(run) for run in runs], [_about(run) for run in runs]
    told = []
    for own, mine in zip(called, about, strict=True):
        others = [theirs for other, theirs in zip(called, about, strict=True) if other == own]
        apart = [text for path, text in mine.items() if any(other.get(path) != text for other in others)]
        told.append(" · ".join([own, *apart[:MOST_APART]]))
    return [
        text if told.count(text) == 1 else f"{text} · {words.when(run.created, st.context.timezone)}"
        for run, text in zip(runs, told, strict=True)
    ]


def _about(run: Run) -> dict[str, str]:
    """Path -> what a run has there, in words, without intervals that follow from its rounds."""
    forked = {} if run.forked_at is None else {"forked_at": f"continued from round {run.forked_at:,}"}
    return {path: text for path, text in (settings.described(run.config) | forked).items() if path not in INTERVALS}


def _menu(run: Run, owned: bool) -> None:
    """What can be done with a run besides opening it."""
    if owned:
        st.text_input(
            "Name", value=run.title or "", key=f"name-{run.id}", max_chars=LONGEST_TITLE, placeholder=words.title(run.config),
            on_change=_rename, args=(run.id,),
        )  # fmt: skip
        st.toggle(
            "Published", value=run.published, key=f"publish-{run.id}", on_change=_publish, args=(run.id,),
            help="Everybody who opens this page finds it in the list. Whoever has its link sees it in any case.",
        )  # fmt: skip
        refused, why = session().kept_as_it_is or ("", "")
        if refused == run.id:
            session().kept_as_it_is = None
            st.error(words.plain(why), icon=":material/error:")
    file = f"fedviz-{run.config.algorithm.name}-{run.id[:8]}"
    st.download_button(
        "Export as JSON", data=lambda: _json(run.id), file_name=f"{file}.json", mime="application/json",
        key=f"json-{run.id}", icon=":material/download:", on_click="ignore", help="The whole run; it can be imported again.",
    )  # fmt: skip
    st.download_button(
        "Export as CSV", data=lambda: _csv(run.id), file_name=f"{file}.csv", mime="text/csv",
        key=f"csv-{run.id}", icon=":material/download:", on_click="ignore", help="Its records, one row a round.",
    )  # fmt: skip
    if owned:
        st.button(
            "Delete", key=f"delete-{run.id}", icon=":material/delete:",
            on_click=_ask_first, args=(run.id,),
        )  # fmt: skip
        if st.session_state.get("deleting") == run.id:
            _really_delete(run)


@uninterrupted
def _ask_first(run_id: str) -> None:
    st.session_state.deleting = run_id


@uninterrupted
def _forget_deletion() -> None:
    st.session_state.deleting = None


@st.dialog("Delete this run for good?", icon=":material/delete:", on_dismiss=_forget_deletion)
def _really_delete(run: Run) -> None:
    if st.session_state.get("deleting") is None:
        st.rerun()
    st.markdown(f"{words.plain(name(run))}: its settings and records will be gone, and its link will lead nowhere.")
    with st.container(horizontal=True):
        st.button("Delete it", key="delete_now", type="primary", on_click=_delete, args=(run.id,))
        st.button("Keep it", key="keep", on_click=_forget_deletion)


@uninterrupted
def _delete(run_id: str) -> None:
    _forget_deletion()
    own = session()
    own.said = _why_not(lambda: run_manager().delete(run_id, visitor()))


@uninterrupted
def _rename(run_id: str) -> None:
    _change(run_id, lambda: run_manager().rename(run_id, st.session_state[f"name-{run_id}"], visitor()))


@uninterrupted
def _publish(run_id: str) -> None:
    _change(run_id, lambda: run_manager().publish(run_id, st.session_state[f"publish-{run_id}"], visitor()))


def _change(run_id: str, act: Callable[[], object]) -> None:
    """What is refused is said where it was asked for: the top of the page may be far away."""
    own = session()
    why = _why_not(act)
    own.kept_as_it_is = (run_id, why) if why else None


def _why_not(act: Callable[[], object]) -> str | None:
    try:
        act()
    except (Refused, ConfigError, StoreError, KeyError) as refusal:
        return words.reason(refusal)
    return None


def _json(run_id: str) -> str:
    run = run_manager().get(run_id)
    return json.dumps(export.to_json(run), allow_nan=False) if run is not None else ""


def _csv(run_id: str) -> str:
    run = run_manager().get(run_id)
    return export.to_csv(run.records, run.config) if run is not None else ""


# --- import


def _import() -> None:
    """Takes up an exported run and is empty again. What came of it stands in the popover, which would cover any other place."""
    own, me = session(), visitor()
    with st.popover("Import", icon=":material/upload:", key="import", on_change=_forget_import):
        file = st.file_uploader(
            f"A run that was exported as JSON, up to {LARGEST_IMPORT} MB", type="json", key=f"import-{own.imports}",
            max_upload_size=LARGEST_IMPORT,
        )  # fmt: skip
        if file is not None:
            own.imports += 1  # before anything else: no file is taken up twice
            own.imported, own.not_imported = None, ""
            try:
                own.imported = run_manager().import_run(taken_up(file), me).id
            except (Refused, ConfigError, StoreError) as refusal:
                own.not_imported = f"{_short(file.name)} was not imported. {words.reason(refusal)}"
            st.rerun()
        if own.not_imported:
            st.error(words.plain(own.not_imported), icon=":material/error:")
        run = actions.run_or_none(own.imported)
        if run is not None:
            st.success("The run was imported.", icon=":material/check:")
            pages.to_run(run.id, f"Open {words.plain(name(run))}")


@uninterrupted
def _forget_import() -> None:
    """The popover was opened or closed."""
    own = session()
    own.imported, own.not_imported = None, ""


def _short(file_name: str) -> str:
    return file_name if len(file_name) <= 40 else f"{file_name[:39]}…"


# --- comparison


@dataclass(frozen=True)
class Chosen:
    """Runs in the order in which they were ticked."""

    ticked: list[Run]
    compared: list[Run]  # whose curves are shown: those that were ticked when Compare was pressed
    are_same: bool
    is_new: bool  # it was pressed just now


def _chosen(rows: Sequence[Run], known: Mapping[str, Run]) -> Chosen:
    """What is ticked and compared, once the boxes in the rows that are shown are taken into account.

    Both stand in the address, so that a reload, a search and a link keep them. For some seconds after a click what the session
    remembers counts: until the browser has heard of the new address, it goes on sending the old one. Boxes are read here and not in
    callbacks, which end early when the next tick is waiting already.
    """
    own = session()
    told = _told(known)
    if told != (own.ticked, own.compared) and (
        went_back() or time.monotonic() - own.chosen > actions.HEARD
    ):  # or a link
        own.ticked, own.compared = told
        own.boxes_lag = True
    if own.pressed == "clear":
        own.ticked, own.compared, own.chosen = (), (), time.monotonic()
        own.boxes_lag = True
    for run in rows:
        if own.boxes_lag or _box(run.id) not in st.session_state:
            st.session_state[_box(run.id)] = run.id in own.ticked
    own.boxes_lag = False
    boxes = {run.id: bool(st.session_state[_box(run.id)]) for run in rows}
    ticked = tuple(each for each in own.ticked if boxes.get(each, True))
    ticked += tuple(each for each in boxes if boxes[each] and each not in ticked)
    is_new, own.pressed = own.pressed == "compare" and 2 <= len(ticked) <= MOST, ""
    compared = ticked if is_new else own.compared
    if (ticked, compared) != (own.ticked, own.compared):
        own.ticked, own.compared, own.chosen = ticked, compared, time.monotonic()
    if (ticked, compared) != told:
        _write_address(ticked, compared)  # again, where the page ended here when it was made the last time
    return Chosen(_there(ticked, known), _there(compared, known), ticked == compared, is_new)


def _box(run_id: str) -> str:
    """The key of the box in a run's row."""
    return f"compare-{run_id}"


def _not_here() -> int:
    """Of the runs that the address compares, how many are not shown."""
    named = {each.strip() for each in st.query_params.get(COMPARED, "").split(",")} - {""}
    return len(named - set(session().compared))


def _told(known: Mapping[str, Run]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(ticked, compared) as the address says, without what there is not."""

    def named(parameter: str) -> tuple[str, ...]:
        ids = dict.fromkeys(each.strip() for each in st.query_params.get(parameter, "").split(",")[: 4 * MOST])
        return tuple(run.id for run in _there(ids, known))

    compared = named(COMPARED)[:MOST]
    return named(TICKED) if TICKED in st.query_params else compared, compared


def _there(run_ids: Iterable[str], known: Mapping[str, Run]) -> list[Run]:
    """The runs that there are of these; not what was deleted and is only kept for others that continue it."""
    found = (known.get(run_id) or actions.run_or_none(run_id) for run_id in run_ids)
    return [run for run in found if run is not None and run.owner]


def _write_address(ticked: tuple[str, ...], compared: tuple[str, ...]) -> None:
    written = {COMPARED: compared or None, TICKED: ticked if ticked != compared else None}
    for parameter, ids in written.items():
        if ids is None:
            st.query_params.pop(parameter, None)
        elif st.query_params.get(parameter) != ",".join(ids):
            st.query_params[parameter] = ",".join(ids)


def _selection(chosen: Chosen) -> None:
    """The row that says what is ticked. Its height is fixed, so that no tick moves the row under the pointer."""
    count = len(chosen.ticked)
    if not count and not chosen.compared:
        st.caption(f"Click a run's name to open it. Tick up to {MOST} to lay their curves over one another.")
        return
    st.button(
        f"Compare {words.count(count, 'run')}" if count > 1 else "Compare", key="compare", type="primary",
        icon=":material/stacked_line_chart:", disabled=chosen.are_same or not 2 <= count <= MOST, on_click=_press, args=("compare",),
    )  # fmt: skip
    st.button("Clear", key="clear", help="Untick all, and take the charts away.", on_click=_press, args=("clear",))
    if count < 2:
        st.caption("Tick another one to compare.")
    elif count >= MOST:
        st.caption(f"{MOST} is the most." if count == MOST else f"{MOST} is the most: untick {count - MOST}.")


@uninterrupted
def _press(button: str) -> None:
    session().pressed = button


def _comparison(compared: Sequence[Run]) -> None:
    """Their curves over one another."""
    if not compared:
        return
    views = [(called, Shown.of(run).view) for run, called in zip(compared, _names(compared), strict=True)]
    for column, measures, key in zip(
        st.columns(2), (LOSS, ACCURACY), ("compared-loss", "compared-accuracy"), strict=True
    ):
        with column.container(border=True, key=f"card-{key}", height="stretch"):
            log = measure_of(views, measures).scale_is_free and charts.scale_of_loss(key)
            live_plotly(figures.overlay(views, measures, log=log), key=key, height=250)
