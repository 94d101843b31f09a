"""Image data sets as plain arrays: read from the project, from a folder, or downloaded.

Loading happens once per process. Images are uint8 [n, height, width], labels int64 [n]; training and test data are disjoint as published.
"""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedviz.problems.base import ProblemError, Progress

MINI = Path(__file__).parents[2] / "assets" / "fashion_mnist_mini.npz"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist
CLOTHES = ("T-shirt", "Trousers", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Boot")


@dataclass(frozen=True)
class Info:
    """What is known of a data set without loading it."""

    title: str
    train: int
    test: int
    shape: tuple[int, int]  # height, width
    labels: tuple[str, ...]
    mean: float  # of pixels in [0, 1]
    deviation: float
    note: str = ""


@dataclass(frozen=True)
class Dataset:
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


DATASETS: dict[str, Info] = {
    "fashion_mnist_mini": Info(
        "Fashion-MNIST, 10,000 images (comes with fedviz)", 10_000, 2_000, (28, 28), CLOTHES, 0.286, 0.353
    ),
    "fashion_mnist": Info(
        "Fashion-MNIST, all 60,000 images",
        60_000,
        10_000,
        (28, 28),
        CLOTHES,
        0.286,
        0.353,
        "Read from FEDVIZ_DATA or Debian's package dataset-fashion-mnist, else downloaded (30 MB).",
    ),
}


def load(name: str, progress: Progress = lambda _: None) -> Dataset:
    """The data set `name`, cached. Raises ProblemError with the ways to get it."""
    with _LOADING:  # one loader at a time: a second run waits for the first one's data instead of loading it again
        if name not in _LOADED:
            _LOADED[name] = _LOADERS[name](progress)
        return _LOADED[name]


_LOADED: dict[str, Dataset] = {}
_LOADING = threading.RLock()


@lru_cache(maxsize=8)
def train_labels(name: str) -> NDArray[np.int64]:
    """[n] the training labels alone: enough to show a partition. Never downloads; raises ProblemError when not at hand."""
    if name in _LOADED:
        return _LOADED[name].train_labels
    if name == "fashion_mnist_mini":
        return _read_mini()["train_labels"].astype(np.int64)
    folder = next(_folders(), None)
    if folder is None:
        raise ProblemError("The preview appears once the data has been downloaded: press Run.")
    return _read_idx(folder, "train-labels-idx1-ubyte", (DATASETS[name].train,)).astype(np.int64)


def _read_mini() -> dict[str, NDArray[np.uint8]]:
    try:
        with np.load(MINI, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in ("train_images", "train_labels", "test_images", "test_labels")}
    except (OSError, ValueError, KeyError) as error:
        raise ProblemError(
            f"{MINI} is missing or damaged ({error}). Restore it from the repository, or make it anew with "
            "`python assets/build_fashion_mnist_mini.py`."
        ) from error


def _load_mini(_: Progress) -> Dataset:
    a = _read_mini()
    return Dataset(
        a["train_images"], a["train_labels"].astype(np.int64), a["test_images"], a["test_labels"].astype(np.int64)
    )


def _folders() -> Iterator[Path]:
    """Folders that hold the four IDX files of Fashion-MNIST, best first."""
    own = os.environ.get("FEDVIZ_DATA")
    roots = [Path(own).expanduser()] if own else []
    roots += [DEBIAN, cache_folder()]
    for root in roots:
        for folder in (root, root / "fashion-mnist", root / "fashion_mnist", root / "FashionMNIST" / "raw"):
            if all(_idx_path(folder, name) for name in _IDX):
                yield folder


_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _idx_path(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_idx(folder: Path, name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """One IDX file, gzipped or not, checked against its own header and the expected shape before anything uses it."""
    path = _idx_path(folder, name)
    assert path is not None  # _folders() saw it
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, ValueError) as error:
        raise ProblemError(f"{path} cannot be read ({error}). Delete it and put a fresh copy there.") from error
    magic = 0x0800 + len(shape)
    header = np.frombuffer(raw[: 4 + 4 * len(shape)], dtype=">u4")
    if header.tolist() != [magic, *shape] or len(raw) != header.nbytes + int(np.prod(shape)):
        raise ProblemError(
            f"{path} is damaged: expected an IDX file of shape {shape}, got header {header.tolist()} and {len(raw):,} bytes. "
            "Delete it and put a fresh copy there."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=header.nbytes).reshape(shape)


def _load_fashion_mnist(progress: Progress) -> Dataset:
    info = DATASETS["fashion_mnist"]
    folder = next(_folders(), None)
    if folder is None:
        _download_fashion_mnist(progress)
        folder = next(_folders(), None)
    if folder is None:
        raise ProblemError(_three_ways("the download brought no data"))
    progress("Reading Fashion-MNIST")
    images = [
        _read_idx(folder, f"{part}-images-idx3-ubyte", (n, *info.shape))
        for part, n in (("train", info.train), ("t10k", info.test))
    ]
    labels = [
        _read_idx(folder, f"{part}-labels-idx1-ubyte", (n,)) for part, n in (("train", info.train), ("t10k", info.test))
    ]
    return Dataset(images[0], labels[0].astype(np.int64), images[1], labels[1].astype(np.int64))


def cache_folder() -> Path:
    """Where downloaded data is kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedviz")) / "data"


def _download_fashion_mnist(progress: Progress) -> None:
    """torchvision's own download into the cache folder, with the megabytes so far told to `progress`."""
    from torchvision.datasets import FashionMNIST

    root, failure = cache_folder(), []

    def download() -> None:
        try:
            FashionMNIST(str(root), download=True)
        except Exception as error:  # torchvision raises many kinds: URLError, RuntimeError, OSError, ...
            failure.append(error)

    worker = threading.Thread(target=download, name="download-fashion-mnist", daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(0.3)
        size = sum(file.stat().st_size for file in (root / "FashionMNIST").rglob("*.gz")) if root.exists() else 0
        progress(f"Downloading Fashion-MNIST: {size / 1e6:.0f} of 31 MB")
    if failure:
        raise ProblemError(_three_ways(str(failure[0]))) from failure[0]


def _three_ways(reason: str) -> str:
    return (
        f"Fashion-MNIST could not be downloaded ({reason}). Three ways to get it: connect to the internet and run again; "
        "put its four IDX files into a folder and set FEDVIZ_DATA to that folder; or, on Debian and Ubuntu, "
        "`sudo apt install dataset-fashion-mnist`. The data set that comes with fedviz needs none of them."
    )


_LOADERS: dict[str, Callable[[Progress], Dataset]] = {
    "fashion_mnist_mini": _load_mini,
    "fashion_mnist": _load_fashion_mnist,
}
