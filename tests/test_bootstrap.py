"""What bootstrap.py decides: which Python, which PyTorch, what to install and when, which browser, which checks.

Nothing is installed or fetched here: every decision is a function of its arguments, and the few effects that are tested
(the stamp, the exit codes) happen in a temporary folder.
"""

import ast
import http.server
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path

import pytest

import bootstrap

PROJECT = Path(bootstrap.__file__).parent


@pytest.fixture(autouse=True)
def _leave_the_signal_handler_of_the_test_run():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def never(*arguments):
    raise AssertionError(f"asked, although nothing hangs on the answer: {arguments}")


def source(choice="auto", system="Linux", driver=never, answers=never):
    """torch_source with fixed answers; what is left out must not be asked."""
    return bootstrap.torch_source(
        choice,
        system,
        driver if callable(driver) else lambda: driver,
        answers if callable(answers) else lambda index: answers,
    )


# --- Python -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 20), (4, 0)])
def test_python_3_11_and_newer_is_accepted(version):
    assert bootstrap.python_complaint(version) is None


@pytest.mark.parametrize("version", [(3, 8), (3, 10), (2, 7)])
def test_an_older_python_is_told_which_one_is_needed_and_which_it_is(version):
    complaint = bootstrap.python_complaint(version)
    assert "needs Python 3.11 or newer" in complaint
    assert f"this is Python {version[0]}.{version[1]}." in complaint


def test_an_older_python_exits_with_the_message_before_anything_else(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "VERSION", (3, 9))
    monkeypatch.setattr(bootstrap, "install", never)
    assert bootstrap.main(["run"]) == 2
    assert "needs Python 3.11" in capsys.readouterr().err


