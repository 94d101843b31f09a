"""Training images that look unlike from client to client."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from fedviz.keyed_random import Purpose, normals
from fedviz.problems.partitions import Indices


def skewed(x: Tensor, parts: Indices, image: tuple[int, int, int], kind: str, strength: float, seed: int) -> Tensor:
    """A copy of the training images x [n, D] as each client sees its own, from unchanged at client 0 to `strength` at the last."""
    x = x.clone()
    share = np.linspace(0, strength, len(parts)) if len(parts) > 1 else np.array([strength])
    for part, s in zip(parts, share, strict=True):
        rows = torch.as_tensor(part, device=x.device)
        if kind == "noise":
            noise = normals(seed, Purpose.PARTITION, client=part, epoch=5, size=x.shape[1])
            x[rows] += x.new_tensor(s * noise)
        elif kind == "contrast":
            x[rows] *= 1 - s
        else:
            turn = math.pi * s
            cosine, sine = math.cos(turn), math.sin(turn)
            where = x.new_tensor([[cosine, -sine, 0.0], [sine, cosine, 0.0]]).expand(len(part), 2, 3)
            images = x[rows].unflatten(1, image)
            grid = F.affine_grid(where, list(images.shape), align_corners=False)
            x[rows] = F.grid_sample(images, grid, padding_mode="border", align_corners=False).flatten(1)
    return x
