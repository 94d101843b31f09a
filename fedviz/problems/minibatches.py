"""Which samples a client uses in which local step of a round.

Per client and round: freshly shuffled epochs of the client's data, incomplete last batches dropped; a client with fewer samples than
the batch size uses all it has in every step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedviz.keyed_random import Purpose, shuffles


def schedule(
    counts: NDArray[np.int64],
    clients: NDArray[np.int64],
    batch_size: int,
    steps: int,
    *,
    seed: int,
    round: int,
    replica: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(positions [S, steps, B], weights [S, B]) of samples within each client's own data.

    counts: [S] samples of each of the `clients` [S]. weights: 1/b for the b = min(batch_size, count) real places of a batch, 0 for
    the padding behind them (whose positions are 0). B = the largest b.
    """
    size = np.minimum(batch_size, counts)  # [S] b
    width = int(size.max())
    per_epoch = counts // size  # [S] whole batches in an epoch
    epochs = -(-steps // int(per_epoch.min()))
    orders = shuffles(
        seed,
        Purpose.MINIBATCH,
        lengths=counts[:, None],
        round=round,
        client=clients[:, None],
        epoch=np.arange(epochs),
        replica=replica,
    )  # [S, epochs, longest]
    step, place = np.arange(steps), np.arange(width)
    epoch = step // per_epoch[:, None]  # [S, steps]
    start = step % per_epoch[:, None] * size[:, None]
    real = place < size[:, None]  # [S, B]
    within = np.where(real[:, None], start[..., None] + place, 0)
    positions = orders[np.arange(len(counts))[:, None, None], epoch[..., None], within]
    return np.where(real[:, None], positions, 0), np.where(real, 1 / size[:, None], 0)
