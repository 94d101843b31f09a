"""Install fedviz and start it, or test it, with one command and nothing but Python.

    python bootstrap.py run      make .venv, install requirements.txt, start the dashboard
    python bootstrap.py test     the same with requirements-dev.txt, then lint, types, imports and tests
    python bootstrap.py install  what `run` does before it starts anything: for an image, or a service
    python bootstrap.py health   whether the dashboard answers: for whoever restarts it if not

What was installed is written to a stamp inside .venv, so that the next call starts in seconds. An installation that was
cut off leaves a marker there instead, and the next call makes .venv anew.

Only the standard library is used, and the syntax is kept to what Python 3.8 can read, so that an older Python gets to
the sentence that says which one is needed. Decisions are functions of their arguments (tested in
tests/test_bootstrap.py); what touches the machine stands below them.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "fedviz-installed.json"
UNFINISHED = VENV / "fedviz-unfinished"

OLDEST_PYTHON = (3, 11)
VERSION = sys.version_info[:2]
TORCH_CHOICES = ("auto", "cpu", "cuda", "default")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CUDA_INDEX = "https://download.pytorch.org/whl/cu130"
FIRST_PORT = 8501

HELP = """\
Installs what fedviz needs into .venv beside this file, then starts or tests it.

  python bootstrap.py run                      start the dashboard
  python bootstrap.py run --port 9000          ... at another port
  python bootstrap.py install                  install, and start nothing
  python bootstrap.py health --port 9000       0 where a dashboard at this port answers, else 1
  python bootstrap.py test                     run every check
  python bootstrap.py test --no-browser        ... without the tests that need a browser
  python bootstrap.py test --only tests -k scaffold -x
"""

ENVIRONMENT_HELP = """\
environment variables:
  FEDVIZ_TORCH      which PyTorch to install: cpu (0.2 GB), cuda (about 3 GB), or default (whatever the default
                    package index holds). Unset: cuda where there is an NVIDIA driver, else cpu.
  FEDVIZ_HOSTED     1: strangers may come. The dashboard listens on all interfaces, not on this machine alone, with
                    strict limits (DEPLOY.md).
  FEDVIZ_CHROMIUM   path of the Chromium or Chrome that the browser tests use. Unset: looked for.

To start afresh, delete .venv.
"""


class Stop(Exception):
    """Ends the program with a message for the person at the keyboard, and an exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Terminated(KeyboardInterrupt):
    """Someone asked this process to end (SIGTERM), as a system does that shuts down."""


def on_sigterm(*_: object) -> None:
    """End as Ctrl-C does, so that no server is left behind."""
    raise Terminated


# --- Decisions: which Python, which PyTorch ---------------------------------------------------------------------------


def python_complaint(version: Sequence[int]) -> str | None:
    """What is wrong with this Python version, or None."""
    if tuple(version) >= OLDEST_PYTHON:
        return None
    needed, got = (".".join(str(part) for part in v) for v in (OLDEST_PYTHON, version))
    return (
        f"fedviz needs Python {needed} or newer; this is Python {got}.\n"
        "Get one from https://www.python.org/downloads/ or your system's packages,\n"
        f"then start this file with it, for example: python{needed} bootstrap.py run"
    )


def torch_choice(environ: Mapping[str, str]) -> str:
    """The value of FEDVIZ_TORCH, "auto" when it is unset or empty."""
    choice = environ.get("FEDVIZ_TORCH") or "auto"
    if choice not in TORCH_CHOICES:
        raise Stop(f"FEDVIZ_TORCH is {choice!r}; it can be cpu, cuda or default, or unset to let fedviz choose.", 2)
    return choice


def torch_index(build: str, system: str) -> str | None:
    """The package index that holds a PyTorch build ("cpu", "cuda", "default"); None is pip's default index.

    The default index holds the CUDA build for Linux and the CPU build for Windows and macOS.
    """
    if build == "cuda" and system == "Darwin":
        raise Stop("FEDVIZ_TORCH is 'cuda', but there is no CUDA on macOS. Unset it, or set it to default.", 2)
    return {("cpu", "Linux"): CPU_INDEX, ("cuda", "Windows"): CUDA_INDEX}.get((build, system))


