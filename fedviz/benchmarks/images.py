"""Random images in the place of a data set that is not at hand: speed does not depend on what the images show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

from fedviz.problems import ProblemError, classification, datasets
from fedviz.problems.datasets import DATASETS, Dataset


@contextmanager
def at_hand(name: str) -> Iterator[str]:
    """Within it `datasets.load(name)` works without a download; yields what the images are, in words."""
    try:
        datasets.train_labels(name)
    except ProblemError:
        pass
    else:
        yield DATASETS[name].title
        return
    _forget(name)
    datasets._LOADED[name] = random_images(name)
    try:
        yield f"random images of the shape of {DATASETS[name].title}"
    finally:
        _forget(name)


def _forget(name: str) -> None:
    """Let nothing that was made of the random images outlive them."""
    datasets._LOADED.pop(name, None)
    datasets.train_labels.cache_clear()
    classification._dealt.cache_clear()


@cache  # for the life of the process, as loaded data: what is resident on a device is known by its data set's identity
def random_images(name: str) -> Dataset:
    """As many images and labels as `name` has, of the same shape, uniformly random."""
    info, draw = DATASETS[name], np.random.default_rng(0)
    pixels, labels = math.prod(info.image), len(info.labels)
    train, test = (draw.integers(0, 256, (n, pixels), dtype=np.uint8) for n in (info.train, info.test))
    train_labels, test_labels = (draw.integers(0, labels, n) for n in (info.train, info.test))
    return Dataset(train, train_labels, test, test_labels)
