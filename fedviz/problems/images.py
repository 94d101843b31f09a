"""Images where a run computes: on its device once per process, shared by runs, as floats or as the bytes that they came as.

On an NVIDIA GPU they stay bytes, a quarter of the memory and of what a minibatch has to fetch; they become floats, normalised, on
their way into a minibatch. On a CPU they are floats: bytes save memory there, but no time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from fedviz.problems.classifier import normalised
from fedviz.problems.datasets import Dataset, Info
from fedviz.problems.models import Model

BYTES_ON = {"cuda"}  # the devices where images stay bytes


@dataclass(frozen=True)
class Images:
    """Images as a model takes them [n, D]: shift + scale * stored, or what is stored where there is no scale."""

    stored: Tensor
    scale: Tensor | None = None  # [D]
    shift: Tensor | None = None  # [D]

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Some images [n, D] in full precision."""
        some = self.stored[rows]
        return some if self.scale is None or self.shift is None else torch.addcmul(self.shift, some, self.scale)

    def gather(self, rows: Tensor, out: Tensor) -> None:
        """Put images `rows` [n] into out [n, D], in the precision of `out`."""
        if self.scale is not None and self.shift is not None:
            torch.addcmul(self.shift, self.stored.index_select(0, rows), self.scale, out=out)
        elif out.dtype == self.stored.dtype:
            torch.index_select(self.stored, 0, rows, out=out)
        else:
            out.copy_(self.stored.index_select(0, rows))

    @staticmethod
    def of(pixels: NDArray[np.uint8], info: Info, device: str, dtype: torch.dtype, model: Model | None) -> Images:
        """Pixels [n, D] on the device, as `model` takes them (None: flat, normalised)."""

        def prepared(x: Tensor) -> Tensor:
            return model.prepare(x) if model else x

        if device not in BYTES_ON:
            return Images(prepared(normalised(pixels, info, device, dtype)))
        # How a byte becomes a float, place by place, shows in a black and a white image. What a model adds to images is alike in both.
        extremes = np.repeat(np.array([[0], [255]], dtype=np.uint8), pixels.shape[1], 1)
        black, white = prepared(normalised(extremes, info, "cpu", torch.float64)).to(device)
        return Images(prepared(torch.as_tensor(pixels).to(device)), ((white - black) / 255).to(dtype), black.to(dtype))


Resident = tuple[Images, Tensor, Images, Tensor]
_RESIDENT: dict[tuple[object, ...], Resident] = {}
_MAKING = threading.RLock()


def resident(data: Dataset, info: Info, device: str, dtype: torch.dtype, model: Model | None) -> Resident:
    """(training images, their labels one-hot [n, C], test images, theirs) on the device, made once per process and shared by runs."""
    # Data sets are kept for the life of the process. Models that take images alike share them.
    key = (id(data), device, dtype, type(model).prepare if model else Model.prepare, device in BYTES_ON)
    with _MAKING:
        if key not in _RESIDENT:
            images = [Images.of(x, info, device, dtype, model) for x in (data.train_images, data.test_images)]
            targets = [
                F.one_hot(torch.as_tensor(labels), len(info.labels)).to(device, dtype)
                for labels in (data.train_labels, data.test_labels)
            ]
            _RESIDENT[key] = (images[0], targets[0], images[1], targets[1])
        return _RESIDENT[key]