class TorchSource(NamedTuple):
    """Where PyTorch comes from: the index's URL (None is pip's default), the disk space needed in all, what to tell."""

    url: str | None
    disk_gb: int
    note: str


def torch_source(
    choice: str, system: str, has_driver: Callable[[], bool], answers: Callable[[str], bool]
) -> TorchSource:
    """Choose where PyTorch comes from.

    A forced choice is kept or refused. Left alone, the smallest build that uses the machine is wanted, and the default
    index is taken at once where the index that holds it does not answer: it always has some build that works.
    `has_driver` and `answers` are called only where the decision hangs on them, since they cost seconds.
    """
    build = choice
    if choice == "auto":
        build = "cuda" if system != "Darwin" and has_driver() else "cpu"
    index = torch_index(build, system)
    large = TorchSource(None, 9, "Installing the default build of PyTorch (about 3 GB to download).")
    small = TorchSource(None, 2, "Installing PyTorch (about 0.2 GB to download).")
    default = large if system == "Linux" else small

    if index is None:
        return default
    if answers(index):
        if build == "cuda":
            return large._replace(url=index, note="Installing PyTorch with CUDA (about 3 GB to download).")
        return small._replace(url=index, note="Installing PyTorch for the CPU (about 0.2 GB to download).")
    if choice != "auto":
        raise Stop(
            f"FEDVIZ_TORCH is {choice!r}, but the index that holds this build does not answer: {index}\n"
            "Check the network and try again, or take the default index's build with FEDVIZ_TORCH=default."
        )
    size = "about 3 GB instead of 0.2 GB" if system == "Linux" else "for the CPU, about 0.2 GB"
    return default._replace(note=f"{index} does not answer: taking PyTorch from the default index ({size}).")


# --- Decisions: what to install, and whether --------------------------------------------------------------------------


