"""The algorithms, by name. A new one is a file with a parameter model and a class, and a line here."""

from typing import Annotated

from pydantic import Field

from fedviz.algorithms.amplified import AmplifiedFedAvgParameters, AmplifiedScaffoldParameters
from fedviz.algorithms.base import Algorithm, AlgorithmParameters, Cohort, LocalResult, Setting, State
from fedviz.algorithms.fedavg import FedAvgParameters, FedProxParameters
from fedviz.algorithms.fedvarp import ClusterFedVARPParameters, ExplicitClusters, FedVARPParameters
from fedviz.algorithms.mifa import MIFAParameters
from fedviz.algorithms.scaffold import ScaffoldParameters
from fedviz.algorithms.server_optimisers import FedAdamParameters, FedAvgMParameters, FedYogiParameters
from fedviz.algorithms.sgd import SGDParameters

AnyAlgorithm = Annotated[
    FedAvgParameters
    | FedProxParameters
    | ScaffoldParameters
    | FedVARPParameters
    | ClusterFedVARPParameters
    | MIFAParameters
    | AmplifiedFedAvgParameters
    | AmplifiedScaffoldParameters
    | FedAvgMParameters
    | FedAdamParameters
    | FedYogiParameters
    | SGDParameters,
    Field(discriminator="name"),
]
ALGORITHMS: dict[str, type[AlgorithmParameters]] = {
    "fedavg": FedAvgParameters,
    "fedprox": FedProxParameters,
    "scaffold": ScaffoldParameters,
    "fedvarp": FedVARPParameters,
    "cluster_fedvarp": ClusterFedVARPParameters,
    "mifa": MIFAParameters,
    "amplified_fedavg": AmplifiedFedAvgParameters,
    "amplified_scaffold": AmplifiedScaffoldParameters,
    "fedavgm": FedAvgMParameters,
    "fedadam": FedAdamParameters,
    "fedyogi": FedYogiParameters,
    "sgd": SGDParameters,
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