def test_python_3_8_can_read_the_file_so_that_it_gets_to_the_message():
    ast.parse(Path(bootstrap.__file__).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_only_the_standard_library_is_imported():
    tree = ast.parse(Path(bootstrap.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


# --- Which PyTorch ----------------------------------------------------------------------------------------------------


def test_linux_without_a_driver_takes_the_small_build_from_pytorchs_cpu_index():
    chosen = source(driver=False, answers=True)
    assert chosen.url == "https://download.pytorch.org/whl/cpu"
    assert "0.2 GB" in chosen.note


def test_linux_with_a_driver_takes_the_default_index_which_holds_the_cuda_build():
    chosen = source(driver=True)
    assert chosen.url is None
    assert "3 GB" in chosen.note


def test_linux_falls_back_to_the_default_index_and_says_so_when_the_cpu_index_does_not_answer():
    chosen = source(driver=False, answers=False)
    assert chosen.url is None
    assert "does not answer" in chosen.note
    assert "3 GB instead of 0.2 GB" in chosen.note
    assert chosen.disk_gb == source(driver=True).disk_gb > source(driver=False, answers=True).disk_gb


@pytest.mark.parametrize(("system", "driver"), [("Darwin", never), ("Windows", False)])
def test_macos_and_windows_take_the_default_index_whose_build_is_for_the_cpu(system, driver):
    chosen = source(system=system, driver=driver)
    assert chosen.url is None
    assert "0.2 GB" in chosen.note


def test_windows_with_a_driver_takes_the_cuda_index_or_else_the_default_one():
    assert source(system="Windows", driver=True, answers=True).url == bootstrap.CUDA_INDEX
    fallback = source(system="Windows", driver=True, answers=False)
    assert fallback.url is None
    assert "for the CPU" in fallback.note


def test_a_forced_choice_does_not_look_for_a_driver():
    assert source("cpu", answers=True).url == bootstrap.CPU_INDEX
    assert source("cuda").url is None
    assert source("default").url is None
    assert source("cpu", system="Darwin").url is None


def test_a_forced_build_is_refused_rather_than_replaced_when_its_index_does_not_answer():
    with pytest.raises(bootstrap.Stop, match=r"does not answer.*\n.*FEDVIZ_TORCH=default"):
        source("cpu", answers=False)


def test_cuda_on_macos_is_refused():
    with pytest.raises(bootstrap.Stop, match="no CUDA on macOS") as stop:
        source("cuda", system="Darwin")
    assert stop.value.code == 2


def test_fedviz_torch_unset_or_empty_means_that_fedviz_chooses():
    assert bootstrap.torch_choice({}) == "auto"
    assert bootstrap.torch_choice({"FEDVIZ_TORCH": ""}) == "auto"
    assert bootstrap.torch_choice({"FEDVIZ_TORCH": "cpu"}) == "cpu"


def test_an_unknown_fedviz_torch_is_refused_with_exit_code_2(monkeypatch, capsys):
    monkeypatch.setenv("FEDVIZ_TORCH", "gpu")
    assert bootstrap.main(["run"]) == 2
    message = capsys.readouterr().err
    assert "'gpu'" in message
    assert "cpu, cuda or default" in message


# --- What pip is asked ------------------------------------------------------------------------------------------------

REQUIREMENTS = ["streamlit>=1.67", "torch>=2.9", "torchvision>=0.24", "torch-geometric", "numpy>=2.0"]


def test_from_the_default_index_everything_is_resolved_in_one_call():
    assert bootstrap.pip_installs(REQUIREMENTS, None) == [REQUIREMENTS]


def test_from_an_index_of_pytorchs_come_torch_and_torchvision_together_and_nothing_else():
    assert bootstrap.pip_installs(REQUIREMENTS, bootstrap.CPU_INDEX) == [
        ["streamlit>=1.67", "torch-geometric", "numpy>=2.0"],
        ["--index-url", bootstrap.CPU_INDEX, "torch>=2.9", "torchvision>=0.24"],
    ]


def test_requirements_are_read_without_comments_and_with_the_files_they_include(tmp_path):
    (tmp_path / "base.txt").write_text("# heading\n\ntorch>=2.9  # floor\nnumpy>=2.0\n")
    (tmp_path / "dev.txt").write_text("-r base.txt\npytest>=8.2; python_version >= '3.11'  # tests\n")
    assert bootstrap.read_requirements(tmp_path / "dev.txt") == [
        "torch>=2.9",
        "numpy>=2.0",
        "pytest>=8.2; python_version >= '3.11'",
    ]


def test_the_projects_own_files_name_the_pair_and_the_tools_of_every_check():
    required = " ".join(bootstrap.read_requirements(PROJECT / "requirements-dev.txt"))
    for name in (
        "streamlit>=",
        "torch>=",
        "torchvision>=",
        "ruff>=",
        "mypy>=",
        "import-linter>=",
        "pytest>=",
        "playwright>=",
    ):
        assert name in required


@pytest.mark.parametrize(
    ("output", "told", "harmless"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "disk is full",
            False,
        ),
        (
            "WARNING: Retrying ... NewConnectionError(...: Failed to establish a new connection)\n"
            "ERROR: No matching distribution found for rich",
            "could not be reached",
            True,
        ),
        ("ERROR: No matching distribution found for torch>=2.9", "no release for this Python", True),
        ("SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]')\nMax retries exceeded", "certificate", True),
        ("something never seen before", "its message stands above", False),
    ],
)
def test_a_failure_of_pip_is_explained_by_its_cause(output, told, harmless):
    failure = bootstrap.pip_failure(output)
    assert told in failure.advice
    assert failure.harmless is harmless


# --- When to install, and when to start afresh ------------------------------------------------------------------------

RUN, DEV = {"requirements.txt": "torch>=2.9\n"}, {"requirements-dev.txt": "pytest\n"}


def test_the_stamp_of_an_installation_covers_the_same_one_and_a_part_of_it():
    stamp = {**bootstrap.fingerprints({**RUN, **DEV}, (3, 11)), "torch": None}
    assert bootstrap.is_installed(stamp, bootstrap.fingerprints({**RUN, **DEV}, (3, 11)))
    assert bootstrap.is_installed(stamp, bootstrap.fingerprints(RUN, (3, 11)))


def test_the_stamp_does_not_cover_changed_or_further_requirements_or_another_python():
    stamp = bootstrap.fingerprints(RUN, (3, 11))
    assert not bootstrap.is_installed(stamp, bootstrap.fingerprints({"requirements.txt": "torch>=2.10\n"}, (3, 11)))
    assert not bootstrap.is_installed(stamp, bootstrap.fingerprints({**RUN, **DEV}, (3, 11)))
    assert not bootstrap.is_installed(stamp, bootstrap.fingerprints(RUN, (3, 12)))
    assert not bootstrap.is_installed({}, bootstrap.fingerprints(RUN, (3, 11)))


def environment(**changes):
    sound = bootstrap.Environment(exists=True, unfinished=False, runs=True, python="3.11", stamp={"torch": None})
    return sound._replace(**changes)


def remake(found, choice="auto", system="Linux"):
    return bootstrap.reason_to_remake(found, (3, 11), choice, system)


def test_a_sound_environment_is_kept_and_an_absent_one_is_nothing_to_remake():
    assert remake(environment()) is None
    assert remake(environment(exists=False, runs=False, python="", stamp={})) is None


def test_an_environment_made_by_hand_is_kept():
    assert remake(environment(stamp={})) is None
    assert remake(environment(stamp={}), choice="cpu") is None


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (environment(unfinished=True), "cut off"),
        (environment(runs=False), "gone"),
        (environment(python="3.12"), "made with Python 3.12, this is Python 3.11"),
        (environment(python=""), "another version"),
    ],
)
def test_an_environment_that_cannot_be_trusted_is_made_anew(found, told):
    assert told in remake(found)