def read_requirements(path: Path) -> list[str]:
    """The requirements of a file, `-r` lines followed, comments and blank lines dropped."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        requirement = re.sub(r"(^|\s)#.*", "", line).strip()
        if requirement.startswith("-r "):
            found += read_requirements(path.parent / requirement[3:].strip())
        elif requirement:
            found.append(requirement)
    return found


def pip_installs(requirements: Sequence[str], index: str | None) -> list[list[str]]:
    """The arguments of the `pip install` calls, in order.

    torch and torchvision always stand in one call: torchvision works with exactly one torch, and only a call that
    sees both picks a pair. From an index of PyTorch's own comes nothing but that pair (and those of its dependencies
    that the first call has not brought).
    """
    if index is None:
        return [list(requirements)]
    pair = [r for r in requirements if re.match(r"torch(vision)?\b(?!-)", r)]
    others = [r for r in requirements if r not in pair]
    return [others, ["--index-url", index, *pair]]


def fingerprints(files: Mapping[str, str], version: Sequence[int]) -> dict[str, str]:
    """What an installation must have been made from to be good: {"python": "3.11", file name: hash of its text}."""
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    return {"python": ".".join(str(part) for part in version), **hashes}


def is_installed(stamp: Mapping[str, str | None], wanted: Mapping[str, str]) -> bool:
    """Whether the stamp covers what is wanted; it may cover more (after `test`, `run` has nothing to install)."""
    return all(stamp.get(key) == value for key, value in wanted.items())


class Environment(NamedTuple):
    """What stands at .venv."""

    exists: bool
    unfinished: bool  # an installation was cut off
    runs: bool  # its Python is there
    python: str  # "3.11", or "" if it does not say
    stamp: Mapping[str, str | None]


def reason_to_remake(found: Environment, version: Sequence[int], choice: str, system: str) -> str | None:
    """Why .venv can't be used as it stands, or None.

    One that somebody made by hand, without a stamp, is used: pip adds what it lacks. PyTorch's build is only changed by
    starting afresh, since any build satisfies pip. FEDVIZ_TORCH left unset is content with the build that is there.
    """
    if not found.exists:
        return None
    if found.unfinished:
        return "The last installation was cut off"
    if not found.runs:
        return "The Python that .venv was made with is gone"
    current = ".".join(str(part) for part in version)
    if found.python != current:
        return f".venv was made with Python {found.python or 'of another version'}, this is Python {current}"
    if choice != "auto" and found.stamp and found.stamp.get("torch") != torch_index(choice, system):
        return f"FEDVIZ_TORCH asks for another build of PyTorch ({choice})"
    return None


class PipFailure(NamedTuple):
    """Why pip failed: what its output shows, what to tell, and whether .venv was left as it was."""

    pattern: str
    advice: str
    harmless: bool  # pip fetches everything before it installs anything


# The first that fits is told. Without a network pip also says that it found no matching distribution: that comes last.
PIP_FAILURES = (
    PipFailure(
        r"No space left on device|Errno 28|WinError 112|not enough space",
        "The disk is full. Make room, or move this folder to a larger disk, and try again.",
        harmless=False,
    ),
    PipFailure(
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError",
        "The package index's certificate was refused, as happens behind a company's proxy.\n"
        "Tell pip about the proxy's certificate (pip config set global.cert FILE) and try again.",
        harmless=True,
    ),
    PipFailure(
        r"NewConnectionError|NameResolutionError|name resolution|getaddrinfo failed|Network is unreachable"
        r"|ConnectTimeout|ReadTimeout|ProxyError|Max retries exceeded|Connection refused|Connection broken",
        "The package index could not be reached. Check the network (behind a proxy: set HTTPS_PROXY) and try again.",
        harmless=True,
    ),
    PipFailure(
        r"No matching distribution found|Could not find a version",
        "A package, most often PyTorch, has no release for this Python on this machine.\n"
        "PyTorch wants a 64-bit Python, not newer than the newest it has releases for, and no Intel Mac:\n"
        "see https://pytorch.org/get-started/locally/. With another Python: PYTHON bootstrap.py run",
        harmless=True,
    ),
)


def pip_failure(output: str) -> PipFailure:
    """Why pip failed, read from its output."""
    unknown = PipFailure("", "pip could not install the packages; its message stands above.", harmless=False)
    return next((failure for failure in PIP_FAILURES if re.search(failure.pattern, output)), unknown)


# --- Decisions: the browser, the checks -------------------------------------------------------------------------------


BROWSER_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
MAC_BROWSERS = ("Google Chrome", "Chromium", "Microsoft Edge")
WINDOWS_BROWSERS = (
    r"Google\Chrome\Application\chrome.exe",
    r"Chromium\Application\chrome.exe",
    r"Microsoft\Edge\Application\msedge.exe",
)


def find_browser(
    environ: Mapping[str, str], system: str, which: Callable[[str], str | None], is_file: Callable[[str], bool]
) -> str | None:
    """Path of a Chromium, Chrome or Edge for the browser tests, or None."""
    chosen = environ.get("FEDVIZ_CHROMIUM")
    if chosen:
        if not is_file(chosen):
            raise Stop(f"FEDVIZ_CHROMIUM is {chosen!r}, but there is no such file. Correct or unset it.", 2)
        return chosen
    for name in BROWSER_PROGRAMS:
        path = which(name)
        if path:
            return path
    places = []
    if system == "Darwin":
        places = [f"/Applications/{app}.app/Contents/MacOS/{app}" for app in MAC_BROWSERS]
    if system == "Windows":
        folders = [environ[key] for key in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA") if key in environ]
        places = [folder + "\\" + program for program in WINDOWS_BROWSERS for folder in folders]
    return next((place for place in places if is_file(place)), None)


class Check(NamedTuple):
    """One of the checks of `test`: the part it belongs to, its name, and its command."""

    part: str
    name: str
    command: list[str]


PARTS = ("lint", "types", "imports", "tests")


def checks(only: Sequence[str], browser: bool, pytest_arguments: Sequence[str], programs: Path) -> list[Check]:
    """The checks to run, quickest first; `programs` is the folder of .venv's programs."""
    python = str(programs / "python")
    marker = [] if browser else ["-m", "not browser"]
    # On all cores, unless somebody looks for something; a file's tests stay together, for they share a server.
    spread = [] if pytest_arguments else ["--numprocesses", "auto", "--dist", "loadfile"]
    every = [
        Check("lint", "ruff check", [python, "-m", "ruff", "check", "."]),
        Check("lint", "ruff format", [python, "-m", "ruff", "format", "--check", "."]),
        Check("types", "mypy", [python, "-m", "mypy"]),
        Check("imports", "lint-imports", [str(programs / "lint-imports")]),
        Check("tests", "pytest", [python, "-m", "pytest", *spread, *marker, *pytest_arguments]),
    ]
    return [check for check in every if not only or check.part in only]


