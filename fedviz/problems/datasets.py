"""Image data sets as plain arrays: read from the project, from a folder, from a package, or downloaded.

Loading happens once per process. Images are uint8 [n, channels * height * width], labels int64 [n]; training and test data are disjoint,
as published. IDX files (MNIST and its relatives) are checked against their own header before anything uses them, CIFAR-10's against their
published MD5 sums. Downloads are torchvision's; they are put in place when they are complete. What is damaged is never used nor kept.
"""

from __future__ import annotations

import gzip
import math
import os
import shutil
import string
import threading
import zipfile
import zlib
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


def at_hand(name: str) -> bool:
    """Whether the data set can be loaded without a download."""
    if not DATASETS[name].download or name in _LOADED:
        return True
    if name in _FILES:
        return next(_folders(name), None) is not None
    return any((root / _CIFAR10).is_dir() for root in _roots())


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
            info = DATASETS[name]
            return _read_idx(folder, _FILES[name][1], (info.train,), len(info.labels)).astype(np.int64)
    elif name == "digits":
        return load(name).train_labels
    raise ProblemError("The preview appears once the data has been loaded: press Run.")


# --- what comes with fedviz and with scikit-learn ---------------------------------------------------------------------


def _read_mini() -> dict[str, NDArray[np.uint8]]:
    info = DATASETS["fashion_mnist_mini"]
    expected = {
        "train_images": (info.train, math.prod(info.image)),
        "train_labels": (info.train,),
        "test_images": (info.test, math.prod(info.image)),
        "test_labels": (info.test,),
    }
    try:
        with np.load(MINI, allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in expected}
        for key, shape in expected.items():
            got = found[key]
            if got.dtype != np.uint8 or got.size != math.prod(shape):
                raise ValueError(f"{key}: expected {math.prod(shape):,} bytes, got {got.size:,} of {got.dtype}")
            if len(shape) == 1 and got.max() >= len(info.labels):
                raise ValueError(f"{key}: expected labels 0 to {len(info.labels) - 1}, got {got.max()}")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ProblemError(
            f"{MINI} is missing or damaged ({error}). Restore it from the repository, or make it anew with "
            "`python assets/build_fashion_mnist_mini.py`."
        ) from error
    return found


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
    return [*([Path(os.path.expanduser(own))] if own else []), cache_folder()]  # noqa: PTH111 - leaves an unknown ~user as it is


def _places(name: str) -> list[Path]:
    """The folders where the IDX files of `name` may lie, best first."""
    below = [Path(name), Path(name.replace("_", "-")), Path(DATASETS[name].download) / "raw"]
    if name == "fashion_mnist":  # MNIST's files have the same names: only this one may lie in the folder itself
        below.insert(0, Path())
    folders = [root / inner for root in _roots() for inner in below]
    if name == "fashion_mnist":
        folders.insert(len(below) if os.environ.get("FEDVIZ_DATA") else 0, DEBIAN)
    return folders


def _folders(name: str) -> Iterator[Path]:
    """Of these, the folders that hold all four files."""
    for folder in _places(name):
        if all(_idx_path(folder, file) for file in _FILES[name]):
            yield folder


def _idx_path(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_idx(folder: Path, name: str, shape: tuple[int, ...], classes: int | None = None) -> NDArray[np.uint8]:
    """One IDX file, gzipped or not, checked against its own header, the expected shape and number of classes before anything uses it."""
    path = _idx_path(folder, name)
    assert path is not None  # _folders() saw it
    remedy = "Delete it and run again to download it anew, or put a fresh copy there."
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ProblemError(f"{path} cannot be read ({error}): expected {name}, whole. {remedy}") from error
    # Big-endian 32-bit integers: a magic number (0x08: bytes, then the number of dimensions) and the length of each dimension.
    start = 4 + 4 * len(shape)
    header = [int.from_bytes(raw[at : at + 4], "big") for at in range(0, start, 4)]
    expected = [0x0800 + len(shape), *shape]
    if header != expected or len(raw) != start + math.prod(shape):
        raise ProblemError(
            f"{path} is damaged or another file: expected {start + math.prod(shape):,} bytes with the header {expected} "
            f"(magic number, lengths), got {len(raw):,} bytes with {header}. {remedy}"
        )
    values = np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape).copy()  # one that may be written to
    if classes is not None and values.max() >= classes:
        raise ProblemError(
            f"{path} is damaged or another file: expected labels 0 to {classes - 1}, got {values.max()}. {remedy}"
        )
    return values


def _load_idx(name: str, progress: Progress) -> Dataset:
    info = DATASETS[name]
    folder = next(_folders(name), None)
    if folder is None:
        _download(name, progress)
        folder = next(_folders(name), None)
    assert folder is not None  # a download is put in place whole, or ends with an error
    progress(f"Reading {info.title}")
    train_x, train_y, test_x, test_y = (
        _read_idx(folder, file, (count, *info.image[1:]))
        if "images" in file
        else _read_idx(folder, file, (count,), len(info.labels))
        for file, count in zip(_FILES[name], (info.train, info.train, info.test, info.test), strict=True)
    )
    if name == "emnist":  # its files hold every character lying on its side
        train_x, test_x = train_x.transpose(0, 2, 1), test_x.transpose(0, 2, 1)
    return _dataset(train_x, train_y, test_x, test_y)


