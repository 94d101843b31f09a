"""Numbers to and from a device without waiting for it.

A GPU works on while the host goes on; a plain copy in either direction stops the host until everything before it is done. Copies
between pinned memory and the device only queue up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def sent(array: NDArray[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The array on the device; dtype: its own unless told otherwise."""
    here = torch.from_numpy(np.ascontiguousarray(array)).to(dtype)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)


class Fetched:
    """Numbers on their way from the device. What was queued after them goes on meanwhile."""

    def __init__(self, numbers: Tensor) -> None:
        """numbers: [n]."""
        self._here, self._arrived = numbers, None
        if numbers.device.type == "cuda":
            self._here = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._here.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def read(self) -> list[float]:
        """Wait until they are here."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._here.tolist()