def quiet_threads(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with numeric libraries held to one thread each, unless it says otherwise.

    The tests' tensors are small: more threads only wait for one another, and results depend on their number.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**dict.fromkeys(names, "1"), **environ}


# --- The machine ------------------------------------------------------------------------------------------------------


def say(message: str) -> None:
    """Print at once: the programs started next write to the same place."""
    print(message, flush=True)


def has_nvidia_driver() -> bool:
    """Whether this machine can run a CUDA build: a driver is loaded, or `nvidia-smi` finds one."""
    if Path("/proc/driver/nvidia/version").exists():
        return True
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        return subprocess.run([tool], capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def index_answers(index: str, seconds: float = 4.0) -> bool:
    """Whether a package index answers in time.

    In a thread of its own, since looking up a host's name knows no time limit.
    """
    answered = []

    def ask() -> None:
        request = urllib.request.Request(index + "/torch/", method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=seconds):
                answered.append(True)
        except (OSError, ValueError):
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answered)


def programs_folder() -> Path:
    """Where .venv keeps its programs."""
    return VENV / ("Scripts" if os.name == "nt" else "bin")


def venv_python() -> str:
    """Path of .venv's Python."""
    return str(programs_folder() / ("python.exe" if os.name == "nt" else "python"))


def call(command: Sequence[str], environ: Mapping[str, str] | None = None, errors: list[str] | None = None) -> int:
    """Run a program to its end and return its exit code; what interrupts us ends the program first.

    With `errors`, the last lines it writes to stderr are also put there.
    """
    pipe = None if errors is None else subprocess.PIPE
    child = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=pipe, encoding="utf-8", errors="replace")
    try:
        if child.stderr is not None and errors is not None:
            last: collections.deque[str] = collections.deque(maxlen=100)
            for line in child.stderr:
                sys.stderr.write(line)
                last.append(line)
            errors += last
        return child.wait()
    except KeyboardInterrupt as reason:
        # A Ctrl-C in the terminal has reached the program too: it gets time to tidy up before it is made to stop.
        # A SIGTERM has reached this process alone.
        if isinstance(reason, Terminated):
            child.terminate()
        for ask_again in (child.terminate, child.kill):
            try:
                child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                ask_again()
        child.wait()
        raise


def look_at_venv() -> Environment:
    """See what stands at .venv."""
    try:
        made_with = re.search(r"^version\w*\s*=\s*(\d+\.\d+)", (VENV / "pyvenv.cfg").read_text(encoding="utf-8"), re.M)
    except OSError:
        made_with = None
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stamp = {}
    return Environment(
        exists=VENV.is_symlink() or VENV.exists(),
        unfinished=UNFINISHED.exists(),
        runs=Path(venv_python()).exists(),
        python=made_with.group(1) if made_with else "",
        stamp=stamp if isinstance(stamp, dict) else {},
    )


