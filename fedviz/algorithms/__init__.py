"""The algorithms, by name. A new one is a file with a parameter model and a class, and a line here."""

from typing import Annotated

from pydantic import Field

from fedviz.algorithms.base import Algorithm, AlgorithmParameters, Cohort, LocalResult, Setting, State
from fedviz.algorithms.fedavg import FedAvgParameters, FedProxParameters
from fedviz.algorithms.fedvarp import ClusterFedVARPParameters, ExplicitClusters, FedVARPParameters
from fedviz.algorithms.scaffold import ScaffoldParameters

AnyAlgorithm = Annotated[
    FedAvgParameters | FedProxParameters | ScaffoldParameters | FedVARPParameters | ClusterFedVARPParameters,
    Field(discriminator="name"),
]
ALGORITHMS: dict[str, type[AlgorithmParameters]] = {
    "fedavg": FedAvgParameters,
    "fedprox": FedProxParameters,
    "scaffold": ScaffoldParameters,
    "fedvarp": FedVARPParameters,
    "cluster_fedvarp": ClusterFedVARPParameters,
}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "AlgorithmParameters",
    "AnyAlgorithm",
    "ClusterFedVARPParameters",
    "Cohort",
    "ExplicitClusters",
    "LocalResult",
    "Setting",
    "State",
]