def test_asking_for_another_build_of_pytorch_starts_afresh_and_asking_for_the_same_or_for_none_does_not():
    default, cpu = environment(stamp={"torch": None}), environment(stamp={"torch": bootstrap.CPU_INDEX})
    assert "another build" in remake(default, choice="cpu")
    assert "another build" in remake(cpu, choice="default")
    for kept in (remake(default, "default"), remake(default, "cuda"), remake(cpu, "cpu"), remake(cpu), remake(default)):
        assert kept is None


DiskUsage = namedtuple("DiskUsage", ["free"])


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in a temporary folder, with calls of programs written down instead of made."""
    venv = tmp_path / ".venv"
    for name, value in {
        "ROOT": tmp_path,
        "VENV": venv,
        "STAMP": venv / "stamp.json",
        "UNFINISHED": venv / "unfinished",
    }.items():
        monkeypatch.setattr(bootstrap, name, value)
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda path: DiskUsage(free=100e9))
    (tmp_path / "requirements.txt").write_text("torch>=2.9\n")
    calls = []

    def call(command, environ=None, errors=None):
        calls.append(command[1:4])
        if "venv" in command:
            Path(bootstrap.venv_python()).parent.mkdir(parents=True)
            Path(bootstrap.venv_python()).touch()
            (venv / "pyvenv.cfg").write_text("version = {}.{}.0\n".format(*sys.version_info[:2]))
        return 0

    monkeypatch.setattr(bootstrap, "call", call)
    monkeypatch.setattr(bootstrap, "verify_torch", lambda: None)
    return calls


DEFAULT = {"FEDVIZ_TORCH": "default"}
MAKE, PIP = ["-m", "venv"], ["-m", "pip", "install"]


def made(calls):
    return ["venv" if command[:2] == MAKE else "pip" if command == PIP else command for command in calls]


def test_a_second_installation_does_nothing_and_a_changed_file_brings_pip_back(project, tmp_path):
    bootstrap.install(["requirements.txt"], DEFAULT)
    assert made(project) == ["venv", "pip"]
    bootstrap.install(["requirements.txt"], DEFAULT)
    bootstrap.install(["requirements.txt"], {})
    assert made(project) == ["venv", "pip"]
    (tmp_path / "requirements.txt").write_text("torch>=2.10\n")
    bootstrap.install(["requirements.txt"], DEFAULT)
    assert made(project) == ["venv", "pip", "pip"]


def test_the_stamp_remembers_the_other_file_and_the_build_of_pytorch(project, tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap.platform, "system", lambda: "Linux")
    monkeypatch.setattr(bootstrap, "index_answers", lambda index: True)
    (tmp_path / "more.txt").write_text("-r requirements.txt\npytest\n")
    bootstrap.install(["requirements.txt", "more.txt"], DEFAULT)
    (tmp_path / "requirements.txt").write_text("torch>=2.10\n")
    bootstrap.install(["requirements.txt"], DEFAULT)
    bootstrap.install(["requirements.txt", "more.txt"], DEFAULT)
    assert made(project) == ["venv", "pip", "pip"]
    bootstrap.install(["requirements.txt"], {"FEDVIZ_TORCH": "cpu"})
    assert made(project)[3:] == ["venv", "pip", "pip"]  # afresh, and the pair in a call of its own


def test_an_interrupted_installation_is_made_anew_by_the_next_call(project, monkeypatch, capsys):
    with monkeypatch.context() as interrupted:
        interrupted.setattr(bootstrap, "verify_torch", lambda: signal.default_int_handler(signal.SIGINT, None))
        with pytest.raises(KeyboardInterrupt):
            bootstrap.install(["requirements.txt"], DEFAULT)
    bootstrap.install(["requirements.txt"], DEFAULT)
    assert made(project) == ["venv", "pip", "venv", "pip"]
    assert "cut off: making .venv anew" in capsys.readouterr().out


def test_a_pip_without_network_leaves_a_working_installation_in_place(project, tmp_path, monkeypatch):
    bootstrap.install(["requirements.txt"], DEFAULT)
    (tmp_path / "more.txt").write_text("-r requirements.txt\npytest\n")

    def offline(command, environ=None, errors=None):
        errors.append("NewConnectionError")
        return 1

    monkeypatch.setattr(bootstrap, "call", offline)
    with pytest.raises(bootstrap.Stop, match="Check the network"):
        bootstrap.install(["requirements.txt", "more.txt"], DEFAULT)
    bootstrap.install(["requirements.txt"], DEFAULT)  # has nothing to do


def test_too_little_disk_is_told_before_anything_is_made(project, monkeypatch):
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda path: DiskUsage(free=1.5e9))
    with pytest.raises(bootstrap.Stop, match=r"has 1\.5 GB"):
        bootstrap.install(["requirements.txt"], DEFAULT)
    assert project == []


def test_a_python_without_ensurepip_is_told_the_package_to_install(project, monkeypatch):
    find = bootstrap.importlib.util.find_spec
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find(name))
    with pytest.raises(bootstrap.Stop, match="sudo apt install python3-venv"):
        bootstrap.install(["requirements.txt"], DEFAULT)


# --- The browser ------------------------------------------------------------------------------------------------------


def browser(environ=(), system="Linux", programs=(), files=()):
    return bootstrap.find_browser(dict(environ), system, dict(programs).get, lambda path: path in files)


def test_a_browser_named_by_the_environment_comes_first():
    assert (
        browser({"FEDVIZ_CHROMIUM": "/my/chrome"}, programs={"chromium": "/bin/chromium"}, files=["/my/chrome"])
        == "/my/chrome"
    )


def test_a_named_browser_that_is_not_there_is_an_error_and_not_passed_over():
    with pytest.raises(bootstrap.Stop, match="/my/chrome"):
        browser({"FEDVIZ_CHROMIUM": "/my/chrome"}, programs={"chromium": "/bin/chromium"})


@pytest.mark.parametrize(
    "name", ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge"]
)
def test_a_browser_on_the_path_is_found(name):
    assert browser(programs={name: f"/bin/{name}"}) == f"/bin/{name}"


def test_browsers_in_the_usual_places_of_macos_and_windows_are_found():
    mac = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    windows = r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe"
    assert browser(system="Darwin", files=[mac]) == mac
    assert browser({"PROGRAMFILES(X86)": r"C:\Program Files (x86)"}, "Windows", files=[windows]) == windows


def test_without_any_browser_none_is_found_and_the_ways_out_are_told(monkeypatch):
    assert browser() is None
    monkeypatch.setattr(bootstrap, "find_browser", lambda *arguments: None)
    monkeypatch.setattr(bootstrap, "call", lambda *arguments: 1)  # Playwright can't fetch one either
    with pytest.raises(bootstrap.Stop, match=r"(?s)sudo apt install chromium.*--no-browser"):
        bootstrap.browser_for_tests({})


# --- The checks -------------------------------------------------------------------------------------------------------


def names(only=()):
    return [check.name for check in bootstrap.checks(only, True, [], Path("bin"))]


def test_all_checks_are_run_in_order_or_the_parts_asked_for():
    assert names() == ["ruff check", "ruff format", "mypy", "lint-imports", "pytest"]
    assert names(["lint"]) == ["ruff check", "ruff format"]
    assert names(["tests", "types"]) == ["mypy", "pytest"]


def test_further_arguments_go_to_pytest_and_no_browser_becomes_a_marker():
    command = bootstrap.checks(["tests"], False, ["-k", "scaffold"], Path("bin"))[0].command
    assert command[1:] == ["-m", "pytest", "-m", "not browser", "-k", "scaffold"]


def test_the_whole_suite_runs_on_all_cores_with_the_tests_of_a_file_together():
    command = bootstrap.checks(["tests"], True, [], Path("bin"))[0].command
    assert command[3:] == ["--numprocesses", "auto", "--dist", "loadfile"]


def test_every_check_is_run_and_the_failed_ones_are_named_with_the_way_to_repeat_each(monkeypatch, capfd):
    called = []

    def call(command, environ=None):
        called.append(command)
        return int("mypy" in command or "pytest" in command)

    monkeypatch.setattr(bootstrap, "install", lambda files, environ: None)
    monkeypatch.setattr(bootstrap, "call", call)
    assert bootstrap.main(["test", "--no-browser", "-k", "a or b"]) == 1
    assert len(called) == 5
    told = capfd.readouterr().err
    assert "Failed: mypy, pytest." in told
    assert "python -m mypy" in told
    assert shlex.split(told.splitlines()[-1])[2:] == ["test", "--only", "tests", "--no-browser", "-k", "a or b"]


def test_when_all_pass_the_exit_code_is_0_and_nothing_follows_pytests_own_last_line(monkeypatch, capfd):
    monkeypatch.setattr(bootstrap, "install", lambda files, environ: None)
    monkeypatch.setattr(bootstrap, "call", lambda command, environ=None: 0)
    assert bootstrap.main(["test", "--no-browser"]) == 0
    printed = capfd.readouterr()
    assert printed.out.splitlines()[-1] == "--- pytest"
    assert printed.err == ""


def test_tests_use_one_thread_for_numeric_libraries_unless_told_otherwise():
    assert bootstrap.quiet_threads({})["OMP_NUM_THREADS"] == "1"
    assert bootstrap.quiet_threads({"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"] == "4"


def test_no_browser_and_a_marker_expression_of_ones_own_exclude_each_other(capsys):
    assert bootstrap.main(["test", "--no-browser", "-m", "slow"]) == 2
    assert "exclude each other" in capsys.readouterr().err


# --- Serving ----------------------------------------------------------------------------------------------------------


def test_the_first_free_port_is_taken_and_a_wanted_one_only_if_it_is_free():
    assert bootstrap.choose_port(None, lambda port: port < 8503) == 8503
    assert bootstrap.choose_port(9000, lambda port: False) == 9000
    with pytest.raises(bootstrap.Stop, match="Port 9000 is taken"):
        bootstrap.choose_port(9000, lambda port: True)


def served(monkeypatch, *arguments):
    """The command that `run` starts, everything being installed."""
    commands = []
    monkeypatch.setattr(bootstrap, "install", lambda files, environ: None)
    monkeypatch.setattr(bootstrap, "is_taken", lambda port: False)
    monkeypatch.setattr(bootstrap, "call", lambda command: commands.append(command) or 0)
    return bootstrap.main(["run", *arguments]), commands


def test_run_starts_streamlit_at_the_port_and_passes_further_arguments_on(monkeypatch, capsys):
    code, commands = served(monkeypatch, "--port", "9000", "--theme.base", "dark")
    assert code == 0
    assert commands[0][1:] == [
        *["-m", "streamlit", "run", "server.py", "--server.port", "9000"],
        *["--theme.base", "dark"],
    ]
    assert "http://localhost:9000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("environ", "arguments", "expected"),
    [
        ({}, [], []),
        ({"FEDVIZ_HOSTED": "0"}, [], []),
        ({"FEDVIZ_HOSTED": "1"}, [], ["--server.address", "0.0.0.0"]),
        ({"FEDVIZ_HOSTED": "1"}, ["--server.address=127.0.0.1"], []),
        ({"FEDVIZ_HOSTED": "1", "STREAMLIT_SERVER_ADDRESS": "127.0.0.1"}, [], []),
    ],
)
def test_a_hosted_dashboard_listens_on_all_interfaces_unless_told_where(environ, arguments, expected):
    assert bootstrap.listening(environ, arguments) == expected


def test_run_passes_on_where_to_listen(monkeypatch, capsys):
    monkeypatch.setenv("FEDVIZ_HOSTED", "1")
    monkeypatch.delenv("STREAMLIT_SERVER_ADDRESS", raising=False)
    code, commands = served(monkeypatch, "--port", "9000")
    assert code == 0
    assert commands[0][-2:] == ["--server.address", "0.0.0.0"]
    assert "whoever reaches this machine" in capsys.readouterr().out


def test_a_wrong_value_of_hosted_is_refused_with_those_allowed(monkeypatch, capsys):
    monkeypatch.setenv("FEDVIZ_HOSTED", "yes")
    assert served(monkeypatch) == (2, [])
    assert "'yes'; it can be 1, or 0" in capsys.readouterr().err


def test_install_installs_what_run_needs_and_starts_nothing(monkeypatch):
    installed = []
    monkeypatch.setattr(bootstrap, "install", lambda files, environ: installed.append(files))
    monkeypatch.setattr(bootstrap, "call", lambda command: pytest.fail("something was started"))
    assert bootstrap.main(["install"]) == 0
    assert installed == [["requirements.txt"]]
    assert bootstrap.main(["install", "--cuda"]) == 2


def test_health_is_0_where_a_dashboard_answers_and_1_where_nothing_does(monkeypatch):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/lab/_stcore/health" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = str(server.server_port)
        monkeypatch.delenv("STREAMLIT_SERVER_BASE_URL_PATH", raising=False)
        assert bootstrap.main(["health", "--port", port]) == 1
        monkeypatch.setenv("STREAMLIT_SERVER_BASE_URL_PATH", "/lab/")
        assert bootstrap.main(["health", "--port", port]) == 0
        server.shutdown()
    assert bootstrap.main(["health", "--port", port]) == 1


def test_streamlits_own_port_option_is_refused_since_another_address_would_be_shown(monkeypatch, capsys):
    code, commands = served(monkeypatch, "--server.port=9000")
    assert (code, commands) == (2, [])
    assert "--port" in capsys.readouterr().err


def test_ctrl_c_ends_the_dashboard_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "install", lambda files, environ: None)
    monkeypatch.setattr(bootstrap, "call", lambda command: signal.default_int_handler(signal.SIGINT, None))
    assert bootstrap.main(["run"]) == 0
    assert "fedviz has stopped" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without asking it")
def test_a_sigterm_ends_the_started_program_too():
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    parent = f"""
import bootstrap, signal, sys
signal.signal(signal.SIGTERM, bootstrap.on_sigterm)
try:
    bootstrap.call([sys.executable, "-c", {child!r}])
except KeyboardInterrupt:
    sys.exit(7)
"""
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    with process:
        pid = int(process.stdout.readline())
        process.terminate()
        assert process.wait(timeout=4) == 7
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_help_names_both_commands_and_the_variables():
    shown = subprocess.run(
        [sys.executable, bootstrap.__file__, "--help"], capture_output=True, text=True, check=True
    ).stdout
    for word in ("run", "test", "--no-browser", "FEDVIZ_TORCH", "FEDVIZ_CHROMIUM"):
        assert word in shown