def remove_venv() -> None:
    """Delete .venv; where it is a link, only the link."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        raise Stop("It can't be made anew by its own Python: leave it (deactivate), and start this file again.")
    try:
        if VENV.is_symlink() or VENV.is_file():
            VENV.unlink()
        else:
            shutil.rmtree(VENV)
    except OSError as error:
        raise Stop(f"Could not delete .venv ({error}).\nStop what still runs from it, and try again.") from error


def make_venv() -> None:
    """Make an empty .venv, marked as unfinished."""
    if any(importlib.util.find_spec(module) is None for module in ("venv", "ensurepip")):
        raise Stop(
            "This Python can't make virtual environments: its venv or ensurepip module is missing.\n"
            "On Debian and Ubuntu: sudo apt install python3-venv\n"
            "Elsewhere: a Python from https://www.python.org/downloads/ has both."
        )
    VENV.mkdir(exist_ok=True)
    UNFINISHED.touch()
    errors: list[str] = []
    if call([sys.executable, "-m", "venv", str(VENV)], errors=errors) != 0:
        raise Stop(
            f"Could not make the virtual environment {VENV}.\n"
            "On Debian and Ubuntu, sudo apt install python3-venv usually mends this."
        )


def venv_has(package: str) -> bool:
    """Whether a package lies in .venv, without importing it."""
    return any(VENV.glob(f"lib/python*/site-packages/{package}")) or (VENV / "Lib/site-packages" / package).exists()


def verify_torch() -> None:
    """Import torch and torchvision once: a pair that does not match, or a missing system library, shows only there.

    Then have fedviz's own loops compiled, so that the first run needs not wait for it.
    """
    say("Checking that PyTorch works...")
    done = subprocess.run(
        [venv_python(), "-c", "import torch, torchvision"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        say("Compiling for this processor...")
        code = "import numpy; from fedviz.problems import kernels; kernels.compile_all(numpy.float32)"
        subprocess.run(
            [venv_python(), "-c", code], cwd=ROOT, capture_output=True, check=False
        )  # or the first run does it
        return
    reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    hint = {
        "Linux": "A missing lib*.so is a system package: libgomp, for one, is sudo apt install libgomp1.",
        "Windows": "A DLL that does not load is mended by https://aka.ms/vs/17/release/vc_redist.x64.exe",
    }.get(platform.system(), "")
    raise Stop(
        f"PyTorch was installed but can't be imported:\n  {reason}\n{hint}\n"
        "Then start again: .venv is made anew. With another build: FEDVIZ_TORCH=cpu, or FEDVIZ_TORCH=default."
    )


def install(files: Sequence[str], environ: Mapping[str, str]) -> None:
    """Bring .venv to what the requirements files say; at once where the stamp says that it is there."""
    choice, system = torch_choice(environ), platform.system()
    found = look_at_venv()
    reason = reason_to_remake(found, VERSION, choice, system)
    if reason:
        say(f"{reason}: making .venv anew.")
        remove_venv()
        found = look_at_venv()
    wanted = fingerprints({name: (ROOT / name).read_text(encoding="utf-8") for name in files}, VERSION)
    if is_installed(found.stamp, wanted):
        return

    if venv_has("torch"):
        index = found.stamp.get("torch")
    else:
        source = torch_source(choice, system, has_nvidia_driver, index_answers)
        free_gb = shutil.disk_usage(ROOT).free / 1e9
        if free_gb < source.disk_gb:
            raise Stop(
                f"{source.note}\nThat needs {source.disk_gb} GB of disk space, and {ROOT} has {free_gb:.1f} GB.\n"
                "Make room, or take the small build of PyTorch with FEDVIZ_TORCH=cpu, and try again."
            )
        say(f"{source.note} This is done once and takes some minutes.")
        index = source.url

    if not found.exists or reason:
        make_venv()
    UNFINISHED.touch()
    for arguments in pip_installs(read_requirements(ROOT / files[-1]), index):
        errors: list[str] = []
        command = [venv_python(), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *arguments]
        if call(command, environ, errors) != 0:
            failure = pip_failure("".join(errors))
            if failure.harmless:
                UNFINISHED.unlink()  # the next call goes on from here, and an older installation still runs
            raise Stop(failure.advice)
    verify_torch()
    STAMP.write_text(json.dumps({**found.stamp, **wanted, "torch": index}, indent=2) + "\n", encoding="utf-8")
    UNFINISHED.unlink()


# --- run --------------------------------------------------------------------------------------------------------------


def is_taken(port: int) -> bool:
    """Whether something on this machine listens at the port."""
    try:
        with socket.create_connection(("localhost", port), timeout=0.3):
            return True
    except OSError:
        return False


def choose_port(wanted: int | None, taken: Callable[[int], bool]) -> int:
    """The wanted port, else the first free one from 8501 up."""
    if wanted is not None:
        if taken(wanted):
            raise Stop(f"Port {wanted} is taken. Choose another with --port, or leave it out to get a free one.")
        return wanted
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        if not taken(port):
            return port
    raise Stop(f"Ports {FIRST_PORT} to {FIRST_PORT + 99} are all taken. Choose one with --port.")


def listening(environ: Mapping[str, str], streamlit_arguments: Sequence[str]) -> list[str]:
    """Where the server listens, as arguments: on all interfaces if it is hosted and nothing else is asked for."""
    hosted = environ.get("FEDVIZ_HOSTED", "0")
    if hosted not in ("", "0", "1"):
        raise Stop(f"FEDVIZ_HOSTED is {hosted!r}; it can be 1, or 0 or unset for this machine alone.", 2)
    asked = "STREAMLIT_SERVER_ADDRESS" in environ or any(
        argument.startswith("--server.address") for argument in streamlit_arguments
    )
    return ["--server.address", "0.0.0.0"] if hosted == "1" and not asked else []


def health(port: int, host: str = "localhost") -> int:
    """0 where a dashboard at this port says that it is well, 1 where it does not within five seconds."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{health_path(os.environ)}", timeout=5) as answer:
            return 0 if answer.status == 200 else 1
    except (OSError, ValueError) as error:
        say(f"No dashboard answers at port {port}: {error}")
        return 1


