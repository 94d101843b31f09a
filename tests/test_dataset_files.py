"""The data sets that do not come with fedviz, read from small files in their own formats.

The files are written here byte by byte as their publishers describe them, in miniature: a handful of images for tens of thousands.

IDX (MNIST and its relatives): big-endian 32-bit integers, 0x0803 for three dimensions of bytes, n, 28, 28, then the pixels row by row;
0x0801, n, then the labels. EMNIST's pixels run column by column. CIFAR-10: six pickles of "data" [n, 3072] (1,024 red, then green, then
blue values, each row by row) and "labels", whose MD5 sums are published.
"""

import gzip
import hashlib
import pickle
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets as published

from fedviz.problems import ProblemError, datasets

TRAIN, TEST = 5, 2
IDX = ["mnist", "fashion_mnist", "emnist"]
TRAIN_LABELS, TEST_LABELS = [3, 0, 9, 9, 1], [7, 2]


@pytest.fixture(autouse=True)
def small_and_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Data sets of five training and two test images; no folder but the test's own; nothing loaded before or kept after."""
    for name in (*IDX, "cifar10"):
        monkeypatch.setitem(datasets.DATASETS, name, replace(datasets.DATASETS[name], train=TRAIN, test=TEST))
    monkeypatch.setattr(datasets, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(datasets, "DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(datasets, "_LOADED", {})
    monkeypatch.setattr(datasets, "_DOWNLOADS", {})
    monkeypatch.setenv("FEDVIZ_DATA", str(tmp_path / "own"))
    datasets.train_labels.cache_clear()
    yield
    datasets.train_labels.cache_clear()


# --- files as they are published --------------------------------------------------------------------------------------


def picture(n: int) -> np.ndarray:
    """[28, 28] upright and without any symmetry: pixel (row, column) is row + 3 column + n."""
    row, column = np.mgrid[:28, :28]
    return (row + 3 * column + n).astype(np.uint8)


def idx_images(pictures: list[np.ndarray]) -> bytes:
    header = b"".join(number.to_bytes(4, "big") for number in (0x0803, len(pictures), 28, 28))
    return header + b"".join(p.tobytes() for p in pictures)


def idx_labels(labels: list[int]) -> bytes:
    return (0x0801).to_bytes(4, "big") + len(labels).to_bytes(4, "big") + bytes(labels)


def idx_files(name: str) -> dict[str, bytes]:
    """The four files of a data set, by their published names."""
    train, test = [picture(n) for n in range(TRAIN)], [picture(100 + n) for n in range(TEST)]
    if name == "emnist":
        train, test = [p.T for p in train], [p.T for p in test]
    first, second = ("emnist-balanced-train", "emnist-balanced-test") if name == "emnist" else ("train", "t10k")
    return {
        f"{first}-images-idx3-ubyte": idx_images(train),
        f"{first}-labels-idx1-ubyte": idx_labels(TRAIN_LABELS),
        f"{second}-images-idx3-ubyte": idx_images(test),
        f"{second}-labels-idx1-ubyte": idx_labels(TEST_LABELS),
    }


def write(folder: Path, files: dict[str, bytes], *, zipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        if zipped:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / file).write_bytes(content)


def photograph(n: int) -> list[int]:
    """3072 bytes: red is n + row, green 100 + column, blue 200 everywhere."""
    return [n + at // 32 for at in range(1024)] + [100 + at % 32 for at in range(1024)] + [200] * 1024


def cifar_files(counts: tuple[int, ...] = (1, 1, 1, 1, 1, TEST)) -> dict[str, bytes]:
    """The seven files of CIFAR-10, `counts` images in the five training batches and the test batch; their labels in order."""
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    labels, files, first = iter([*TRAIN_LABELS[: sum(counts[:5])], *TEST_LABELS]), {}, 0
    for name, count in zip(names, counts, strict=True):
        data = np.array([photograph(first + n) for n in range(count)], dtype=np.uint8).reshape(count, 3072)
        files[name] = pickle.dumps({"data": data, "labels": [next(labels) for _ in range(count)]}, protocol=2)
        first += count
    return {**files, "batches.meta": pickle.dumps({"label_names": ["airplane", "automobile"]}, protocol=2)}


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def publish_sums(monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    """Let torchvision know the sums of our small CIFAR-10 in place of those of the real one."""
    sums = [[name, md5(content)] for name, content in files.items()]
    monkeypatch.setattr(published.CIFAR10, "train_list", sums[:5])
    monkeypatch.setattr(published.CIFAR10, "test_list", sums[5:6])
    meta = {"filename": "batches.meta", "key": "label_names", "md5": sums[6][1]}
    monkeypatch.setattr(published.CIFAR10, "meta", meta)


# --- what is whole is read as it was published ------------------------------------------------------------------------


def assert_whole(name: str) -> None:
    """Pixel (row, column) of training image n is row + 3 column + n, of test image n 100 more: stored at 28 row + column."""
    data = datasets.load(name)
    row, column = np.divmod(np.arange(784), 28)
    upright = row + 3 * column
    assert data.train_images.dtype == np.uint8
    assert data.train_images.tolist() == [(upright + n).tolist() for n in range(TRAIN)]
    assert data.test_images.tolist() == [(upright + 100 + n).tolist() for n in range(TEST)]
    assert (data.train_labels.tolist(), data.test_labels.tolist()) == (TRAIN_LABELS, TEST_LABELS)
    assert data.train_labels.dtype == data.test_labels.dtype == np.int64
    assert datasets.train_labels(name).tolist() == TRAIN_LABELS


@pytest.mark.parametrize("zipped", [False, True], ids=["raw", "gzip"])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion_mnist", "FashionMNIST/raw"),
        ("fashion_mnist", "fashion-mnist"),
        ("fashion_mnist", "."),
        ("emnist", "emnist"),
        ("emnist", "EMNIST/raw"),
    ],
)
@pytest.mark.parametrize("root", ["own", "cache"])
def test_idx_files_are_read_pixel_by_pixel(tmp_path: Path, name: str, folder: str, zipped: bool, root: str) -> None:
    write(tmp_path / root / folder, idx_files(name), zipped=zipped)
    assert_whole(name)


def test_labels_alone_are_read_before_the_images_are() -> None:
    write(Path(datasets._roots()[0]) / "mnist", idx_files("mnist"))
    assert datasets.train_labels("mnist").tolist() == TRAIN_LABELS
    assert "mnist" not in datasets._LOADED


def test_emnists_characters_stand_upright() -> None:
    """An upright 7 has its bar in row 4 and its stem in column 18 below. EMNIST writes columns one after the other: in the file the bar
    is every 28th byte, from the fourth on, and the stem is 28 bytes in one piece, from byte 18 * 28 on.
    """
    lying = bytearray(784)
    for column in range(8, 19):
        lying[column * 28 + 4] = 255
    for row in range(4, 24):
        lying[18 * 28 + row] = 255
    seven = np.frombuffer(bytes(lying), dtype=np.uint8).reshape(28, 28)
    files = idx_files("emnist")
    files["emnist-balanced-train-images-idx3-ubyte"] = idx_images([seven] * TRAIN)
    files["emnist-balanced-test-images-idx3-ubyte"] = idx_images([seven] * TEST)
    write(Path(datasets._roots()[0]) / "emnist", files)
    data = datasets.load("emnist")
    for image in (data.train_images[0], data.test_images[1]):
        lit = {(int(at) // 28, int(at) % 28) for at in np.flatnonzero(image)}
        assert lit == {(4, column) for column in range(8, 19)} | {(row, 18) for row in range(4, 24)}


def test_cifar10_is_read_pixel_by_pixel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channel c, row y, column x of an image stands at 1024 c + 32 y + x: red n + y, green 100 + x, blue 200."""
    files = cifar_files()
    publish_sums(monkeypatch, files)
    write(tmp_path / "own" / "cifar-10-batches-py", files)
    data = datasets.load("cifar10")
    assert data.train_images.shape == (TRAIN, 3072)
    assert data.train_images.dtype == np.uint8
    for images, first in ((data.train_images, 0), (data.test_images, TRAIN)):
        for n, image in enumerate(images, start=first):
            red, green, blue = image.reshape(3, 32, 32)
            assert (int(red[0, 31]), int(red[31, 0])) == (n, n + 31)
            assert (int(green[0, 31]), int(green[31, 0])) == (131, 100)
            assert set(blue.ravel().tolist()) == {200}
            assert image.tolist() == photograph(n)
    assert (data.train_labels.tolist(), data.test_labels.tolist()) == (TRAIN_LABELS, TEST_LABELS)


# --- what is damaged is told, and neither used nor kept ---------------------------------------------------------------

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {  # file, what happens to it, what is said
    "cut short": (IMAGES, lambda b: b[:-1], r"expected 3,936 bytes .* got 3,935 bytes"),
    "cut short in the header": (IMAGES, lambda b: b[:5], r"got 5 bytes"),
    "empty": (LABELS, lambda b: b"", r"expected 13 bytes with the header \[2049, 5\] .* got 0 bytes"),
    "too long": (IMAGES, lambda b: b + b"\0", r"expected 3,936 bytes .* got 3,937 bytes"),
    "wrong magic number": (IMAGES, lambda b: flipped(b, 3), r"expected .*\[2051, 5, 28, 28\] .* with \[2300, 5, 28, 28\]"),
    "labels for images": (IMAGES, lambda b: idx_labels(TRAIN_LABELS), r"expected .*\[2051, 5, 28, 28\] .* with \[2049, 5, "),
    "too few images": (IMAGES, lambda b: idx_images([picture(n) for n in range(4)]), r"\[2051, 5, 28, 28\].*\[2051, 4, 28, 28\]"),
    "too many labels": (LABELS, lambda b: idx_labels([*TRAIN_LABELS, 1]), r"\[2049, 5\] .*\[2049, 6\]"),
    "a label that there is not": (LABELS, lambda b: idx_labels([3, 0, 9, 10, 1]), r"expected labels 0 to 9, got 10"),
    "gzip cut short": (f"{IMAGES}.gz", lambda b: b[:-20], r"cannot be read \(.*\): expected train-images-idx3-ubyte, whole"),
    "gzip with a wrong checksum": (f"{IMAGES}.gz", lambda b: flipped(b, len(b) - 8), r"cannot be read \(CRC check failed"),
    "gzip with damaged contents": (f"{IMAGES}.gz", lambda b: b[:10] + b"\xff" * 8 + b[18:], r"cannot be read \(.*invalid"),
    "no gzip at all": (f"{IMAGES}.gz", lambda b: b"<html>404</html>", r"cannot be read \(Not a gzipped file"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_not_kept_and_a_whole_one_in_its_place_is_read(tmp_path: Path, damage: str) -> None:
    file, spoil, message = DAMAGES[damage]
    folder = tmp_path / "own" / "mnist"
    write(folder, idx_files("mnist"), zipped=file.endswith(".gz"))
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(spoil(whole))
    for _ in range(2):
        with pytest.raises(ProblemError, match=message) as refused:
            datasets.load("mnist")
        assert str(folder / file) in str(refused.value)
        assert "Delete it and run again to download it anew, or put a fresh copy there." in str(refused.value)
    assert not datasets._LOADED
    (folder / file).write_bytes(whole)
    assert_whole("mnist")


def test_damaged_labels_are_refused_by_the_preview_too_and_not_kept(tmp_path: Path) -> None:
    folder = tmp_path / "own" / "mnist"
    write(folder, {**idx_files("mnist"), LABELS: idx_labels([3, 0, 9, 10, 1])})
    with pytest.raises(ProblemError, match="expected labels 0 to 9, got 10"):
        datasets.train_labels("mnist")
    write(folder, idx_files("mnist"))
    assert datasets.train_labels("mnist").tolist() == TRAIN_LABELS


CIFAR_DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "missing": ("data_batch_4", lambda b: None),
    "cut short": ("data_batch_2", lambda b: b[:-1]),
    "a byte changed": ("test_batch", lambda b: flipped(b, len(b) // 2)),
    "names missing": ("batches.meta", lambda b: None),
}


@pytest.mark.parametrize("damage", CIFAR_DAMAGES)
def test_a_damaged_file_of_cifar10_is_named_with_its_sum_and_a_whole_one_in_its_place_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    file, spoil = CIFAR_DAMAGES[damage]
    files, folder = cifar_files(), tmp_path / "own" / "cifar-10-batches-py"
    publish_sums(monkeypatch, files)
    write(folder, files)
    spoilt = spoil(files[file])
    (folder / file).unlink() if spoilt is None else (folder / file).write_bytes(spoilt)
    with pytest.raises(ProblemError) as refused:
        datasets.load("cifar10")
    got = "No such file or directory" if spoilt is None else md5(spoilt)
    assert (
        f"{folder / file} is missing or damaged: expected a file with the MD5 sum {md5(files[file])}, got {got}."
        in str(refused.value)
    )
    assert f"Delete the folder {folder} and run again to download it anew" in str(refused.value)
    assert not datasets._LOADED
    write(folder, {file: files[file]})
    assert datasets.load("cifar10").train_labels.tolist() == TRAIN_LABELS


def test_a_wrong_number_of_photographs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = cifar_files((1, 1, 1, 1, 0, TEST))
    publish_sums(monkeypatch, files)
    write(tmp_path / "own" / "cifar-10-batches-py", files)
    with pytest.raises(ProblemError, match=r"cifar-10-batches-py holds 4 images with 4 labels, expected 5 of both"):
        datasets.load("cifar10")


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_that_is_not_the_published_one_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, sprung = cifar_files(), tmp_path / "sprung"
    publish_sums(monkeypatch, files)
    trap = pickle.dumps(Trap(sprung))
    for file in files:
        write(tmp_path / "own" / "cifar-10-batches-py", {**files, file: trap})
        with pytest.raises(ProblemError, match=f"{file} is missing or damaged"):
            datasets.load("cifar10")
    assert not sprung.exists()
    pickle.loads(trap)
    assert sprung.exists()


# --- downloads, from a server of our own ------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Serves `folder`; `asked` lists the paths; answers once `ready` is set."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.ready = folder, [], threading.Event()
        self.ready.set()
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.address = f"http://127.0.0.1:{self.server_port}/"


class Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.ready.wait(10)
        super().do_GET()

    def log_message(self, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Has MNIST, EMNIST and CIFAR-10 as their publishers have them, and torchvision is told to ask there."""
    served = tmp_path / "served"
    write(served, idx_files("mnist"), zipped=True)
    sums = [(file.name, md5(file.read_bytes())) for file in sorted(served.iterdir())]
    write(tmp_path / "gzip", idx_files("emnist"), zipped=True)
    with zipfile.ZipFile(served / "gzip.zip", "w") as archive:
        for file in (tmp_path / "gzip").iterdir():
            archive.write(file, f"gzip/{file.name}")
    files = cifar_files()
    publish_sums(monkeypatch, files)
    write(tmp_path / "photographs", files)
    with tarfile.open(served / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "photographs", "cifar-10-batches-py")
    server = Server(served)
    monkeypatch.setattr(published.MNIST, "mirrors", [server.address])
    monkeypatch.setattr(published.MNIST, "resources", sums)
    monkeypatch.setattr(published.EMNIST, "url", f"{server.address}gzip.zip")
    monkeypatch.setattr(published.EMNIST, "md5", md5((served / "gzip.zip").read_bytes()))
    monkeypatch.setattr(published.CIFAR10, "url", f"{server.address}cifar-10-python.tar.gz")
    monkeypatch.setattr(published.CIFAR10, "tgz_md5", md5((served / "cifar-10-python.tar.gz").read_bytes()))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.ready.set()
    server.shutdown()
    server.server_close()


def test_a_download_is_read_and_put_in_place(tmp_path: Path, server: Server) -> None:
    told: list[str] = []
    datasets.load("mnist", told.append)
    assert any(line.startswith("Downloading MNIST: ") for line in told)
    assert_whole("mnist")
    datasets.load("emnist")
    assert_whole("emnist")
    assert datasets.load("cifar10").train_images[3].tolist() == photograph(3)
    kept = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert kept == ["EMNIST", "MNIST", "cifar-10-batches-py"]


@pytest.mark.parametrize(
    ("name", "file"), [("mnist", f"{IMAGES}.gz"), ("emnist", "gzip.zip"), ("cifar10", "cifar-10-python.tar.gz")]
)
def test_a_download_with_a_wrong_checksum_leaves_nothing_and_the_next_one_works(
    tmp_path: Path, server: Server, name: str, file: str
) -> None:
    path = server.folder / file
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, len(whole) // 2))
    title = datasets.DATASETS[name].download
    with pytest.raises(ProblemError, match=f"(?s)^{title} could not be downloaded .*corrupted.*Three ways on"):
        datasets.load(name)
    assert list((tmp_path / "cache").iterdir()) == []
    path.write_bytes(whole)
    assert datasets.load(name).train_labels.tolist() == TRAIN_LABELS


def test_a_folder_that_lacks_a_file_is_told_with_the_file_where_there_is_no_network(
    tmp_path: Path, server: Server
) -> None:
    shutil.rmtree(server.folder)
    files = idx_files("emnist")
    missing = "emnist-balanced-test-labels-idx1-ubyte"
    folder = tmp_path / "own" / "emnist"
    write(folder, {file: content for file, content in files.items() if file != missing})
    with pytest.raises(ProblemError, match="EMNIST could not be downloaded") as refused:
        datasets.load("emnist")
    assert f"{folder} lacks {missing} (or the same with .gz): put a copy there." in str(refused.value)
    write(folder, {missing: files[missing]})
    assert_whole("emnist")


def test_half_a_data_set_in_the_cache_is_replaced_by_a_whole_one(tmp_path: Path, server: Server) -> None:
    """EMNIST's training part alone, as an interrupted extraction leaves it: torchvision by itself would look for nothing more."""
    files = idx_files("emnist")
    half = {file: content for file, content in files.items() if "train" in file}
    write(tmp_path / "cache" / "EMNIST" / "raw", half)
    assert_whole("emnist")


def test_who_leaves_during_a_download_spoils_nothing_and_the_next_waits_for_the_same_one(
    tmp_path: Path, server: Server
) -> None:
    server.ready.clear()

    def leave(_: str) -> None:
        raise InterruptedError

    def let_go_on(_: str) -> None:
        assert not (tmp_path / "cache" / "EMNIST").exists() or server.ready.is_set()
        server.ready.set()

    for _ in range(2):
        with pytest.raises(InterruptedError):
            datasets.load("emnist", leave)
    datasets.load("emnist", let_go_on)
    assert_whole("emnist")
    assert server.asked == ["/gzip.zip"] * 2  # torchvision asks once where it is, and once for it


# --- the images that come with fedviz ---------------------------------------------------------------------------------


def mini(**changed: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of the right shapes, but for what is changed."""
    info = datasets.DATASETS["fashion_mnist_mini"]
    return {
        "train_images": np.zeros((info.train, 28, 28), np.uint8),
        "train_labels": np.zeros(info.train, np.uint8),
        "test_images": np.zeros((info.test, 28, 28), np.uint8),
        "test_labels": np.zeros(info.test, np.uint8),
    } | changed


def zeroed(content: bytes) -> bytes:
    """With 2,000 bytes in the middle lost."""
    middle = len(content) // 2
    return content[: middle - 1000] + bytes(2000) + content[middle + 1000 :]


@pytest.mark.parametrize(
    "damage",
    [lambda c: c[:100_000], lambda c: b"", zeroed, lambda c: b"no archive"],
    ids=["cut", "empty", "zeroed", "text"],
)
def test_a_damaged_file_of_our_own_is_named_and_a_good_one_then_read(
    damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content, file = datasets.MINI.read_bytes(), tmp_path / "mini.npz"
    monkeypatch.setattr(datasets, "MINI", file)
    file.write_bytes(damage(content))
    with pytest.raises(ProblemError, match=r"mini\.npz is missing or damaged.*Restore it"):
        datasets.load("fashion_mnist_mini")
    file.write_bytes(content)
    assert len(datasets.load("fashion_mnist_mini").train_labels) == datasets.DATASETS["fashion_mnist_mini"].train


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images": np.zeros((10_000, 20), np.uint8)}, "train_images: expected 7,840,000 bytes, got 200,000"),
        (
            {"train_images": np.zeros((9_000, 28, 28), np.uint8)},
            "train_images: expected 7,840,000 bytes, got 7,056,000",
        ),
        ({"train_labels": np.zeros(9_000, np.uint8)}, "train_labels: expected 10,000 bytes, got 9,000"),
        ({"test_labels": np.full(2_000, 200, np.uint8)}, "test_labels: expected labels 0 to 9, got 200"),
        ({"train_labels": np.zeros(10_000, np.float64)}, "train_labels: expected 10,000 bytes, got 10,000 of float64"),
    ],
)
def test_contents_of_our_own_file_that_do_not_fit_are_not_used(
    changed: dict[str, np.ndarray], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(datasets, "MINI", tmp_path / "mini.npz")
    np.savez(datasets.MINI, **mini(**changed))
    with pytest.raises(ProblemError, match=message):
        datasets.load("fashion_mnist_mini")
    with pytest.raises(ProblemError, match=message):
        datasets.train_labels("fashion_mnist_mini")


def test_a_home_of_nobody_is_a_folder_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDVIZ_DATA", "~nobody-of-this-name/data")
    assert next(datasets._folders("emnist"), None) is None
