"""Does a server keep every run whole, whatever happens to it? `python tests/soak.py` (two minutes), `--minutes 30` for longer.

Ten clients start, pause, step, resume, fork, stop, rename, copy and delete tiny runs at random, while the server and its workers are
killed without warning several times. Then every run must be in a legal state, what is stored of it must be gap-free and
equal to a run that nobody disturbed, and memory, threads and processes of a server must be back where they were.

With `--calm` nothing is killed: one server lives through hundreds of runs, and what it holds after the first quarter of the time
(memory, its own and its workers', threads, processes, files, connections to the database, runs) is what it holds at the end.

The server is a process of its own that takes one command a line; it ends in exit code 0 when all is as it should be, else 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import queue
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from fedviz.config import ConfigError, SimulationConfig  # noqa: E402
from fedviz.runs import Limits, Refused, Run, RunManager, RunState, RunStore, StoreError, Visitor, export  # noqa: E402
from fedviz.runs.pairs import Pair  # noqa: E402
from fedviz.runs.processes import Worker  # noqa: E402
from tests.runs.fakes import config  # noqa: E402

CLIENTS = 10
ALGORITHMS = ("fedavg", "fedvarp", "scaffold", "fedprox", "mifa")
MEMORY_GROWTH = 60_000_000  # bytes that a server may keep: caches and the runs that it holds in memory
CALM_GROWTH = 25_000_000  # ... once it has them: of itself and of each worker
MOST_WORKERS = 3  # that wait when nothing runs: for a run, its reference and a spare one
MOST_HELD = 100  # runs in memory: 32 that have ended, their references, and those that a look at them has made
LIVES_OF_SERVER = 25.0, 45.0  # seconds from one killing to the next
LIVES_OF_WORKERS = 8.0, 16.0  # those that wait or start are killed, too


# --- the server


def serve(home: Path, executor: str) -> None:
    """Takes lines [number, command, ...], in as many threads as clients; answers lines [number, answer]."""
    limits = Limits(hosted=True, executor=executor, concurrent=3, queue_length=40, queued_per_visitor=8)  # type: ignore[arg-type]
    manager = RunManager(RunStore(home / "runs.sqlite"), limits=limits)
    commands: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
    speaking = threading.Lock()

    def work() -> None:
        while (line := commands.get()) is not None:
            number, command, *arguments = line
            try:
                answer = COMMANDS[command](manager, *arguments)
            except (Refused, ConfigError, KeyError, StoreError) as error:
                answer = {"refused": f"{type(error).__name__}: {error}"}
            except Exception as error:  # told to the one who asked, who counts it as a fault
                answer = {"fault": f"{type(error).__name__}: {error}"}
            with speaking:
                print(json.dumps([number, answer]), flush=True)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    print(json.dumps([0, "ready"]), flush=True)
    for line in sys.stdin:
        commands.put(json.loads(line))
    for _ in threads:
        commands.put(None)
    for thread in threads:
        thread.join(5)
    manager.shutdown()


def _submit(manager: RunManager, who: str, seed: int, pair: bool) -> dict[str, Any]:
    chosen = tiny(random.Random(seed))
    other = SimulationConfig.read({**chosen.to_dict(), "algorithm": {"name": "fedavg"}}) if pair else None
    return {"id": manager.submit(chosen, other, visitor=Visitor(who)).id}


def _fork(manager: RunManager, who: str, run_id: str, seed: int) -> dict[str, Any]:
    chance, parent = random.Random(seed), manager.get(run_id)
    if parent is None or parent.round < 0:
        raise Refused("nothing to fork")
    algorithm = {"name": chance.choice(ALGORITHMS)}
    changed = {"algorithm": algorithm, "client_lr": chance.choice((0.02, 0.1))}
    chosen = SimulationConfig.read({**parent.config.to_dict(), **changed})
    return {"id": manager.fork(run_id, chance.randint(0, parent.round), chosen, visitor=Visitor(who)).id}


def _copy(manager: RunManager, who: str, run_id: str) -> dict[str, Any]:
    """Export a run and import it again."""
    run = manager.get(run_id)
    if run is None or run.parent_id is not None:  # an exported fork has no parent, and could not be computed again
        raise Refused("nothing to copy")
    return {"id": manager.import_run(json.dumps(export.to_json(run)).encode(), Visitor(who)).id}


def _control(manager: RunManager, who: str, what: str, run_id: str, *arguments: Any) -> str:
    visitor = Visitor(who)
    manager.rename(run_id, *arguments, visitor) if what == "rename" else getattr(manager, what)(
        run_id, visitor, *arguments
    )
    return "done"


def _stop_all(manager: RunManager) -> int:
    admin = Visitor("admin", admin=True)
    live = [run for run in manager.runs(admin, everyone=True) if run.live]
    for run in live:
        manager.stop(run.id, admin)
    return len(live)


def _measure(_: RunManager) -> dict[str, Any]:
    this = psutil.Process()
    workers = this.children(recursive=True)
    gc.collect()
    held = Counter(
        type(each).__name__ for each in gc.get_objects() if isinstance(each, Run | Pair | Worker | sqlite3.Connection)
    )
    return {
        "threads": sorted(thread.name.split("-")[1] for thread in threading.enumerate() if thread.name.startswith("fedviz")),
        "workers": len(workers),
        "memory": this.memory_info().rss,
        "memory of a worker": max((worker.memory_info().rss for worker in workers), default=0),
        "files": this.num_fds() - 2 * len(workers),  # each has two pipes
        "connections": held["Connection"],
        "runs": held["Run"],
        "pairs": held["Pair"],
        "dead workers": held["Worker"] - len(workers),
    }  # fmt: skip


COMMANDS: dict[str, Any] = {
    "submit": _submit,
    "fork": _fork,
    "copy": _copy,
    "control": _control,
    "stop all": _stop_all,
    "measure": _measure,
}


def tiny(chance: random.Random) -> SimulationConfig:
    """One of a few hundred configs."""
    rounds = chance.choice((20, 60, 300))
    algorithm = chance.choice(ALGORITHMS)
    return config(algorithm, rounds, seed=chance.randrange(5), eval_every=5, probe_every=chance.choice((0, 25)))


# --- who asks it


class Server:
    """A server process, started again whenever it was killed. Any thread may ask it."""

    def __init__(self, home: Path, executor: str) -> None:
        self.home, self.executor, self.deaths = home, executor, 0
        self._changed = threading.Condition()
        self._answers: dict[int, Any] = {}
        self._number = 0
        self._start()

    def ask(self, command: str, *arguments: Any) -> Any:
        """The answer; None where the server was killed before it gave one."""
        with self._changed:
            self._number += 1
            number, process, deadline = self._number, self.process, time.monotonic() + 30
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps([number, command, *arguments]) + "\n")
                process.stdin.flush()
            except OSError:
                return None
            while number not in self._answers:
                if process is not self.process or process.poll() is not None:
                    return None
                assert time.monotonic() < deadline, f"no answer to {command} {arguments} in 30 seconds"
                self._changed.wait(0.2)
            return self._answers.pop(number)

    def kill_and_start_again(self) -> list[psutil.Process]:
        """The workers that it had."""
        workers = self.workers()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.deaths += 1
        self._start()
        return workers

    def workers(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            return []

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(self.home), "--executor", self.executor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.home / "log").open("a"),
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == [0, "ready"]
        with self._changed:
            self.process = process
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                number, answer = json.loads(line)
                with self._changed:
                    self._answers[number] = answer
                    self._changed.notify_all()


class Client(threading.Thread):
    """Does this and that with runs of its own, and tries to control those of others."""

    def __init__(self, number: int, server: Server, runs: dict[str, str], until: float) -> None:
        super().__init__(daemon=True)
        self.who, self.server, self.runs, self.until = f"client{number}", server, runs, until
        self.chance = random.Random(number)
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        while time.monotonic() < self.until:
            try:
                self._act()
            except Exception as error:
                self.faults.append(f"{type(error).__name__}: {error}")
            time.sleep(self.chance.uniform(0, 0.6))

    def _act(self) -> None:
        chance, mine = self.chance, [run_id for run_id, who in list(self.runs.items()) if who == self.who]
        what = chance.choices(
            ("submit", "fork", "pause", "step", "resume", "stop", "set_pace", "steal", "copy", "rename", "delete"),
            (5, 3, 3, 6, 9, 1, 2, 1, 1, 1, 2),
        )[0]
        if what == "submit" or not mine:
            answer = self.server.ask("submit", self.who, chance.randrange(10**6), chance.random() < 0.3)
        elif what == "fork":
            answer = self.server.ask("fork", self.who, chance.choice(list(self.runs)), chance.randrange(10**6))
        elif what == "copy":
            answer = self.server.ask("copy", self.who, chance.choice(list(self.runs)))
        elif what == "steal":
            others = [run_id for run_id, who in list(self.runs.items()) if who != self.who]
            if not others:
                return
            answer = self.server.ask("control", self.who, "stop", chance.choice(others))
            if answer == "done":
                self.faults.append("a run of somebody else could be stopped")
        else:
            more = {"set_pace": [chance.choice((20.0, 200.0, None))], "rename": [f"run {chance.randrange(99)}"]}.get(
                what, []
            )
            among = mine if what == "delete" else mine[-6:]
            answer = self.server.ask("control", self.who, what, chance.choice(among), *more)
        if isinstance(answer, dict) and "id" in answer:
            self.runs[answer["id"]] = self.who
        if isinstance(answer, dict) and "fault" in answer:
            self.faults.append(f"{what}: {answer['fault']}")
        refused = isinstance(answer, dict) and "refused" in answer
        self.done[f"{what}{' (refused)' if refused else ' (killed)' if answer is None else ''}"] += 1


# --- what must be true afterwards


@cache
def undisturbed(text: str) -> list[dict[str, Any]]:
    """The records of a config when nobody interferes."""
    from fedviz.simulation.loop import simulate

    return [comparable(record.to_dict()) for record in simulate(SimulationConfig.read(text))]


def forked(legs: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The records of a chain of forks, (config, last round) each, when nobody interferes."""
    from fedviz.simulation.loop import Simulation

    simulation, records = Simulation(SimulationConfig.read(legs[0][0])), []
    records.append(comparable(simulation.first().to_dict()))
    for place, (_, last) in enumerate(legs):
        while simulation.round < last:
            records.append(comparable(simulation.advance(simulation.round + 1).to_dict()))
        if place + 1 < len(legs):
            following = Simulation(SimulationConfig.read(legs[place + 1][0]))
            following.take_over(simulation)
            simulation = following
    return records


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "costs": {**record["costs"], "seconds": None}}


