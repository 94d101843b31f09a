"""Make fashion_mnist_mini.npz: the first 1,000 training and 200 test images of every class, in file order.

Run `python assets/build_fashion_mnist_mini.py [FOLDER]`, where FOLDER holds the four official IDX files of Fashion-MNIST (Debian's
package dataset-fashion-mnist puts them in /usr/share/datasets/fashion-mnist).

Fashion-MNIST is under the MIT licence, copyright 2017 Zalando SE.
"""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from fedviz.problems import datasets


def first_of_each_class(labels: np.ndarray, count: int) -> np.ndarray:
    """Indices, in file order, of the first `count` samples of every label."""
    return np.sort(np.concatenate([np.flatnonzero(labels == y)[:count] for y in np.unique(labels)]))


def main() -> None:
    if len(sys.argv) > 1:
        os.environ["FEDVIZ_DATA"] = sys.argv[1]
    full = datasets.load("fashion_mnist", print)
    train, test = first_of_each_class(full.train_labels, 1000), first_of_each_class(full.test_labels, 200)
    np.savez_compressed(
        datasets.MINI,
        train_images=full.train_images[train],
        train_labels=full.train_labels[train].astype(np.uint8),
        test_images=full.test_images[test],
        test_labels=full.test_labels[test].astype(np.uint8),
    )
    print(
        f"{datasets.MINI}: {len(train):,} training and {len(test):,} test images, {datasets.MINI.stat().st_size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
