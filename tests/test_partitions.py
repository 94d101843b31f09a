"""Partitions and minibatches: every sample once, nobody empty, as similar as asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedviz.problems import ProblemError, clustering, partitions
from fedviz.problems.classification import Classification, client_indices, label_counts
from fedviz.problems.datasets import train_labels
from fedviz.problems.minibatches import schedule
from fedviz.problems.partitions import Dirichlet, Iid, PartitionParameters, Shards, Similarity, partition

LABELS = np.repeat(np.arange(10), 60)[np.random.default_rng(0).permutation(600)]
EVERY = [
    Iid(),
    Shards(),
    Shards(shards_per_client=1),
    *(Dirichlet(alpha=a, definition=d) for a in (0.01, 0.3, 100.0) for d in ("per_client", "per_class")),
    *(Similarity(similarity=s, protocol=p) for s in (0.0, 0.05, 0.5, 1.0) for p in ("majority_label", "sorted_blocks")),
]


def label_counts_of(kind: PartitionParameters, num_clients: int, seed: int) -> np.ndarray:
    return label_counts(Classification(partition=kind), num_clients, seed)


def client_indices_of(kind: PartitionParameters, num_clients: int, seed: int) -> list:
    return client_indices(Classification(partition=kind), num_clients, seed)


@given(st.sampled_from(EVERY), st.integers(1, 60), st.integers(0, 2**40))
@settings(deadline=None)
def test_every_sample_is_dealt_exactly_once(kind: PartitionParameters, num_clients: int, seed: int) -> None:
    parts = partition(kind, LABELS, num_clients, seed)
    assert len(parts) == num_clients
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(LABELS)))


@pytest.mark.parametrize("kind", EVERY, ids=repr)
def test_the_same_seed_deals_the_same_way_whatever_was_dealt_before(kind: PartitionParameters) -> None:
    first = partition(kind, LABELS, 20, 3)
    partition(Similarity(similarity=0.9), LABELS, 20, 4)
    for a, b in zip(first, partition(kind, LABELS, 20, 3), strict=True):
        assert a.tolist() == b.tolist()


DEFINITIONS = ["per_client", "per_class"]


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_another_concentration_in_between_does_not_change_a_partition(definition: str) -> None:
    """0.1, 10, 0.1: the third is the first again, and the second is another."""
    first, other, again = (
        [part.tolist() for part in partition(Dirichlet(alpha=alpha, definition=definition), LABELS, 20, 3)]
        for alpha in (0.1, 10, 0.1)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_many_clients_of_few_labels_get_a_sample_each_after_a_bounded_number_of_draws(
    definition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """alpha = 0.01, 250 clients, 1,000 samples. At most 20 tries with a draw for each of the 10 labels, then a floor of one sample."""
    labels, drawn = np.arange(1000) % 10, []
    log_gammas = partitions.log_gammas
    monkeypatch.setattr(partitions, "log_gammas", lambda *a, **k: drawn.append(1) or log_gammas(*a, **k))
    for seed in range(3):
        parts = partition(Dirichlet(alpha=0.01, definition=definition), labels, 250, seed)
        assert min(len(part) for part in parts) >= 1
        assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
    assert 1 <= len(drawn) <= 3 * 20 * 10


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_two_clients_share_all_labels_though_every_pool_is_used_up(definition: str) -> None:
    """alpha = 100, half of the data each: of the 60 samples of a label 30 each, but for chance; four standard deviations are allowed.

    Per client: 300 draws of a mix with shares ~ Beta(100, 900), sd sqrt(300^2 * 0.09 / 1001 + 300 * 0.09) = 5.9. Per class: a share
    ~ Beta(100, 100) of 60, sd 60 * 0.5 / sqrt(201) = 2.1, and half a sample of rounding.
    """
    parts = partition(Dirichlet(alpha=100, definition=definition), LABELS, 2, 5)
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))
    counts = np.stack([np.bincount(LABELS[part], minlength=10) for part in parts])
    assert counts.sum(0).tolist() == [60] * 10
    assert abs(counts - 30).max() <= {"per_client": 24, "per_class": 9}[definition]
    if definition == "per_client":
        assert counts.sum(1).tolist() == [300, 300]


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_larger_concentration_is_less_skew(definition: str) -> None:
    """The mean share of a client's most frequent label falls from nearly 1 to nearly 1/10."""
    shares = []
    for alpha in (0.01, 0.1, 1, 10, 1e5):
        parts = partition(Dirichlet(alpha=alpha, definition=definition), LABELS, 10, 1)
        shares.append(np.mean([np.bincount(LABELS[part]).max() / len(part) for part in parts]))
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.8
    assert shares[-1] < 0.2