def health_path(environ: Mapping[str, str]) -> str:
    """Under the sub-path, if the server has one."""
    base = environ.get("STREAMLIT_SERVER_BASE_URL_PATH", "").strip("/")
    return f"/{base}/_stcore/health" if base else "/_stcore/health"


def run(port: int | None, streamlit_arguments: Sequence[str]) -> int:
    """Install, then serve the dashboard until Ctrl-C."""
    if any(argument.startswith("--server.port") for argument in streamlit_arguments):
        raise Stop("Choose the port with --port, so that the address shown here is the right one.", 2)
    address = listening(os.environ, streamlit_arguments)
    choose_port(port, is_taken)  # a port that is taken is better known before an installation that takes minutes
    install(["requirements.txt"], os.environ)
    port = choose_port(port, is_taken)
    command = [venv_python(), "-m", "streamlit", "run", "server.py", "--server.port", str(port)]
    command += [*address, *streamlit_arguments]
    where = " and for whoever reaches this machine" if address else ""
    say(f"Starting fedviz at http://localhost:{port}{where} (Ctrl-C stops it).")
    try:
        return call(command)
    except KeyboardInterrupt:
        say("\nfedviz has stopped.")
        return 0


# --- test -------------------------------------------------------------------------------------------------------------


def browser_for_tests(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that tell the tests which browser to use: none where Playwright brings its own."""
    path = find_browser(environ, platform.system(), shutil.which, os.path.isfile)
    if path:
        return {"FEDVIZ_CHROMIUM": path}
    say("No Chromium or Chrome found: letting Playwright fetch one.")
    if call([venv_python(), "-m", "playwright", "install", "chromium"], environ) == 0:
        return {}
    raise Stop(
        "The browser tests need Chromium or Chrome, and Playwright could not fetch one.\n"
        "Install it (Debian and Ubuntu: sudo apt install chromium), or name one with FEDVIZ_CHROMIUM,\n"
        "or leave these tests out: python bootstrap.py test --no-browser"
    )


def test(only: Sequence[str], browser: bool, pytest_arguments: Sequence[str]) -> int:
    """Install, run every check whatever became of the ones before, and tell which failed."""
    install(["requirements.txt", "requirements-dev.txt"], os.environ)
    environ = quiet_threads(os.environ)
    if browser and (not only or "tests" in only):
        environ.update(browser_for_tests(environ))

    failed = []
    for check in checks(only, browser, pytest_arguments, programs_folder()):
        say(f"\n--- {check.name}")
        start = time.monotonic()
        code = call(check.command, environ)
        if code != 0:
            failed.append(check)
        elif check.name != "pytest":  # pytest's own closing line stays the last one of a good run
            say(f"{check.name}: passed in {time.monotonic() - start:.1f} s")
    if failed:
        print(f"\nFailed: {', '.join(check.name for check in failed)}. To run one again alone:", file=sys.stderr)
        for check in failed:
            print(f"  {how_to_repeat(check, browser, pytest_arguments)}", file=sys.stderr)
    return 1 if failed else 0


def how_to_repeat(check: Check, browser: bool, pytest_arguments: Iterable[str]) -> str:
    """The command line that runs one check alone, from the project's folder."""
    if check.name != "pytest":
        program = os.path.relpath(check.command[0], ROOT)
        return shlex.join([program, *check.command[1:]])
    # By way of this file, which also finds the browser and sets the number of threads.
    without = [] if browser else ["--no-browser"]
    python = Path(sys.executable).name
    return shlex.join([python, "bootstrap.py", "test", "--only", "tests", *without, *pytest_arguments])


# --- The command line -------------------------------------------------------------------------------------------------


def command_line() -> argparse.ArgumentParser:
    """The parser; what it does not know is passed on to Streamlit or pytest."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="bootstrap.py", description=HELP, epilog=ENVIRONMENT_HELP, formatter_class=layout, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", metavar="{run,test,install,health}")
    run_parser = commands.add_parser(
        "run",
        help="install what is missing and start the dashboard",
        description="Install what is missing into .venv, then start the dashboard on this machine until Ctrl-C.\n"
        "Further arguments are passed on to `streamlit run`.",
        epilog=ENVIRONMENT_HELP,
        formatter_class=layout,
        allow_abbrev=False,
    )
    run_parser.add_argument("--port", type=int, help=f"port to serve at (default: the first free from {FIRST_PORT})")
    commands.add_parser(
        "install",
        help="install what is missing and start nothing",
        description="Install what is missing into .venv, and start nothing.",
        epilog=ENVIRONMENT_HELP,
        formatter_class=layout,
        allow_abbrev=False,
    )
    health_parser = commands.add_parser(
        "health",
        help="whether a dashboard answers",
        description="End with 0 where a dashboard answers, else with 1.",
        allow_abbrev=False,
    )
    health_parser.add_argument("--port", type=int, default=FIRST_PORT, help=f"its port (default: {FIRST_PORT})")
    test_parser = commands.add_parser(
        "test",
        help="install what is missing and run the checks",
        description="Install what is missing into .venv, then run ruff, mypy, lint-imports and pytest.\n"
        "All are run, whichever fails. Further arguments are passed on to pytest.",
        epilog=ENVIRONMENT_HELP,
        formatter_class=layout,
        allow_abbrev=False,
    )
    test_parser.add_argument("--no-browser", action="store_true", help="leave out the tests that need a browser")
    test_parser.add_argument(
        "--only", action="append", default=[], choices=PARTS, help="run this part alone; can be given several times"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Carry out the command line and return the exit code."""
    complaint = python_complaint(VERSION)
    if complaint:
        print(complaint, file=sys.stderr)
        return 2
    parser = command_line()
    options, others = parser.parse_known_args(arguments)
    if options.command is None:
        parser.print_help()
        return 2
    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        if options.command == "run":
            return run(options.port, others)
        if options.command in ("install", "health"):
            if others:
                raise Stop(f"{options.command} knows nothing of {shlex.join(others)}.", 2)
            if options.command == "health":
                return health(options.port)
            install(["requirements.txt"], os.environ)
            return 0
        if options.no_browser and any(argument.startswith("-m") for argument in others):
            raise Stop("--no-browser and -m exclude each other; say it in one, such as -m 'slow and not browser'.", 2)
        return test(options.only, not options.no_browser, others)
    except Stop as stop:
        print(f"\n{stop}", file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"\nThe system refused: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
