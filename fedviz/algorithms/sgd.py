"""Large-batch SGD: each participant sends its full-data gradient once, and there are no local steps.

    v = mean over S of grad f_i(w),   w <- w - eta_s eta_c v

The baseline of the SCAFFOLD paper. With everybody it is gradient descent; it equals FedAvg with one full-batch local step.
"""

from typing import ClassVar, Literal

from fedviz.algorithms.base import Algorithm, AlgorithmParameters, Setting


class SGDParameters(AlgorithmParameters):
    title: ClassVar = "SGD"
    summary: ClassVar = (
        "No local steps: each participant sends one exact gradient. No drift, but little progress in a round."
    )
    formula: ClassVar = r"v=\frac{1}{S}\sum_{i\in\mathcal S}\nabla f_i(w)"
    watch: ClassVar = (
        "There is neither noise nor drift, for each participant sends one exact gradient: all error is who took part, and it stays "
        "as long as clients differ."
    )
    paper: ClassVar = "Baseline of Karimireddy et al., ICML 2020"
    local: ClassVar = "gradient"
    work: ClassVar = "the gradients of all samples of the S participants"
    name: Literal["sgd"] = "sgd"

    def build(self, setting: Setting) -> Algorithm:
        return Algorithm(self, setting)