def faults_of_store(store: RunStore) -> tuple[list[str], Counter[str], int]:
    """(what is wrong with the stored runs, how many are in which state, how many records were compared)."""
    faults: list[str] = []
    states: Counter[str] = Counter()
    compared = 0
    rows = {row.id: row for row in store._rows("")}
    for row in rows.values():
        states[str(row.state)] += 1
        if row.state.live:
            faults.append(f"{row.id} is {row.state} though nothing computes it")
        if row.state in (RunState.FAILED, RunState.DIVERGED):
            faults.append(f"{row.id} {row.state}: {row.message}")
        found = [comparable(record) for record in store.records(row.id).dicts()]
        rounds = SimulationConfig.read(row.config).rounds
        if [record["round"] for record in found] != list(range(len(found))):
            faults.append(f"{row.id} has gaps")
        if row.state is RunState.FINISHED and len(found) != rounds + 1:
            faults.append(f"{row.id} is finished with {len(found)} of {rounds + 1} records")
        legs, each, last = [(row.config, rounds)], row, rounds
        while each.parent_id is not None and each.forked_at is not None:
            parent, last = rows[each.parent_id], min(last, each.forked_at)
            if parent.forked_at is None or last > parent.forked_at:
                legs.insert(0, (parent.config, last))
            each = parent
        expected = undisturbed(row.config) if len(legs) == 1 else forked([*legs[:-1], (row.config, len(found) - 1)])
        if found != expected[: len(found)]:
            wrong = next(index for index, record in enumerate(found) if record != expected[index])
            faults.append(f"{row.id} is not what an undisturbed run has, from round {wrong} on")
        compared += len(found)
    return faults, states, compared


