"""Classification in PyTorch, on any device and for every model: a cohort is one batch of tensor operations; on a CPU, networks take one
client after the other, a core each.

In the precision "mixed_bfloat16" minibatches are bfloat16, and models multiply in the precision of the images they are given;
parameters, sums over steps, full-data gradients and evaluations are float32 all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from fedviz.problems.architectures import floats_per_sample
from fedviz.problems.base import Evaluation, PassOfRun
from fedviz.problems.classification import Classification
from fedviz.problems.classifier import Classifier
from fedviz.problems.datasets import Dataset
from fedviz.problems.feature_skew import skewed
from fedviz.problems.images import Images, resident
from fedviz.problems.local_sgd import Rule, local_sgd
from fedviz.problems.partitions import Indices
from fedviz.problems.recorded_pass import RecordedPass
from fedviz.problems.transfer import Fetched, sent
from fedviz.problems.workers import in_parallel

torch.backends.cudnn.allow_tf32 = False  # convolutions on a GPU keep float32's digits, as products do

CHUNK_BYTES = 64_000_000  # about the most that gradients of many samples at once may take
RECORDED_AT_MOST = 8  # kinds of passes, where the size of the cohort varies
RECORDED_STEPS = 200  # of a pass; longer ones are left between their steps


@dataclass(frozen=True)
class Draws:
    """The minibatches of a round: rows [steps, S, B] of the training data, sample weights [S, B], room for one step's samples."""

    rows: Tensor
    weights: Tensor
    x: Tensor  # [S B, D], filled anew in every step: fresh memory each time would cost more than the copy itself

    @staticmethod
    def side_by_side(of_runs: list[Draws]) -> Draws:
        """One for the clients of several runs, with smaller batches padded by samples of no weight."""
        widest = max(draws.weights.shape[1] for draws in of_runs)
        rows = torch.cat([F.pad(draws.rows, (0, widest - draws.rows.shape[2])) for draws in of_runs], 1)
        weights = torch.cat([F.pad(draws.weights, (0, widest - draws.weights.shape[1])) for draws in of_runs])
        return Draws(rows, weights, of_runs[0].x.new_empty(weights.numel(), *of_runs[0].x.shape[1:]))


