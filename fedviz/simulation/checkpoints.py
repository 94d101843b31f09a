"""Checkpoint files: what a run can go on from after its process has ended.

One safetensors file for each run, and the one before it, since a newer one may be ahead of the records that reached the
disk. The tensors are w, the algorithm's state, the sums of a window being measured, and when memories were renewed; all
else (config, round, costs, checksum) is JSON in the file's header. Files are written aside and renamed. Nothing is unpickled.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from fedviz.config import SimulationConfig
    from fedviz.simulation.records import Checkpoint

FORMAT: Final = 1
LARGEST: Final = 500_000_000  # bytes; a run whose state is larger has no checkpoints, and is replayed instead
IN_ALL: Final = 4_000_000_000  # ... of all files together; the oldest are deleted, for they only save time
_FORGOTTEN: Final = 3600.0  # seconds after which a file that was never finished is deleted
_KEY: Final = "fedviz"
_PART: Final = ".part"


class CheckpointError(ValueError):
    """A file that cannot be gone on from; the message says which and why."""


def files(folder: Path, run_id: str) -> tuple[Path, Path]:
    """(the newest checkpoint of a run, the one before). Raises ValueError for what is no run's id."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", run_id):
        raise ValueError(f"{run_id!r} is no run's id.")
    return folder / f"{run_id}.safetensors", folder / f"{run_id}.before.safetensors"


def remove(folder: Path, run_id: str) -> None:
    """Delete the checkpoints of a run. Harmless when there are none."""
    newest, before = files(folder, run_id)
    for file in (newest, before, newest.with_suffix(_PART)):
        file.unlink(missing_ok=True)


def prune(folder: Path) -> None:
    """Delete the oldest checkpoints beyond what all may take together, and what a killed process left unfinished."""
    found = []
    for file in folder.glob("*"):
        try:
            about = file.stat()
        except OSError:  # deleted meanwhile
            continue
        found.append((about.st_mtime, about.st_size, file))
    left = IN_ALL
    for changed, size, file in sorted(found, reverse=True):
        left -= size
        if left < 0 or (file.suffix == _PART and time.time() - changed > _FORGOTTEN):
            file.unlink(missing_ok=True)


def write(folder: Path, run_id: str, checkpoint: Checkpoint) -> int:
    """Keep a checkpoint beside the newest so far; the bytes written, 0 where it is too large. Raises OSError."""
    from safetensors.torch import save

    tensors = _tensors(checkpoint)
    if sum(tensor.nbytes for tensor in tensors.values()) > LARGEST:
        return 0
    header = {
        "format": FORMAT,
        "config": checkpoint.config.to_dict(),
        "round": checkpoint.round,
        "costs": asdict(checkpoint.costs),
        "checksum": _checksum(tensors),
    }
    content = save(tensors, {_KEY: json.dumps(header)})
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    newest, before = files(folder, run_id)
    aside = newest.with_suffix(_PART)
    aside.write_bytes(content)
    if newest.exists():
        newest.replace(before)
    aside.replace(newest)
    return len(content)


def newest(folder: Path, run_id: str, config: SimulationConfig, at_most: int) -> tuple[Checkpoint | None, list[str]]:
    """(the latest checkpoint of a run that is no later than round `at_most`, why others could not be used)."""
    found: list[Checkpoint] = []
    reasons = []
    for file in files(folder, run_id):
        try:
            found.append(read(file, config))
        except FileNotFoundError:
            continue
        except (CheckpointError, OSError) as error:
            reasons.append(str(error))
    usable = [checkpoint for checkpoint in found if checkpoint.round <= at_most]
    return max(usable, key=lambda checkpoint: checkpoint.round, default=None), reasons


def read(file: Path, config: SimulationConfig) -> Checkpoint:
    """The checkpoint in a file. Raises FileNotFoundError, and CheckpointError where it is damaged or another run's."""
    from safetensors import SafetensorError, safe_open

    from fedviz.simulation.records import Checkpoint, Costs

    if not file.exists():
        raise FileNotFoundError(file)
    try:
        with safe_open(file, framework="pt") as opened:
            header = json.loads((opened.metadata() or {})[_KEY])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
        if header["format"] != FORMAT:
            raise CheckpointError(f"{file.name} has format {header['format']}; this fedviz reads {FORMAT}.")
        if header["checksum"] != _checksum(tensors):
            raise CheckpointError(f"{file.name} is damaged: its checksum is wrong.")
        if header["config"] != config.to_dict():
            raise CheckpointError(f"{file.name} belongs to a run with other settings.")
        return Checkpoint(
            config,
            int(header["round"]),
            tensors["w"],
            _group(tensors, "state."),
            tensors["renewed_in"].numpy(),
            Costs(**header["costs"]),
            _group(tensors, "window."),
        )
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{file.name} is damaged or not a checkpoint: {error}.") from error


def _tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    import torch

    named = {
        "w": checkpoint.w,
        "renewed_in": torch.from_numpy(checkpoint.renewed_in),
        **{f"state.{name}": tensor for name, tensor in checkpoint.state.items()},
        **{f"window.{name}": tensor for name, tensor in checkpoint.window.items()},
    }
    # Copies: the format refuses tensors that share memory, as a state's may.
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in named.items()}


def _group(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """Over names, shapes and bytes."""
    found = 0
    for name, tensor in sorted(tensors.items()):
        found = zlib.crc32(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode(), found)
        found = zlib.crc32(tensor.contiguous().numpy().reshape(-1).view("uint8").data, found)
    return found