def soak(minutes: float, executor: str, home: Path, *, calm: bool) -> list[str]:
    """Everything; what went wrong."""
    server, runs, faults = Server(home, executor), {}, []
    done: Counter[str] = Counter()
    if calm:
        done += play(server, runs, faults, minutes / 4, calm=True)
    settled = rest(server)
    done += play(server, runs, faults, minutes * 3 / 4 if calm else minutes, calm=calm)
    after = rest(server)
    server.end()
    faults += grown(settled, after) if calm else left_behind(settled, after, executor)
    store = RunStore(home / "runs.sqlite")
    wrong, states, compared = faults_of_store(store)
    store.close()
    print(
        f"{executor}: {sum(states.values())} runs, {server.deaths} servers and {done.pop('a worker', 0)} workers killed"
    )
    print(f"  states: {dict(states)}; {compared:,} records compared")
    print(f"  asked: {dict(sorted(done.items()))}")
    print(f"  at first {settled}")
    print(f"  at last  {after}")
    return faults + wrong


def play(server: Server, runs: dict[str, str], faults: list[str], minutes: float, *, calm: bool) -> Counter[str]:
    """Have clients do this and that for so long, and kill servers and workers meanwhile; what was done how often."""
    until, chance = time.monotonic() + 60 * minutes, random.Random(0)
    clients = [Client(number, server, runs, until) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    killed: Counter[str] = Counter()
    next_death = time.monotonic() + chance.uniform(*LIVES_OF_SERVER)
    next_of_worker = time.monotonic() + chance.uniform(*LIVES_OF_WORKERS)
    while time.monotonic() < until:
        time.sleep(0.5)
        if calm:
            continue
        if time.monotonic() > next_death:
            left = psutil.wait_procs(server.kill_and_start_again(), 5)[1]
            faults += [f"worker {process.pid} outlived its server" for process in left]
            next_death = time.monotonic() + chance.uniform(*LIVES_OF_SERVER)
        elif time.monotonic() > next_of_worker and (workers := server.workers()):
            next_of_worker = time.monotonic() + chance.uniform(*LIVES_OF_WORKERS)
            try:
                chance.choice(workers).send_signal(signal.SIGKILL)
                killed["a worker"] += 1
            except psutil.Error:
                continue
    for client in clients:
        client.join(60)
        faults += [f"{client.who}: {fault}" for fault in client.faults]
    server.ask("stop all")
    return sum((client.done for client in clients), killed)


def left_behind(settled: dict[str, Any], after: dict[str, Any], executor: str) -> list[str]:
    """What a server has that one just started has not."""
    faults = []
    ours = [sorted(set(each["threads"])) for each in (settled, after)]
    if ours[0] != ours[1] or after["workers"] > MOST_WORKERS or after["threads"].count("worker") != after["workers"]:
        faults.append(f"left behind: threads {after['threads']} and {after['workers']} workers, at first {settled}")
    if after["memory"] > settled["memory"] + MEMORY_GROWTH + (600_000_000 if executor == "thread" else 0):  # PyTorch
        faults.append(f"memory {after['memory']:,}, at first {settled['memory']:,}")
    return faults


def grown(settled: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What a server has that it had not when it was warm."""
    allowed = {
        "memory": CALM_GROWTH,
        "memory of a worker": CALM_GROWTH,
        "runs": max(0, MOST_HELD - settled["runs"]),
        "workers": 1,  # three wait after a run with a reference
        "threads": 1,  # ... and what one says is heard by a thread
        "dead workers": 1,  # the one that was started last, whatever became of it
        "files": CLIENTS,  # SQLite keeps one for as many readers as there ever were at once, lest locks be lost
    }
    counts = [{**each, "threads": len(each["threads"])} for each in (settled, after)]
    return [
        f"{name}: {counts[1][name]:,}, at first {first:,}"
        for name, first in counts[0].items()
        if counts[1][name] > first + allowed.get(name, 0)
    ]


def rest(server: Server) -> dict[str, Any]:
    """What a server has when nothing runs: measured when it no longer changes, at most 20 seconds later."""
    deadline, before = time.monotonic() + 20, None
    while True:
        time.sleep(1)
        now = server.ask("measure")
        if now is not None and "fault" not in now:  # a worker that ended while it was looked at
            if before is not None and now["threads"] == before["threads"] and "run" not in now["threads"]:
                return dict(now)
            before = now
        assert time.monotonic() < deadline, f"it does not come to rest: {now}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long (2)")
    parser.add_argument("--executor", choices=("thread", "process"), help="only this one; else half the time each")
    parser.add_argument("--keep", type=Path, help="a new folder for the store, kept afterwards; else a temporary one")
    parser.add_argument("--calm", action="store_true", help="kill nothing, and see that nothing grows")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve, chosen.executor)
        return 0
    faults = []
    executors = [chosen.executor] if chosen.executor else ["thread", "process"]
    for executor in executors:
        home = (chosen.keep or Path(tempfile.mkdtemp(prefix="fedviz-soak-"))) / executor
        home.mkdir(parents=True)
        minutes = chosen.minutes / len(executors)
        faults += [f"{executor}: {fault}" for fault in soak(minutes, executor, home, calm=chosen.calm)]
        if not chosen.keep:
            shutil.rmtree(home.parent, ignore_errors=True)
    for fault in faults[:40]:
        print(f"FAULT {fault}")
    print("All runs are whole." if not faults else f"{len(faults)} faults.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