def test_without_similarity_every_client_has_its_own_label() -> None:
    """N = 20 and 10 labels: clients 2y and 2y + 1 share label y equally, in the paper's contiguous order."""
    for protocol in ("majority_label", "sorted_blocks"):
        parts = partition(Similarity(similarity=0, protocol=protocol), LABELS, 20, 0)
        assert [set(LABELS[part].tolist()) for part in parts] == [{client // 2} for client in range(20)]
        assert {len(part) for part in parts} == {30}


def test_the_share_dealt_at_random_is_the_similarity() -> None:
    """Of 10,000 samples at s = 0.3 about 0.3 * 0.9 = 27 % end with a client of another label: 4 standard deviations are 1.8 %."""
    counts = label_counts_of(Similarity(similarity=0.3), 100, 0)
    strangers = 1 - sum(counts[client, client // 10] for client in range(100)) / 10_000
    assert strangers == pytest.approx(0.27, abs=0.018)
    assert (label_counts_of(Similarity(similarity=1.0), 10, 0) > 60).all()


def test_the_remainder_goes_to_the_smallest_owner() -> None:
    """The paper's rule keeps the owners of one label within a sample of each other at s = 0."""
    counts = label_counts_of(Similarity(similarity=0.0), 30, 0)
    assert counts.sum() == 10_000
    for label in range(10):
        owned = counts[:, label][counts[:, label] > 0]
        assert len(owned) == 3
        assert owned.max() - owned.min() <= 1


def test_with_fewer_clients_than_labels_nobody_is_empty_and_nothing_is_lost() -> None:
    counts = label_counts_of(Similarity(similarity=0.0), 3, 0)
    assert counts.sum() == 10_000
    assert (counts.sum(1) > 0).all()


def test_more_clients_than_samples_or_an_empty_client_is_refused_in_words() -> None:
    with pytest.raises(ProblemError, match="600 samples for 601 clients"):
        partition(Iid(), LABELS, 601, 0)
    with pytest.raises(ProblemError, match=r"leaves \d+ of 500 clients without a sample"):
        partition(Similarity(similarity=1.0), LABELS, 500, 0)


def test_the_shipped_data_is_balanced_and_train_and_test_are_apart() -> None:
    from fedviz.problems.datasets import load

    data = load("fashion_mnist_mini")
    assert np.bincount(data.train_labels).tolist() == [1000] * 10
    assert np.bincount(data.test_labels).tolist() == [200] * 10
    train = {image.tobytes() for image in data.train_images}
    assert sum(image.tobytes() in train for image in data.test_images) == 0


def test_the_preview_shows_the_partition_that_is_trained_on() -> None:
    parts = client_indices_of(Similarity(), 100, 0)
    labels = train_labels("fashion_mnist_mini")
    counts = label_counts_of(Similarity(), 100, 0)
    for client in (0, 57, 99):
        assert np.bincount(labels[parts[client]], minlength=10).tolist() == counts[client].tolist()


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 12), st.integers(1, 25), st.integers(0, 1000)
)
@settings(deadline=None)
def test_minibatches_are_whole_epochs_with_incomplete_batches_dropped(
    counts: list[int], batch: int, steps: int, seed: int
) -> None:
    clients = np.arange(len(counts)) * 3
    positions, weights = schedule(np.array(counts), clients, batch, steps, seed=seed, round=5)
    assert positions.shape[:2] == (len(counts), steps)
    for s, count in enumerate(counts):
        size = min(batch, count)
        assert weights[s].tolist() == pytest.approx([1 / size] * size + [0] * (weights.shape[1] - size))
        used = positions[s, :, :size]
        assert used.min() >= 0
        assert used.max() < count
        per_epoch = count // size
        for epoch in range(0, steps, per_epoch):
            seen = used[epoch : epoch + per_epoch].ravel().tolist()
            assert len(seen) == len(set(seen))
        # A client's minibatches do not depend on who else is in the cohort.
        alone, _ = schedule(np.array([count]), clients[s : s + 1], batch, steps, seed=seed, round=5)
        assert alone[0].tolist() == used.tolist()


@pytest.mark.parametrize("batch", [9, 10, 700])
def test_a_client_with_no_more_samples_than_a_batch_uses_all_of_them_in_every_step(batch: int) -> None:
    """Nine samples: each once in every step, and each counts 1/9."""
    positions, weights = schedule(np.array([9]), np.array([4]), batch, 5, seed=0, round=1)
    assert [sorted(step) for step in positions[0].tolist()] == [list(range(9))] * 5
    assert weights.tolist() == [pytest.approx([1 / 9] * 9)]


def test_rounds_clients_and_replicas_have_their_own_minibatches() -> None:
    def draw(client: int = 0, **where: int) -> list:
        place = {"seed": 0, "round": 1, **where}
        return schedule(np.array([50]), np.array([client]), 10, 5, **place)[0].tolist()

    assert len({str(x) for x in (draw(), draw(client=1), draw(round=2), draw(replica=1), draw(seed=1))}) == 5


@pytest.mark.parametrize("clusters", [1, 6, 10])
def test_clusters_are_as_many_as_asked_and_none_is_empty(clusters: int) -> None:
    """N = 10, K = 6 gives six clusters, not five."""
    counts = np.eye(10, dtype=np.int64)[[0, 0, 0, 1, 1, 2, 3, 3, 3, 3]] * 9
    for labels in (
        clustering.by_label(counts.argmax(1), clusters), clustering.at_random(10, clusters, 0), clustering.by_kmeans(counts, clusters, 0)
    ):  # fmt: skip
        assert len(labels) == 10
        assert sorted(set(labels.tolist())) == list(range(clusters))


def test_label_clusters_hold_one_label_each_and_k_means_finds_them_too() -> None:
    counts = label_counts_of(Similarity(), 100, 0)
    majority = counts.argmax(1)
    for labels in (clustering.by_label(majority, 10), clustering.by_kmeans(counts, 10, 0)):
        assert [len(set(majority[labels == k].tolist())) for k in range(10)] == [1] * 10
    mixed = clustering.at_random(100, 10, 0)
    assert np.bincount(mixed).tolist() == [10] * 10
    assert max(len(set(majority[mixed == k].tolist())) for k in range(10)) > 1


@pytest.mark.parametrize("protocol", ["majority_label", "sorted_blocks"])
@pytest.mark.parametrize("similarity", [0.0, 0.3, 1.0])
def test_the_label_mix_of_similarity_is_the_one_its_formula_states(protocol: str, similarity: float) -> None:
    """Pr(y|i) = s/C + (1 - s) [y = floor(C i / N)] with ten equal classes; s n_i = 180 draws give a share a deviation below 0.02."""
    labels = np.repeat(np.arange(10), 1200)
    parts = partition(Similarity(similarity=similarity, protocol=protocol), labels, 20, 3)
    shares = np.stack([np.bincount(labels[part], minlength=10) / len(part) for part in parts])
    own = np.eye(10)[np.arange(20) * 10 // 20]
    assert np.abs(shares - (similarity / 10 + (1 - similarity) * own)).max() < 0.08
