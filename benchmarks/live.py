"""How live pages stream: `python benchmarks/live.py`, a few minutes on a machine that does nothing else.

Starts the server as a user does, opens a configuration by its link, presses Run, and watches:

    growth    one viewer of runs with 200, 2,000 and 20,000 rounds behind them, by turns: bytes and server time of a tick
    load      a run of 20,000 rounds that goes on as fast as it can, with 5 and with 20 viewers; two runs with 20 viewers; the first
              one again with nobody and one viewer by turns
    browser   one real Chromium: what it has drawn in every frame for 12 seconds

or, with --soak MINUTES, whether the server's memory stays flat: 20 viewers of a run that has 20,000 rounds behind it and goes on at two
rounds a second. (The records of a live run are in memory, about 2 kB a round with its reference: they are not what is looked for.)

A viewer speaks Streamlit's protocol over a websocket and asks for a tick every 0.75 s, as the page's timer does; its latency is from
there to the end of the answer. Nothing is drawn, so twenty of them cost this machine little. What a chart holds must have grown
between a viewer's first and last tick, or the measurement is refused. `--save` writes benchmarks/LIVE.md, or LIVE-MEMORY.md.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlencode

import numpy as np
import psutil
from playwright.sync_api import sync_playwright
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fedviz.ui.feed import unpacked  # noqa: E402 - found now

PAGE = Path(__file__).with_name("LIVE.md")
MEMORY_PAGE = Path(__file__).with_name("LIVE-MEMORY.md")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TICK = 0.75  # seconds, as in fedviz/ui/live.py
GROWTH = (200, 2_000, 20_000)
PLANNED = 10  # times as many rounds as are behind a run when it is watched: it must go on for longer than that
VIEWERS = (5, 20)  # before nobody and one, which take turns
TURNS = 8  # of what is compared: machines are noisier than the few percent that are looked for; half as many for growth
CHARTS = ("loss", "accuracy", "decomposition", "participation", "heterogeneity")
FRAMES = 12  # seconds in which every frame of the browser is looked at

# Bars: (what, the most that is allowed).
MOST_GROWTH = 1.5
MOST_BYTES = 100_000
MOST_LATENCY = {"process": 150, "thread": 300}  # ms, p95 with 20 viewers
MOST_LATENCY_OF_TWO = 500
MOST_SLOWDOWN = 0.15
MOST_MEMORY = 1.1  # at the end, against that after two minutes


def settings(rounds: int, seed: int) -> dict[str, Any]:
    """A run with all five charts whose rounds are as cheap as can be; evaluated in every round, decomposed 200 times or more."""
    return {
        "problem": {
            "kind": "quadratics",
            "curvature": [[1.0, 1.0], [1.0, 2.0]] * 5,
            "linear": [[1.0, 0.0], [0.0, 1.0]] * 5,
            "start": [1.0, 1.0],
        },
        "num_clients": 10, "participation.pattern": "uniform", "participation.clients_per_round": 2, "local_steps": 1,
        "client_lr": 0.001, "eval_every": 1, "probe_every": max(1, rounds // (666 * PLANNED)), "rounds": rounds, "seed": seed,
        "compare_with": "fedavg",
    }  # fmt: skip


# --- The server -----------------------------------------------------------------------------------------------------


@dataclass
class Server:
    url: str
    process: psutil.Process

    def seconds(self) -> tuple[float, float]:
        """Processor time so far, of the server and of its workers."""
        own = self.process.cpu_times()
        workers = 0.0
        for child in self.process.children(recursive=True):
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            workers += times.user + times.system
        return own.user + own.system, workers

    def megabytes(self) -> float:
        return float(self.process.memory_info().rss / 1e6)


@contextmanager
def serving(executor: str) -> Iterator[Server]:
    """The dashboard on a folder of its own, as `streamlit run` starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    entry = "server.py" if (ROOT / "server.py").exists() else "app.py"
    command = [sys.executable, "-m", "streamlit", "run", entry, "--server.port", str(port)]
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "FEDVIZ_HOME": home, "FEDVIZ_EXECUTOR": executor, "FEDVIZ_CONCURRENT": "2"}
        with (Path(home) / "server.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)
        try:
            url = f"localhost:{port}"
            deadline = time.monotonic() + 60
            while True:
                try:
                    urllib.request.urlopen(f"http://{url}/_stcore/health", timeout=1).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        sys.exit(f"The server did not come up:\n{(Path(home) / 'server.log').read_text()}")
                    time.sleep(0.1)
            yield Server(url, psutil.Process(process.pid))
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# --- A viewer -------------------------------------------------------------------------------------------------------


@dataclass
class Viewer:
    """One visitor's page without a browser."""

    socket: ClientConnection
    query: str
    widgets: dict[str, str] = field(default_factory=dict)  # id by key
    charts: dict[str, bytes] = field(default_factory=dict)  # the latest message of each
    progress: str = ""
    words: list[str] = field(default_factory=list)
    fragment: str = ""  # what the page's timer asks for
    latencies: list[float] = field(default_factory=list)  # ms, of ticks
    sizes: list[int] = field(default_factory=list)  # bytes, of ticks
    first: float = -1  # the last round drawn at the first tick

    @classmethod
    async def at(cls, server: Server, **query: str) -> Self:
        stream = await connect(
            f"ws://{server.url}/_stcore/stream", subprotocols=["streamlit"], max_size=None, ping_interval=None
        )  # type: ignore[arg-type]
        viewer = cls(stream, urlencode(query))
        await viewer.ask()
        return viewer

    async def ask(self, *changes: WidgetState, fragment: str = "") -> int:
        """Have the script run, and read its answer; returns how many bytes it had."""
        message = BackMsg()
        message.rerun_script.query_string = self.query
        message.rerun_script.fragment_id = fragment
        message.rerun_script.is_auto_rerun = bool(fragment)
        message.rerun_script.widget_states.widgets.extend(changes)
        await self.socket.send(message.SerializeToString())
        received = begun = 0
        while True:
            raw = await asyncio.wait_for(self.socket.recv(decode=False), 60)
            received += len(raw)
            answer = ForwardMsg.FromString(raw)
            if answer.WhichOneof("type") == "new_session":
                begun += 1
                if not fragment or begun > 1:  # the whole page runs, and sets its timer anew while the run is live
                    self.fragment = ""
            if self.read(answer):
                return received

    def read(self, answer: ForwardMsg) -> bool:
        """Take in one message; whether it ends the answer."""
        kind = answer.WhichOneof("type")
        if kind == "auto_rerun":
            self.fragment = answer.auto_rerun.fragment_id
        elif kind == "page_info_changed":
            self.query = answer.page_info_changed.query_string.lstrip("?")
        elif kind == "delta" and answer.delta.WhichOneof("type") == "new_element":
            self.element(answer.delta.new_element)
        return kind == "script_finished" and answer.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN

    def element(self, element: Any) -> None:
        kind = element.WhichOneof("type")
        content = getattr(element, kind)
        if kind == "exception":
            raise RuntimeError(f"The page shows an error: {content.message}")
        if kind == "bidi_component":
            key = content.id.rsplit("-", 1)[-1]
            if key == "feed":
                self.charts.update(unpacked(content.bytes))
            elif content.bytes:
                self.charts[key] = content.bytes
        elif kind == "progress":
            self.progress = content.text
        elif kind == "markdown":
            self.words.append(content.body)
        elif getattr(content, "id", ""):
            self.widgets[content.id.rsplit("-", 1)[-1]] = content.id

    async def press(self, key: str) -> None:
        await self.ask(WidgetState(id=self.widgets[key], trigger_value=True))

    async def pause_or_resume(self) -> None:
        """Press the button that is both, and wait until it stands for the other; sooner that would be a double click."""
        await self.press("pause")
        await asyncio.sleep(1)
        await self.ask(fragment=self.fragment)

    async def pace(self, words: str) -> None:
        change = WidgetState(id=self.widgets["pace"])
        change.string_array_value.data.append(words)
        await self.ask(change)

    @property
    def round(self) -> int:
        """How far the run is, as the page says it."""
        words = self.progress.split()
        return int(words[1].replace(",", "")) if words[:1] == ["round"] else -1

    async def tick(self) -> None:
        asked = time.perf_counter()
        size = await self.ask(fragment=self.fragment)
        self.latencies.append(1e3 * (time.perf_counter() - asked))
        self.sizes.append(size)
        if len(self.sizes) == 1:
            self.first = self.drawn()

    async def watch(self, seconds: float, after: float = 0) -> None:
        """Tick by the clock, a slow answer delaying the next."""
        await asyncio.sleep(after)
        self.latencies.clear()
        self.sizes.clear()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            due = time.monotonic() + TICK
            await self.tick()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        if self.drawn() <= self.first:
            raise RuntimeError(f"The loss of a viewer did not grow: round {self.first}, later {self.drawn()}.")

    def drawn(self) -> float:
        """The last round in the chart of the loss; see fedviz/ui/live_plotly.py for what a message is."""
        spec = json.loads(zlib.decompress(self.charts["loss"][2:]))["spec"]
        packed = spec["data"][0]["x"]
        return float(np.frombuffer(base64.b64decode(packed["bdata"]), packed["dtype"])[-1])

    async def until(self, round: int) -> None:
        while self.round < round:
            await asyncio.sleep(0.25)
            await self.ask(fragment=self.fragment)
            if self.ended:
                raise RuntimeError(f"The run ended at round {self.round} instead of going on beyond {round}.")

    @property
    def ended(self) -> bool:
        return not self.fragment


async def start(server: Server, rounds: int, seed: int) -> Viewer:
    """A visitor who opens a link to these settings and presses Run."""
    viewer = await Viewer.at(server, config=json.dumps(settings(rounds, seed)))
    await viewer.press("run")
    if "run" not in parse_qs(viewer.query):
        raise RuntimeError(f"Run was pressed and nothing started. The page says: {viewer.words[-5:]}")
    await viewer.until(1)
    return viewer


# --- What is measured -----------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One line of a table."""

    what: str
    latencies: list[float]
    sizes: list[int]
    cores: float  # of the server while it was watched
    worker_cores: float
    rounds_per_second: float
    megabytes: float
    charts: int = 0  # bytes of the five charts together

    @property
    def p95(self) -> float:
        return float(np.percentile(self.latencies, 95)) if self.latencies else float("nan")

    @property
    def size(self) -> float:
        return float(np.mean(self.sizes)) if self.sizes else 0.0

    @property
    def milliseconds(self) -> float:
        """Server time of a tick, where nothing else is going on in the server."""
        return 1e3 * self.cores * self.seconds / len(self.latencies)

    seconds: float = 0.0

    def cells(self) -> list[str]:
        if not self.latencies:
            return [self.what, "–", "–", "–", "–", f"{self.cores:.2f}", f"{self.worker_cores:.2f}",
                    f"{self.rounds_per_second:,.0f}", f"{self.megabytes:.0f}"]  # fmt: skip
        return [
            self.what, f"{np.percentile(self.latencies, 50):.0f}", f"{self.p95:.0f}", f"{max(self.latencies):.0f}",
            f"{self.size / 1e3:.0f}", f"{self.cores:.2f}", f"{self.worker_cores:.2f}", f"{self.rounds_per_second:,.0f}",
            f"{self.megabytes:.0f}",
        ]  # fmt: skip


async def measure(what: str, server: Server, viewers: list[Viewer], seconds: float, runs: list[Viewer]) -> Row:
    """All viewers tick for so long; `runs` has one viewer of each run, to see how fast it gets on."""
    for run in runs:
        await run.ask(fragment=run.fragment)
    rounds, (own, workers), begun = sum(run.round for run in runs), server.seconds(), time.monotonic()
    if viewers:
        await asyncio.gather(*(v.watch(seconds - TICK, TICK * i / len(viewers)) for i, v in enumerate(viewers)))
    else:
        await asyncio.sleep(seconds)
    elapsed, (own_now, workers_now) = time.monotonic() - begun, server.seconds()
    for run in runs:
        await run.ask(fragment=run.fragment)
        if run.ended:
            raise RuntimeError(f"{what}: the run ended while it was watched.")
    row = Row(
        what,
        [latency for viewer in viewers for latency in viewer.latencies],
        [size for viewer in viewers for size in viewer.sizes],
        (own_now - own) / elapsed,
        (workers_now - workers) / elapsed,
        (sum(run.round for run in runs) - rounds) / elapsed,
        server.megabytes(),
        sum(len(raw) for raw in viewers[0].charts.values()) if viewers else 0,
    )
    row.seconds = elapsed
    print(" | ".join(row.cells()), flush=True)
    return row


def together(rows: list[Row]) -> Row:
    """What was measured several times, for equally long, as one line."""
    return replace(
        rows[0],
        latencies=[latency for row in rows for latency in row.latencies],
        sizes=[size for row in rows for size in row.sizes],
        cores=float(np.mean([row.cores for row in rows])),
        worker_cores=float(np.mean([row.worker_cores for row in rows])),
        rounds_per_second=float(np.mean([row.rounds_per_second for row in rows])),
        megabytes=rows[-1].megabytes,
        seconds=sum(row.seconds for row in rows),
    )


async def by_turns(server: Server, viewer: Viewer, seconds: float, run: Viewer) -> tuple[Row, Row]:
    """Nobody and one viewer by turns, the first of them changing, so that neither a slow minute nor a growing run speaks for one."""
    rows: dict[int, list[Row]] = {0: [], 1: []}
    for turn in range(TURNS):
        for count in (0, 1) if turn % 2 else (1, 0):
            rows[count].append(await measure(f"{count} viewers", server, [viewer][:count], seconds, [run]))
    return together(rows[0]), together(rows[1])


async def prepared(server: Server, rounds: int) -> Viewer:
    """A run with so many rounds behind it, which stands still, and will go on at two rounds a second and cost nothing itself."""
    run = await start(server, PLANNED * rounds, seed=rounds)
    await run.until(rounds)
    await run.pace("2/s")
    await run.pause_or_resume()
    return run


async def growth(server: Server, seconds: float, run: Viewer, rounds: int) -> Row:
    """One viewer of such a run, for a while in which it goes on."""
    await run.pause_or_resume()
    idle = await measure(f"{rounds:,} rounds, nobody watches", server, [], seconds, [run])
    row = await measure(f"{rounds:,} rounds", server, [run], seconds, [run])
    await run.pause_or_resume()
    row.cores -= idle.cores  # what is left is the viewer's
    return row


@dataclass
class Measured:
    """What was found with one executor."""

    executor: str
    growth: list[Row] = field(default_factory=list)
    load: list[Row] = field(default_factory=list)
    frames: dict[str, float] | None = None


async def measured(executor: str, server: Server, seconds: float) -> Measured:
    found = Measured(executor)
    runs = {rounds: await prepared(server, rounds) for rounds in reversed(GROWTH)}
    await growth(server, 4, runs[GROWTH[0]], GROWTH[0])  # not counted: meanwhile the server still loads what it needs
    rows: dict[int, list[Row]] = {rounds: [] for rounds in GROWTH}
    for turn in range(TURNS // 2):
        for rounds in GROWTH if turn % 2 else reversed(GROWTH):
            rows[rounds].append(await growth(server, seconds, runs[rounds], rounds))
    found.growth = [together(each) for each in rows.values()]
    for rounds in GROWTH[:-1]:
        await runs[rounds].press("stop")
        await runs[rounds].socket.close()
    run = runs[GROWTH[-1]]
    await run.pace("max")
    await run.pause_or_resume()
    query = {"run": parse_qs(run.query)["run"][0]}
    viewers: list[Viewer] = []
    for count in VIEWERS:  # while the run has about 20,000 rounds behind it
        viewers += [await Viewer.at(server, **query) for _ in range(count - len(viewers))]
        found.load.append(await measure(f"{count} viewers", server, viewers, seconds, [run]))
    other = await start(server, PLANNED * GROWTH[-1], seed=7)
    await other.until(10)
    found.load.append(await measure("2 runs, 20 viewers", server, viewers[:10] + [
        await Viewer.at(server, run=parse_qs(other.query)["run"][0]) for _ in range(10)
    ], seconds, [run, other]))  # fmt: skip
    await other.press("stop")
    found.load[:0] = await by_turns(server, viewers[0], seconds, run)
    await run.press("stop")  # and leave the places to others
    return found


async def soaked(server: Server, minutes: float) -> list[tuple[float, float]]:
    """(minutes, MB of the server) each half minute, while 20 viewers watch a long run that goes on slowly."""
    run = await start(server, PLANNED * GROWTH[-1], seed=11)
    await run.until(GROWTH[-1])
    await run.pace("2/s")
    query = {"run": parse_qs(run.query)["run"][0]}
    viewers = [run, *[await Viewer.at(server, **query) for _ in range(VIEWERS[-1] - 1)]]
    begun = time.monotonic()
    memory = [(0.0, server.megabytes())]
    while time.monotonic() - begun < 60 * minutes:
        await asyncio.gather(*(v.watch(30, TICK * i / len(viewers)) for i, v in enumerate(viewers)))
        memory.append(((time.monotonic() - begun) / 60, server.megabytes()))
        print(f"{memory[-1][0]:.1f} minutes: {memory[-1][1]:.0f} MB", flush=True)
    return memory


# Looks at every frame: how many charts are drawn, and how far each has got.
LOOK = """async ([seconds, names]) => {
    const last = () => Object.fromEntries(names.map((name) => [name, Math.max(...(document.querySelector(`[data-chart=${name}]`)?.data
        ?? []).filter((trace) => trace.visible !== false && trace.x?.length).map((trace) => trace.x[trace.x.length - 1]))]));
    const before = last(), end = performance.now() + 1000 * seconds;
    let frames = 0, blank = 0;
    while (performance.now() < end) {
        await new Promise(requestAnimationFrame);
        frames += 1;
        blank += names.some((name) => !document.querySelector(
            `[data-chart=${name}] path.js-line, [data-chart=${name}] .main-svg image`));
    }
    const after = last();
    return { frames, blank, frozen: names.filter((name) => !(after[name] > before[name])) };
}"""


def browser(server: Server, run_id: str) -> dict[str, float]:
    """One real Chromium on a live run: frames, frames in which a chart is missing, the page's processor time a second."""
    path = os.environ.get("FEDVIZ_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": 1440, "height": 2300})
        page.goto(f"http://{server.url}/?run={run_id}")
        for chart in CHARTS:
            page.wait_for_selector(f"[data-chart={chart}] .main-svg", state="attached", timeout=60_000)
        page.wait_for_timeout(1000)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")

        def busy() -> float:
            metrics = {m["name"]: m["value"] for m in devtools.send("Performance.getMetrics")["metrics"]}
            return float(metrics["TaskDuration"])

        begun = busy()
        seen = page.evaluate(LOOK, [FRAMES, CHARTS])
        busy_share = (busy() - begun) / FRAMES
        chromium.close()
    if seen["frozen"]:
        raise RuntimeError(f"In the browser these charts did not grow: {', '.join(seen['frozen'])}.")
    return {"frames": seen["frames"], "blank": seen["blank"], "busy": busy_share}


# --- What is written ------------------------------------------------------------------------------------------------

HEAD = ["", "p50 ms", "p95 ms", "max ms", "kB a tick", "server, cores", "workers, cores", "rounds/s", "server, MB"]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bars(found: Measured) -> list[list[str]]:
    """Each bar, what was found, and whether it holds."""
    first, last = found.growth[0], found.growth[-1]
    load = {row.what: row for row in found.load}
    slow = 1 - load["1 viewers"].rounds_per_second / load["0 viewers"].rounds_per_second
    latency = MOST_LATENCY[found.executor]
    checked = [
        ("bytes a tick, 20,000 against 200 rounds", last.size / first.size, MOST_GROWTH, "{:.2f} times"),
        ("server time a tick, 20,000 against 200 rounds", last.milliseconds / first.milliseconds, MOST_GROWTH, "{:.2f} times"),
        ("bytes of a tick of the whole page", max(row.size for row in found.growth), MOST_BYTES, "{:,.0f}"),
        ("p95 latency with 20 viewers, ms", load["20 viewers"].p95, latency, "{:.0f}"),
        ("p95 latency with two runs and 20 viewers, ms", load["2 runs, 20 viewers"].p95, MOST_LATENCY_OF_TWO, "{:.0f}"),
        ("training slowed down by one viewer", slow, MOST_SLOWDOWN, "{:.2f}"),
    ]  # fmt: skip
    if found.frames:
        checked.append(("frames without a drawn chart in 12 s", found.frames["blank"], 0, "{:.0f}"))
    return [
        [what, form.format(value), form.format(most), "yes" if value <= most else "**no**"]
        for what, value, most, form in checked
    ]


def machine(load: float) -> str:
    """Where it was measured, and when."""
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    ) if Path("/proc/cpuinfo").exists() else platform.processor()  # fmt: skip
    return (
        f"On {processor}, {os.cpu_count()} cores, load {load:.1f} before it began, Python {platform.python_version()}, "
        f"{time.strftime('%Y-%m-%d')}. Server, viewers and browser share the machine."
    )


