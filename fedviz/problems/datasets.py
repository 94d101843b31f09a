"""Image data sets as plain arrays: read from the project, from a folder, from a package, or downloaded.

Loading happens once per process. Images are uint8 [n, channels * height * width], labels int64 [n]; training and test data are disjoint,
as published. IDX files (MNIST and its relatives) are checked against their own header before anything uses them; CIFAR-10 is read by
torchvision, which checks its files itself. Downloads are torchvision's.
"""

from __future__ import annotations

import gzip
import os
import string
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

_CLOTHES = ("T-shirt", "Trousers", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Boot")
_DIGITS = tuple(string.digits)
# EMNIST "balanced" merges the lower-case letters that look like their capitals.
_CHARACTERS = (*string.digits, *string.ascii_uppercase, *"abdefghnqrt")
_THINGS = ("Airplane", "Car", "Bird", "Cat", "Deer", "Dog", "Frog", "Horse", "Ship", "Truck")


@dataclass(frozen=True)
class Info:
    """What is known of a data set without loading it."""

    title: str
    train: int
    test: int
    image: tuple[int, int, int]  # channels, height, width
    labels: tuple[str, ...]
    mean: tuple[float, ...]  # of pixels in [0, 1], for each channel
    deviation: tuple[float, ...]
    download: str = ""  # the class of torchvision.datasets
    megabytes: int = 0  # of the download


@dataclass(frozen=True)
class Dataset:
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


_GREY = (1, 28, 28)
DATASETS: dict[str, Info] = {
    "fashion_mnist_mini": Info(
        "Fashion-MNIST, 10,000 images (comes with fedviz)", 10_000, 2_000, _GREY, _CLOTHES, (0.286,), (0.353,)
    ),
    "fashion_mnist": Info(
        "Fashion-MNIST, all 60,000 images", 60_000, 10_000, _GREY, _CLOTHES, (0.286,), (0.353,), "FashionMNIST", 31
    ),
    "mnist": Info("MNIST, 60,000 handwritten digits", 60_000, 10_000, _GREY, _DIGITS, (0.1307,), (0.3081,), "MNIST", 12),
    "emnist": Info(
        "EMNIST balanced, 112,800 characters", 112_800, 18_800, _GREY, _CHARACTERS, (0.1751,), (0.3332,), "EMNIST", 562
    ),
    "cifar10": Info(
        "CIFAR-10, 50,000 colour photographs", 50_000, 10_000, (3, 32, 32), _THINGS,
        (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), "CIFAR10", 170,
    ),
    "digits": Info("Digits, 1,438 tiny images (comes with scikit-learn)", 1_438, 359, (1, 8, 8), _DIGITS, (0.305,), (0.376,)),
}  # fmt: skip


def load(name: str, progress: Progress = lambda _: None) -> Dataset:
    """The data set `name`, cached. Raises ProblemError with the ways to get it."""
    with _LOADING:  # one loader at a time: a second run waits for the first one's data instead of loading it again
        if name not in _LOADED:
            _LOADED[name] = _LOADERS[name](name, progress)
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
    if name in _FILES:
        folder = next(_folders(name), None)
        if folder is not None:
            return _read_idx(folder, _FILES[name][1], (DATASETS[name].train,)).astype(np.int64)
    elif name == "digits":
        return load(name).train_labels
    raise ProblemError("The preview appears once the data has been loaded: press Run.")


# --- what comes with fedviz and with scikit-learn ---------------------------------------------------------------------


def _read_mini() -> dict[str, NDArray[np.uint8]]:
    try:
        with np.load(MINI, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in ("train_images", "train_labels", "test_images", "test_labels")}
    except (OSError, ValueError, KeyError) as error:
        raise ProblemError(
            f"{MINI} is missing or damaged ({error}). Restore it from the repository, or make it anew with "
            "`python assets/build_fashion_mnist_mini.py`."
        ) from error


def _dataset(train_x: NDArray, train_y: NDArray, test_x: NDArray, test_y: NDArray) -> Dataset:
    return Dataset(
        train_x.reshape(len(train_x), -1),
        train_y.astype(np.int64),
        test_x.reshape(len(test_x), -1),
        test_y.astype(np.int64),
    )


def _load_mini(_name: str, _progress: Progress) -> Dataset:
    a = _read_mini()
    return _dataset(a["train_images"], a["train_labels"], a["test_images"], a["test_labels"])


def _load_digits(_name: str, _progress: Progress) -> Dataset:
    """scikit-learn's digits, pixels 0 ... 16 spread over 0 ... 255; every fifth one is for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels, test = (images * (255 / 16)).round().astype(np.uint8), np.arange(len(labels)) % 5 == 4
    return _dataset(pixels[~test], labels[~test], pixels[test], labels[test])


# --- IDX files: MNIST and its relatives -------------------------------------------------------------------------------


def _idx_names(prefix: str, test: str) -> tuple[str, str, str, str]:
    return tuple(
        f"{prefix}{part}-{what}" for part in ("train", test) for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )  # type: ignore[return-value]


_FILES: dict[str, tuple[str, str, str, str]] = {
    "fashion_mnist": _idx_names("", "t10k"),
    "mnist": _idx_names("", "t10k"),
    "emnist": _idx_names("emnist-balanced-", "test"),
}


def cache_folder() -> Path:
    """Where downloaded data is kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedviz")) / "data"


def _roots() -> list[Path]:
    own = os.environ.get("FEDVIZ_DATA")
    return [*([Path(own).expanduser()] if own else []), cache_folder()]


def _folders(name: str) -> Iterator[Path]:
    """Folders that hold the four IDX files of `name`, best first."""
    below = [Path(name), Path(name.replace("_", "-")), Path(DATASETS[name].download) / "raw"]
    if name == "fashion_mnist":  # MNIST's files have the same names: only this one may lie in the folder itself
        below.insert(0, Path())
    folders = [root / inner for root in _roots() for inner in below]
    if name == "fashion_mnist":
        folders.insert(len(below) if os.environ.get("FEDVIZ_DATA") else 0, DEBIAN)
    for folder in folders:
        if all(_idx_path(folder, file) for file in _FILES[name]):
            yield folder


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
    return np.frombuffer(raw, dtype=np.uint8, offset=header.nbytes).reshape(shape).copy()  # one that may be written to


def _load_idx(name: str, progress: Progress) -> Dataset:
    info = DATASETS[name]
    folder = next(_folders(name), None)
    if folder is None:
        _download(name, progress)
        folder = next(_folders(name), None)
    if folder is None:
        raise ProblemError(_ways_to_get(name, "the download brought no data"))
    progress(f"Reading {info.title}")
    train_x, train_y, test_x, test_y = (
        _read_idx(folder, file, (count, *info.image[1:]) if "images" in file else (count,))
        for file, count in zip(_FILES[name], (info.train, info.train, info.test, info.test), strict=True)
    )
    if name == "emnist":  # its files hold every character lying on its side
        train_x, test_x = train_x.transpose(0, 2, 1), test_x.transpose(0, 2, 1)
    return _dataset(train_x, train_y, test_x, test_y)


# --- CIFAR-10 ---------------------------------------------------------------------------------------------------------


def _load_cifar10(name: str, progress: Progress) -> Dataset:
    from torchvision.datasets import CIFAR10

    info = DATASETS[name]
    root = next((root for root in _roots() if (root / CIFAR10.base_folder).is_dir()), None)
    if root is None:
        _download(name, progress)
        root = cache_folder()
    progress(f"Reading {info.title}")
    try:
        parts = [CIFAR10(str(root), train=train) for train in (True, False)]
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        raise ProblemError(
            f"{root / CIFAR10.base_folder} is incomplete or damaged ({error}). Delete the folder and run again, or put a fresh copy of "
            f"torchvision's {CIFAR10.base_folder} there."
        ) from error
    x = [np.ascontiguousarray(part.data.transpose(0, 3, 1, 2)) for part in parts]
    y = [np.array(part.targets) for part in parts]
    for images, expected in zip(x, ((info.train, *info.image), (info.test, *info.image)), strict=True):
        if images.shape != expected:
            raise ProblemError(
                f"{root / CIFAR10.base_folder} holds images of shape {images.shape}, expected {expected}."
            )
    return _dataset(x[0], y[0], x[1], y[1])


# --- downloads --------------------------------------------------------------------------------------------------------


def _download(name: str, progress: Progress) -> None:
    """torchvision's own download into the cache folder, with the megabytes so far told to `progress`."""
    import torchvision

    info, root, failure = DATASETS[name], cache_folder(), []
    arguments = {"split": "balanced"} if name == "emnist" else {}

    def download() -> None:
        try:
            getattr(torchvision.datasets, info.download)(str(root), download=True, **arguments)
        except Exception as error:  # torchvision raises many kinds: URLError, RuntimeError, OSError, ...
            failure.append(error)

    worker = threading.Thread(target=download, name=f"download-{name}", daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(0.3)
        size = (
            sum(file.stat().st_size for file in root.rglob("*") if file.suffix in (".gz", ".zip"))
            if root.exists()
            else 0
        )
        progress(f"Downloading {info.download}: {min(size / 1e6, info.megabytes):.0f} of {info.megabytes} MB")
    if failure:
        raise ProblemError(_ways_to_get(name, str(failure[0]))) from failure[0]


def _ways_to_get(name: str, reason: str) -> str:
    info = DATASETS[name]
    what = "its folder cifar-10-batches-py" if name == "cifar10" else f"its four IDX files, in a folder {name},"
    ways = [
        "connect to the internet and run again",
        f"put {what} into a folder and set FEDVIZ_DATA to that folder",
    ]
    if name == "fashion_mnist":
        ways.append("on Debian and Ubuntu, `sudo apt install dataset-fashion-mnist`")
    else:
        ways.append("use the data set that comes with fedviz, fashion_mnist_mini, which needs none of this")
    return f"{info.download} could not be downloaded ({reason}). Three ways on: {ways[0]}; {ways[1]}; or {ways[2]}."


_LOADERS: dict[str, Callable[[str, Progress], Dataset]] = {
    "fashion_mnist_mini": _load_mini,
    "fashion_mnist": _load_idx,
    "mnist": _load_idx,
    "emnist": _load_idx,
    "cifar10": _load_cifar10,
    "digits": _load_digits,
}
