"""The counter-based generator: its published test vectors, and what is made of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from fedviz.keyed_random import Purpose, bits, normals, philox, shuffles, subset, uniforms

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_its_authors_test_vectors(counter: tuple, key: tuple, expected: tuple) -> None:
    """Philox4x32-10, from the known-answer file of Random123."""
    assert philox(counter, key).tolist() == list(expected)


def test_every_part_of_the_key_matters_and_seed_zero_is_a_seed() -> None:
    def draw(seed: int = 0, purpose: Purpose = Purpose.COHORT, **where: int) -> tuple:
        return tuple(bits(seed, purpose, size=8, **where).tolist())

    others = [
        draw(seed=1), draw(seed=2**32), draw(seed=2**63 - 1), draw(purpose=Purpose.MINIBATCH), draw(round=1), draw(client=1),
        draw(epoch=1), draw(replica=1),
    ]  # fmt: skip
    assert len({draw(), *others}) == 9


def test_one_call_for_many_places_is_many_calls_for_one() -> None:
    together = bits(3, Purpose.MINIBATCH, round=7, client=np.arange(5)[:, None], epoch=np.arange(3), size=6)
    for client in range(5):
        for epoch in range(3):
            alone = bits(3, Purpose.MINIBATCH, round=7, client=client, epoch=epoch, size=6)
            assert together[client, epoch].tolist() == alone.tolist()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 2**63 - 1))
def test_a_shuffle_is_a_permutation_that_depends_on_its_own_place_alone(lengths: list[int], seed: int) -> None:
    together = shuffles(seed, Purpose.MINIBATCH, lengths=np.array(lengths), round=2, client=np.arange(len(lengths)))
    for client, length in enumerate(lengths):
        order = together[client, :length].tolist()
        assert sorted(order) == list(range(length))
        assert order == shuffles(seed, Purpose.MINIBATCH, lengths=length, round=2, client=client).tolist()


def test_shuffles_are_uniform() -> None:
    """The 24 orders of four things, over 24,000 rounds."""
    orders = shuffles(5, Purpose.MINIBATCH, lengths=np.full(24_000, 4), round=np.arange(24_000))
    counts = np.unique(orders @ [1000, 100, 10, 1], return_counts=True)[1]
    assert len(counts) == 24
    assert chisquare(counts).pvalue > 1e-4


def test_subsets_are_uniform_sorted_and_without_repetition() -> None:
    ids = np.array([2, 3, 5, 7, 11])
    chosen = [tuple(subset(0, Purpose.COHORT, ids, 2, round=round).tolist()) for round in range(10_000)]
    pairs, counts = np.unique(chosen, axis=0, return_counts=True)
    assert len(pairs) == 10
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert chisquare(counts).pvalue > 1e-4


def test_uniforms_and_normals_have_their_distribution() -> None:
    assert kstest(uniforms(1, Purpose.INITIAL, size=20_000), "uniform").pvalue > 1e-4
    z = normals(1, Purpose.GRADIENT_NOISE, round=np.arange(4000), size=5)
    assert kstest(z.ravel(), "norm").pvalue > 1e-4
    assert abs(np.corrcoef(z.T) - np.eye(5)).max() < 0.08
