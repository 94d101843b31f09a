"""Claims of the FedVARP paper. The text at hand gives no numbers, so these are orderings, on the images that come with fedviz."""

from __future__ import annotations

import math

from fedviz.papers.claims import Claim, Config, merged
from fedviz.papers.expectations import Bounds, Fraction, Ordering
from fedviz.papers.statistics import Late, LateShare

NAMED: dict[str, Config] = {
    "FedAvg": {"name": "fedavg"},
    "10 random clusters": {"name": "cluster_fedvarp", "clusters": 10, "clustering": "random"},
    "2 clusters": {"name": "cluster_fedvarp", "clusters": 2, "clustering": "label"},
    "10 clusters": {"name": "cluster_fedvarp", "clusters": 10, "clustering": "label"},
    "50 clusters": {"name": "cluster_fedvarp", "clusters": 50, "clustering": "label"},
    "FedVARP": {"name": "fedvarp"},
}


def images(name: str, **changes: object) -> Config:
    """5 of 100 clients, each with mostly one label, take 30 local steps."""
    base: Config = {
        "algorithm": NAMED[name],
        "participation": {"pattern": "uniform", "clients_per_round": 5},
        "problem": {"partition": {"name": "similarity", "similarity": 0.05, "protocol": "majority_label"}},
        "num_clients": 100,
        "local_steps": 30,
        "batch_size": 16,
        "client_lr": 0.01,
        "rounds": 400,
        "eval_every": 4,
        "probe_every": 0,
    }
    return merged(base, **changes)


def measured(name: str) -> Config:
    """Short local steps: the error of who took part is then not hidden by drift, which is the same for all of these methods."""
    return images(name, client_lr=0.0005, rounds=300, eval_every=0, probe_every=30, probe={"check_every": 0})


METHODS = ("FedVARP", "10 clusters", "FedAvg")
BEST_FIRST = tuple((name,) for name in METHODS)
LOSS = Late("evaluation.train_loss")

CLAIMS: list[Claim] = [
    Claim(
        id="fedvarp-loss",
        paper="fedvarp",
        source="Section 5",
        says="With few participants FedVARP ends at a lower loss than ClusterFedVARP, and that at a lower one than FedAvg.",
        cost="minutes",
        arms={name: images(name) for name in METHODS},
        statistic=LOSS,
        expectation=Ordering(BEST_FIRST, higher_is_better=False),
        must_run_seeds=1,
    ),
    Claim(
        id="fedvarp-steadiness",
        paper="fedvarp",
        source="Section 5",
        says="FedVARP is steadier: even its poor rounds are more accurate than ClusterFedVARP's, and these than FedAvg's.",
        cost="minutes",
        arms={name: images(name) for name in METHODS},
        statistic=Late("evaluation.test_accuracy", percentile=10),
        expectation=Ordering(BEST_FIRST, higher_is_better=True),
        must_run_seeds=1,
    ),
    Claim(
        id="fedvarp-more-clusters",
        paper="fedvarp",
        source="Section 4",
        says="More clusters of like clients mean less error of who took part, from FedAvg (one cluster) to FedVARP (a cluster each).",
        cost="minutes",
        arms={name: measured(name) for name in ("FedVARP", "50 clusters", "10 clusters", "FedAvg")},
        statistic=Late("decomposition.participation", share=0.5),
        expectation=Ordering((("FedVARP",), ("50 clusters",), ("10 clusters",), ("FedAvg",)), higher_is_better=False),
    ),
    Claim(
        id="fedvarp-random-clusters",
        paper="fedvarp",
        source="Section 4: the error grows with the dissimilarity within clusters",
        says="Clusters of clients that disagree are worth less than clusters of like clients.",
        cost="minutes",
        arms={name: images(name) for name in ("10 clusters", "10 random clusters")},
        statistic=LOSS,
        expectation=Ordering((("10 clusters",), ("10 random clusters",)), higher_is_better=False),
    ),
    Claim(
        id="fedvarp-dissimilarity",
        paper="fedvarp",
        source="Section 4",
        says="Clients of one majority label differ much less from one another than clients put together by chance.",
        cost="minutes",
        arms={name: measured(name) for name in ("10 clusters", "10 random clusters")},
        statistic=Late("decomposition.within_cluster_dissimilarity", share=0.5),
        expectation=Ordering((("10 clusters",), ("10 random clusters",)), higher_is_better=False),
    ),
    Claim(
        id="fedvarp-dominant-error",
        paper="fedvarp",
        source="Sections 1 and 3",
        says="Who takes part, and not drift, is most of FedAvg's error.",
        cost="minutes",
        arms={"FedAvg": measured("FedAvg")},
        statistic=LateShare("decomposition.participation", "decomposition.total"),
        expectation=Bounds({"FedAvg": (0.5, math.inf)}),
        must_run_seeds=1,
        note="With a client rate of 0.0005. With much longer local passes drift takes over, for every method without correction.",
    ),
    Claim(
        id="fedvarp-removes-it",
        paper="fedvarp",
        source="Section 3",
        says="FedVARP removes nearly all of the error of who takes part.",
        cost="minutes",
        arms={name: measured(name) for name in ("FedAvg", "FedVARP")},
        statistic=Late("decomposition.participation", share=0.5),
        expectation=Fraction("FedVARP", of="FedAvg", at_most=0.05),
        must_run_seeds=1,
    ),
    Claim(
        id="fedvarp-experiments",
        paper="fedvarp",
        source="Section 5, CIFAR-10, CIFAR-100 and Shakespeare",
        says="FedVARP and ClusterFedVARP do better than FedAvg, SCAFFOLD and MIFA on vision and language tasks.",
        cost="hours",
        incomparable="The text at hand gives no numbers for these experiments, and fedviz has no language task.",
    ),
]
