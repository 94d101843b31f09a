"""The image is made of commands that are checked outside Docker too, and runs as nobody in particular."""

import re
import shlex
from pathlib import Path

import pytest

import bootstrap

ROOT = Path(__file__).parents[1]
LINES = [
    line.split(maxsplit=1)
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
NEEDED = ("app.py", "bootstrap.py", "requirements.txt", "fedviz", "pages", "static", "assets", ".streamlit/config.toml")


def steps(word: str) -> list[str]:
    return [rest for first, rest in LINES if first == word]


def commands() -> list[list[str]]:
    """All that the image calls Python with, as argument lists."""
    exec_form = [re.sub(r'[\[\]",]', " ", step) for step in steps("CMD")]
    health = [step.split("CMD ", 1)[1] for step in steps("HEALTHCHECK")]
    return [shlex.split(step) for step in [*steps("RUN"), *health, *exec_form] if "python" in step]


def test_every_command_of_the_image_is_one_of_bootstraps_and_is_understood():
    assert [command[:3] for command in commands()] == [
        ["python", "bootstrap.py", "install"],
        ["python", "bootstrap.py", "health"],
        ["python", "bootstrap.py", "run"],
    ]
    for command in commands():
        _, unknown = bootstrap.command_line().parse_known_args(command[2:])
        assert unknown == []


def test_the_image_does_not_run_as_root_from_before_anything_is_copied_or_installed():
    words = [first for first, _ in LINES]
    assert steps("USER") == ["fedviz"]
    assert words.index("USER") < words.index("COPY")
    assert [step for step in steps("RUN") if words.index("USER") > 0 and "python" not in step] == [
        "useradd --create-home --uid 1000 fedviz && mkdir /data && chown fedviz /data"
    ]


def test_the_port_is_the_same_everywhere_and_runs_are_kept_outside_the_image():
    ports = {command[command.index("--port") + 1] for command in commands() if "--port" in command}
    assert ports == set(steps("EXPOSE")) == {"8501"}
    [volume] = steps("VOLUME")
    assert f"FEDVIZ_HOME={volume}" in steps("ENV")[0]


def test_the_build_argument_is_a_choice_that_bootstrap_knows():
    name, default = steps("ARG")[0].split("=")
    assert f"FEDVIZ_TORCH=${name}" in steps("ENV")[0]
    assert bootstrap.torch_choice({"FEDVIZ_TORCH": default}) == "cpu"
    assert bootstrap.torch_choice({"FEDVIZ_TORCH": "cuda"}) == "cuda"


def test_the_images_python_is_one_that_fedviz_runs_on():
    version = re.fullmatch(r"python:(\d+)\.(\d+)-slim", steps("FROM")[0])
    assert version is not None
    assert bootstrap.python_complaint([int(part) for part in version.groups()]) is None


@pytest.mark.parametrize("needed", NEEDED)
def test_what_the_dashboard_needs_is_copied(needed):
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert (ROOT / needed).exists()
    assert not any(Path(needed).match(pattern) or needed.startswith(f"{pattern}/") for pattern in ignored)