def memory_page(found: dict[str, list[tuple[float, float]]], load: float) -> str:
    """How much memory the server had, by executor."""
    parts = [
        "# Memory of a server that streams\n\nMade by `python benchmarks/live.py --soak MINUTES --save`: 20 viewers of one run of "
        f"over {GROWTH[-1]:,} rounds, which goes on at two a second. {machine(load)}"
    ]
    for executor, memory in found.items():
        settled = next((megabytes for minutes, megabytes in memory if minutes >= 2), memory[-1][1])
        ratio = memory[-1][1] / settled
        parts.append(f"## Executor `{executor}`")
        parts.append(
            f"At the end {ratio:.2f} times that after two minutes; allowed {MOST_MEMORY:.2f} times: "
            f"{'holds' if ratio <= MOST_MEMORY else '**does not hold**'}."
        )
        parts.append(table(["minutes", "server, MB"], [[f"{m:.1f}", f"{mb:.0f}"] for m, mb in memory]))
    return "\n\n".join(parts) + "\n"


def page(all_found: list[Measured], load: float) -> str:
    parts = [
        "# How live pages stream\n\nMade by `python benchmarks/live.py --save`, which says what is measured and how. "
        f"{machine(load)}"
    ]
    for found in all_found:
        parts.append(f"## Executor `{found.executor}`")
        parts.append(table(["bar", "found", "allowed", "holds"], bars(found)))
        parts.append(
            table(
                ["one viewer, 2 rounds a second", "server ms a tick", "kB a tick", "kB of the five charts"],
                [
                    [r.what, f"{r.milliseconds:.1f}", f"{r.size / 1e3:.1f}", f"{r.charts / 1e3:.1f}"]
                    for r in found.growth
                ],
            )
        )
        parts.append(table(HEAD, [row.cells() for row in found.load]))
        if found.frames:
            parts.append(
                f"Chromium, {FRAMES} s: {found.frames['frames']:.0f} frames, {found.frames['blank']:.0f} of them without all five "
                f"charts; {1e3 * TICK * found.frames['busy']:.0f} ms of its main thread a tick."
            )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", nargs="+", default=["thread", "process"], choices=["thread", "process"])
    parser.add_argument("--seconds", type=float, default=8, help="how long each number is measured (default: 8)")
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES", help="only watch memory, for so long")
    parser.add_argument("--save", action="store_true", help=f"write {PAGE.name} or {MEMORY_PAGE.name}")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))  # and with it the server
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"load before it begins: {load:.1f}", flush=True)
    if options.soak:
        memory = {}
        for executor in options.executors:
            with serving(executor) as server:
                memory[executor] = asyncio.run(soaked(server, options.soak))
        put(memory_page(memory, load), MEMORY_PAGE, options.save)
        return
    found = []
    for executor in options.executors:
        print(f"\n{executor}: {', '.join(HEAD[1:])}", flush=True)
        with serving(executor) as server:
            result = asyncio.run(measured(executor, server, options.seconds))
            result.frames = browser(server, asyncio.run(new_run(server)))
            found.append(result)
    put(page(found, load), PAGE, options.save)


def put(text: str, path: Path, save: bool) -> None:
    """Print it, and keep it where that is wanted."""
    print(f"\n{text}")
    if save:
        path.write_text(text, encoding="utf-8")


async def new_run(server: Server) -> str:
    """The id of a run that goes on for as long as somebody wants to look at it."""
    run = await start(server, PLANNED * GROWTH[-1], seed=3)
    await run.pace("50/s")
    await run.socket.close()
    return parse_qs(run.query)["run"][0]


if __name__ == "__main__":
    main()