_CIFAR10 = "cifar-10-batches-py"  # the folder in torchvision's archive


# --- CIFAR-10 ---------------------------------------------------------------------------------------------------------


def _load_cifar10(name: str, progress: Progress) -> Dataset:
    from torchvision.datasets import CIFAR10

    info = DATASETS[name]
    root = next((root for root in _roots() if (root / CIFAR10.base_folder).is_dir()), None)
    if root is None:
        _download(name, progress)
        root = cache_folder()
    progress(f"Reading {info.title}")
    folder = root / CIFAR10.base_folder
    _check_cifar10(folder)
    train, test = (CIFAR10(str(root), train=train) for train in (True, False))
    for part, count in ((train, info.train), (test, info.test)):
        if not len(part.data) == len(part.targets) == count:
            raise ProblemError(
                f"{folder} holds {len(part.data):,} images with {len(part.targets):,} labels, expected {count:,} of both. "
                "Delete the folder and run again to download it anew."
            )
    # torchvision has [n, height, width, channels]; fedviz, as the files, [n, channels, height, width].
    x = [np.ascontiguousarray(part.data.transpose(0, 3, 1, 2)) for part in (train, test)]
    return _dataset(x[0], np.array(train.targets), x[1], np.array(test.targets))


def _check_cifar10(folder: Path) -> None:
    """Raises ProblemError with the first file that is missing or is not the published one; nothing is unpickled before."""
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import calculate_md5

    for file, expected in (*CIFAR10.train_list, *CIFAR10.test_list, (CIFAR10.meta["filename"], CIFAR10.meta["md5"])):
        path = folder / file
        try:
            found = calculate_md5(path)
        except OSError as error:
            found = error.strerror or str(error)
        if found != expected:
            raise ProblemError(
                f"{path} is missing or damaged: expected a file with the MD5 sum {expected}, got {found}. Delete the folder {folder} "
                "and run again to download it anew, or put a fresh copy of the file there."
            )


# --- downloads --------------------------------------------------------------------------------------------------------


class _Download(threading.Thread):
    """torchvision's own download, put into the cache folder when it is complete: nobody sees half of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name=f"download-{name}", daemon=True)
        self.info = DATASETS[name]
        self.failure: Exception | None = None
        self.staging = cache_folder() / f"downloading-{name}"
        self.arguments = {"split": "balanced"} if name == "emnist" else {}

    def run(self) -> None:
        import torchvision

        try:
            shutil.rmtree(self.staging, ignore_errors=True)  # of a process that was ended in the middle
            self.staging.mkdir(parents=True)
            for train in (True, False):  # EMNIST looks only for the files of the part that is asked for
                getattr(torchvision.datasets, self.info.download)(
                    str(self.staging), train=train, download=True, **self.arguments
                )
            for folder in (path for path in self.staging.iterdir() if path.is_dir()):
                place = cache_folder() / folder.name
                shutil.rmtree(place, ignore_errors=True)
                folder.rename(place)
        except Exception as error:  # torchvision raises many kinds: URLError, RuntimeError, OSError, ...
            self.failure = error
        finally:
            shutil.rmtree(self.staging, ignore_errors=True)

    def megabytes(self) -> float:
        archives = (file for file in self.staging.rglob("*") if file.suffix in (".gz", ".zip"))
        try:
            return sum(file.stat().st_size for file in archives) / 1e6
        except OSError:  # it is just being put in place
            return self.info.megabytes


_DOWNLOADS: dict[str, _Download] = {}


def _download(name: str, progress: Progress) -> None:
    """Waits for the download of `name`, telling `progress` the megabytes so far. Raises ProblemError.

    `progress` may raise to leave: the download goes on, and the next to ask waits for the same one.
    """
    worker = _DOWNLOADS.get(name)
    if worker is None or not worker.is_alive():
        worker = _DOWNLOADS[name] = _Download(name)
        worker.start()
    while worker.is_alive():
        worker.join(0.3)
        info = worker.info
        progress(f"Downloading {info.download}: {min(worker.megabytes(), info.megabytes):.0f} of {info.megabytes} MB")
    if worker.failure is not None:
        raise ProblemError(_ways_to_get(name, str(worker.failure))) from worker.failure


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
    return (
        f"{info.download} could not be downloaded ({reason}). {_incomplete(name)}"
        f"Three ways on: {ways[0]}; {ways[1]}; or {ways[2]}."
    )


def _incomplete(name: str) -> str:
    """What a folder lacks that holds some of the IDX files of `name`; empty where there is none."""
    for folder in _places(name) if name in _FILES else []:
        missing = [file for file in _FILES[name] if not _idx_path(folder, file)]
        if len(missing) < len(_FILES[name]):
            return f"{folder} lacks {' and '.join(missing)} (or the same with .gz): put a copy there. "
    return ""


_LOADERS: dict[str, Callable[[str, Progress], Dataset]] = {
    "fashion_mnist_mini": _load_mini,
    "fashion_mnist": _load_idx,
    "mnist": _load_idx,
    "emnist": _load_idx,
    "cifar10": _load_cifar10,
    "digits": _load_digits,
}
