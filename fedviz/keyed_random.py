"""Random numbers as a pure function of where they are used: Philox4x32-10, vectorised over arrays.

Nothing here keeps a state. A draw is keyed by (seed, purpose, round, client) and a position, so that two runs with the same seed
share partition, cohorts and minibatches whatever their algorithms, and a run can go on from any round.

Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011; checked against the authors' test vectors.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of every recorded run: never change or reuse one."""

    PARTITION = 1
    COHORT = 2
    MINIBATCH = 3
    GRADIENT_NOISE = 4
    CLUSTERING = 5
    AVAILABILITY = 6
    PROBE_CLIENTS = 7
    INITIAL = 8
    CHECK = 9
    OBJECTIVE = 10


_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def philox(counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Philox4x32-10 of 4 x 32-bit counters (broadcast together) under a 2 x 32-bit key; returns [..., 4] uint32."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, dtype=np.uint64) for c in counter))
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ k0, p1 & _LOW, (p0 >> _SHIFT) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL_0) & _LOW, (k1 + _WEYL_1) & _LOW
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def bits(
    seed: int,
    purpose: Purpose,
    *,
    round: ArrayLike = 0,
    client: ArrayLike = 0,
    epoch: ArrayLike = 0,
    replica: int = 0,
    size: int,
) -> NDArray[np.uint32]:
    """[..., size] uniform 32-bit integers for each (round, client, epoch); ... is their common broadcast shape.

    seed: 0 ... 2^64 - 1. round, client: below 2^32. epoch: below 2^16. replica: below 2^8; 0 is the training run itself.
    """
    blocks = -(-size // 4)
    round, client, epoch = (
        np.asarray(x, dtype=np.uint64)[..., None] for x in np.broadcast_arrays(round, client, epoch)
    )
    last = (np.uint64(purpose) << np.uint64(24)) | (np.uint64(replica) << np.uint64(16)) | epoch
    words = philox((np.arange(blocks, dtype=np.uint64), client, round, last), (seed & 0xFFFFFFFF, seed >> 32))
    return words.reshape(*words.shape[:-2], blocks * 4)[..., :size]


def uniforms(seed: int, purpose: Purpose, *, size: int, **where: ArrayLike) -> NDArray[np.float64]:
    """[..., size] uniform numbers inside (0, 1); `where` as in `bits`."""
    return np.asarray(bits(seed, purpose, size=size, **where) + 0.5, dtype=np.float64) / 2.0**32  # type: ignore[arg-type]


def normals(seed: int, purpose: Purpose, *, size: int, **where: ArrayLike) -> NDArray[np.float64]:
    """[..., size] standard normal numbers (Box-Muller); `where` as in `bits`."""
    half = -(-size // 2)
    u = uniforms(seed, purpose, size=2 * half, **where)
    radius, angle = np.sqrt(-2.0 * np.log(u[..., :half])), 2.0 * np.pi * u[..., half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)[..., :size]


def shuffles(
    seed: int,
    purpose: Purpose,
    *,
    lengths: ArrayLike,
    round: ArrayLike = 0,
    client: ArrayLike = 0,
    epoch: ArrayLike = 0,
    replica: int = 0,
) -> NDArray[np.int64]:
    """[..., max length] a uniform random order of 0 ... length - 1 for each place, followed by padding.

    lengths: integers, broadcast with the other places. A place's order depends on nothing but its key and its own length.
    """
    lengths = np.asarray(lengths)
    longest = int(lengths.max(initial=0))
    draws = bits(seed, purpose, round=round, client=client, epoch=epoch, replica=replica, size=longest)
    position = np.arange(longest, dtype=np.uint64)
    # Sorting (draw, position) pairs packed in one integer breaks ties by position, whatever the sort's own method.
    packed = (draws.astype(np.uint64) << _SHIFT) | position
    packed = np.where(position < lengths[..., None], packed, np.iinfo(np.uint64).max)
    return (np.sort(packed, axis=-1) & _LOW).astype(np.int64)


def subset(
    seed: int, purpose: Purpose, ids: NDArray[np.int64], size: int, *, round: int = 0, replica: int = 0
) -> NDArray[np.int64]:
    """`size` of the given distinct client `ids`, uniformly without replacement, sorted. A client's draw is keyed by its id."""
    if size >= len(ids):
        return np.sort(ids)
    draws = bits(seed, purpose, round=round, client=ids, replica=replica, size=1)[:, 0]
    packed = np.sort((draws.astype(np.uint64) << _SHIFT) | ids.astype(np.uint64))
    return np.sort((packed[:size] & _LOW).astype(np.int64))