class TorchClassifier(Classifier):
    def __init__(
        self, parameters: Classification, data: Dataset, parts: Indices, batch_size: int, seed: int, device: str
    ) -> None:
        super().__init__(parameters, len(data.train_labels), parts, batch_size, seed, device)
        self.train_x, self.train_y, self.test_x, self.test_y = resident(data, self.info, device, self.dtype, self.model)
        if parameters.feature_skew != "none":
            plain = resident(data, self.info, device, self.dtype, None)[0]
            look, strength = parameters.feature_skew, parameters.feature_strength
            unlike = skewed(plain[:], parts, self.info.image, look, strength, seed)
            self.train_x = Images(self.model.prepare(unlike))
        self.products = torch.bfloat16 if parameters.dtype == "mixed_bfloat16" else self.dtype  # of local steps
        self.samples_at_once = CHUNK_BYTES // (
            parameters.itemsize() * floats_per_sample(parameters.model, self.info.image)
        )
        # On a CPU networks gain nothing from a batch of clients, and whole clients keep a core each busy.
        self.one_by_one = device == "cpu" and parameters.model != "softmax"
        self.records = device == "cuda"
        self.recorded: dict[Hashable, RecordedPass] = {}
        self.met: set[Hashable] = set()  # kinds of passes that came before
        self.objective_weights = self.client_weights.new_tensor(self.sample_weights)

    def draws(self, clients: NDArray[np.int64], round: int, steps: int, replica: int = 0) -> Draws:
        rows, weights = self.minibatches(clients, round, steps, replica)
        device, pixels = self.client_weights.device, self.train_x.stored.shape[1:]
        return Draws(
            sent(rows.transpose(1, 0, 2), device),
            sent(weights, device, self.dtype),
            torch.empty(weights.size, *pixels, device=device, dtype=self.products),
        )

    def local_passes(
        self,
        w: Tensor,
        clients: NDArray[np.int64],
        rule: Rule,
        round: int,
        replica: int = 0,
        between_steps: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Tensor]:
        if self.records and rule.steps <= RECORDED_STEPS:
            between_steps()
            return self._recorded(w, self.draws(clients, round, rule.steps, replica), rule, (rule.client_lr, rule.mu))
        if not self.one_by_one:
            return super().local_passes(w, clients, rule, round, replica, between_steps)
        rows, weights = self.minibatches(clients, round, rule.steps, replica)
        updates, raw = w.new_empty(len(clients), len(w)), w.new_empty(len(clients), len(w))
        rate = float(rule.client_lr)

        def train(s: int) -> None:
            real = weights[s] > 0  # the rest is padding
            batches, of_batch = torch.from_numpy(rows[s][:, real]), w.new_tensor(weights[s][real])
            u, total = w.clone(), torch.zeros_like(w)
            leaves, totals = self.model.leaves(u), self.model.parts(total)
            pull = torch.zeros_like(w) if rule.mu else None
            for batch in batches:
                between_steps()
                x, y = self.train_x[batch].to(self.products), self.train_y[batch]
                gradients = self.model.loss_and_gradients(leaves, x, y, of_batch)[1]
                torch._foreach_add_(totals, gradients)
                if pull is not None:
                    towards = (u - w).mul_(rule.mu)
                    pull += towards
                    u.sub_(towards, alpha=rate)
                if rule.correction is not None:
                    u.sub_(rule.correction[s], alpha=rate)
                with torch.no_grad():
                    torch._foreach_add_(leaves, gradients, alpha=-rate)
            torch.div(total, rule.steps, out=raw[s])
            updates[s] = raw[s]
            if rule.correction is not None:
                updates[s] += rule.correction[s]
            if pull is not None:
                updates[s] += pull / rule.steps

        in_parallel(train, range(len(clients)))
        return updates, raw

    def _recorded(self, w: Tensor, draws: Draws, rule: Rule, rates: Hashable) -> tuple[Tensor, Tensor]:
        """A pass by its recording, which is made where there is none yet; the one used least lately gives way.

        w: [d], or [S, d] one for each client. rates: what tells the rates of the rule from others.
        """
        key = (draws.rows.shape, rates, rule.correction is None)
        recorded = self.recorded.pop(key, None)
        if recorded is None and key not in self.met:  # what comes once is not worth recording
            self.met.add(key)
            start = w.expand(draws.weights.shape[0], -1)
            return local_sgd(start, lambda u, step, out: self.gradient(u, draws, step, out), rule)
        if recorded is None:
            recorded = RecordedPass(self.gradient, w, draws, rule, capture=w.device.type == "cuda")
        self.recorded[key] = recorded
        if len(self.recorded) > RECORDED_AT_MOST:
            del self.recorded[next(iter(self.recorded))]
        return recorded(w, draws, rule.correction)

    def batch_key(self) -> Hashable:
        return id(self.train_x), self.products, type(self.model), len(self.order)

    def together(self, passes: Sequence[PassOfRun]) -> list[tuple[Tensor, Tensor]]:
        """Clients of all runs side by side; a run's rates and corrections are rows of their own."""
        sizes = [len(clients) for _, _, clients, _, _ in passes]
        rules = [rule for _, _, _, rule, _ in passes]
        start = torch.cat([w.expand(size, -1) for (_, w, _, _, _), size in zip(passes, sizes, strict=True)])

        def column(values: list[float | Tensor]) -> Tensor:
            return sent(np.repeat(np.array(values, dtype=float), sizes), start.device, start.dtype)[:, None]

        correction = None
        if any(rule.correction is not None for rule in rules):
            correction = torch.zeros_like(start)
            for part, rule in zip(correction.split(sizes), rules, strict=True):
                if rule.correction is not None:
                    part.copy_(rule.correction)
        mu = column([rule.mu for rule in rules]) if any(rule.mu for rule in rules) else 0.0
        together = Rule(rules[0].steps, column([rule.client_lr for rule in rules]), correction, mu)
        draws = Draws.side_by_side(
            [problem.draws(clients, round, rule.steps) for problem, _, clients, rule, round in passes]
        )
        if self.records and together.steps <= RECORDED_STEPS:
            rates = tuple((rule.client_lr, rule.mu, size) for rule, size in zip(rules, sizes, strict=True))
            updates, raw = self._recorded(start, draws, together, rates)
        else:
            updates, raw = local_sgd(start, lambda u, step, out: self.gradient(u, draws, step, out), together)
        return list(zip(updates.split(sizes), raw.split(sizes), strict=True))

    def gradient(self, u: Tensor, draws: Draws, step: int, out: Tensor) -> Tensor:
        rows = draws.rows[step]
        self.train_x.gather(rows.reshape(-1), draws.x)
        return self.model.gradients(u, draws.x.unflatten(0, rows.shape), self.train_y[rows], draws.weights, out)

    def client_gradients(self, w: Tensor, clients: NDArray[np.int64]) -> Tensor:
        if self.one_by_one:
            models = w.expand(len(clients), -1)
            return torch.stack(in_parallel(lambda s: self._full_gradient(models[s], clients[s]), range(len(clients))))
        counts = self.counts[clients]
        longest = int(counts.max())
        at_once = max(1, self.samples_at_once // longest)
        models, starts = w.expand(len(clients), -1), range(0, len(clients), at_once)
        return torch.cat([self._full_gradients(models[i : i + at_once], clients[i : i + at_once]) for i in starts])

    def _full_gradients(self, models: Tensor, clients: NDArray[np.int64]) -> Tensor:
        counts = self.counts[clients][:, None]
        place = np.arange(counts.max())
        real = place < counts
        rows = sent(self.order[np.where(real, self.first[clients][:, None] + place, 0)], models.device)
        weights = sent(np.where(real, 1 / counts, 0), models.device, models.dtype)
        x = self.train_x[rows.reshape(-1)].unflatten(0, rows.shape)
        return self.model.gradients(models, x, self.train_y[rows], weights, models.new_empty(models.shape))

    def _full_gradient(self, w: Tensor, client: int) -> Tensor:
        """[d] of one client."""
        rows, total = torch.from_numpy(self.samples(client)), torch.zeros_like(w)
        for some in rows.split(self.samples_at_once):
            weights = w.new_full((len(some),), 1 / len(rows))
            total += self.model.loss_and_gradient(w, self.train_x[some], self.train_y[some], weights)[1]
        return total

    def evaluate(self, w: Tensor) -> Evaluation:
        return self.evaluating(w)()

    def evaluating(self, w: Tensor) -> Callable[[], Evaluation]:
        losses, test_losses, right, gradient = [], [], [], torch.zeros_like(w)
        for x, targets, weights in _chunks(self.samples_at_once, self.train_x, self.train_y, self.objective_weights):
            loss, of_part = self.model.loss_and_gradient(w, x, targets, weights)
            losses.append(loss)
            gradient = gradient + of_part
        for x, targets in _chunks(self.samples_at_once, self.test_x, self.test_y):
            log_shares = self.model.logits(w, x).log_softmax(1)
            test_losses.append(-(log_shares * targets).sum())
            right.append((log_shares.argmax(1) == targets.argmax(1)).sum().to(w.dtype))  # exact: chunks are small
        fetched = Fetched(torch.stack([gradient.square().sum(), *losses, *test_losses, *right]))

        def read() -> Evaluation:
            norm, *parts = fetched.read()
            first, second, third = (sum(parts[start:end]) for start, end in pairwise(ends))
            return Evaluation(
                train_loss=first,
                test_loss=second / len(self.test_y),
                test_accuracy=third / len(self.test_y),
                gradient_norm_sq=norm,
            )

        ends = [0, *accumulate(map(len, (losses, test_losses, right)))]
        return read


def _chunks(size: int, *rows: Images | Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of all, `size` samples at a time."""
    for start in range(0, len(rows[0]), size):
        yield tuple(tensor[start : start + size] for tensor in rows)
