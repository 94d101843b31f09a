"""Is every test able to fail? Known mistakes, put into a copy of the project one at a time; each must turn the suite red.

Run `python tests/mutants.py` (all) or `python tests/mutants.py NAME ...`. Exit code 1 if a mistake survives, or if its place in the
code is no longer found. A change to the code that moves such a place updates it here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """In `file`, `old` (found exactly once) becomes `new`."""

    file: str
    old: str
    new: str
    mistake: str
    seen_by: tuple[
        str, ...
    ] = ()  # files of tests/runs that are to see it; none: the suite, without the slow tests of runs


MUTANTS: dict[str, Mutant] = {
    "scaffold-cohort-mean": Mutant(
        "fedviz/algorithms/base.py",
        "mean += self.weights[rows] @ (values - table[rows])",
        "mean += (values - table[rows]).mean(0)",
        "the server variate moves by the cohort's mean, without |S|/N",
    ),
    "fedvarp-order": Mutant(
        "fedviz/algorithms/base.py",
        "        v = self.direction(state, cohort, result)\n"
        "        return w - self.setting.server_lr * self.reach * v, self.remember(state, cohort, result)",
        "        state = self.remember(state, cohort, result)\n"
        "        v = self.direction(state, cohort, result)\n"
        "        return w - self.setting.server_lr * self.reach * v, state",
        "memories are refreshed before the direction is formed",
    ),
    "correction-sign": Mutant(
        "fedviz/algorithms/scaffold.py",
        'return state["server_variate"] - state["client_variates"][clients]',
        'return state["client_variates"][clients] - state["server_variate"]',
        "the correction pushes the wrong way",
    ),
    "scaffold-corrected-memory": Mutant(
        "fedviz/problems/local_sgd.py",
        "updates = raw.clone()",
        "updates = raw",
        "control variates are made of corrected gradients",
    ),
    "tiles-unpadded": Mutant(
        "fedviz/problems/winograd.py",
        "_add(tiles, top, -padding, images[n])",
        "_add(tiles, top, 0, images[n])",
        "the gradient by a convolution's images is shifted by the padding",
    ),
    "key-without-round": Mutant(
        "fedviz/keyed_random.py",
        "words = philox((np.arange(blocks, dtype=np.uint64), client, round, last)",
        "words = philox((np.arange(blocks, dtype=np.uint64), client, client, last)",
        "every round draws the same",
    ),
    "key-without-seed": Mutant(
        "fedviz/keyed_random.py",
        "(seed & 0xFFFFFFFF, seed >> 32)",
        "(0, 0)",
        "the seed is ignored",
    ),
    "divisor": Mutant(
        "fedviz/problems/local_sgd.py",
        "raw = total / rule.steps",
        "raw = total / (rule.steps + 1)",
        "updates are divided by a wrong number of steps",
    ),
    "cluster-weight": Mutant(
        "fedviz/algorithms/fedvarp.py",
        "weights.index_add_(0, setting.clusters, setting.client_weights)",
        "weights += 1 / len(weights)",
        "clusters weigh alike, whatever their size",
    ),
    "stale-evaluation": Mutant(
        "fedviz/simulation/loop.py",
        "evaluated = self.problem.evaluating(self.w) if due else None",
        'evaluated = self.problem.evaluating(getattr(self, "stale", self.w)) if due else None\n        self.stale = self.w',
        "the model before the round is evaluated",
    ),
    "prox-anchor": Mutant(
        "fedviz/problems/local_sgd.py",
        "prox = (u - start).mul_(rule.mu)",
        "prox = (u - u).mul_(rule.mu)",
        "the proximal term is anchored at the moving model",
    ),
    "probe-shares-minibatches": Mutant(
        "fedviz/simulation/decomposition.py",
        "for j in range(1, settings.replicas + 1)",
        "for j in (1,) * settings.replicas",
        "the repetitions of a probe are copies",
    ),
    "dispersion-without-noise-correction": Mutant(
        "fedviz/simulation/estimators.py",
        "return float(seen - self.variances[part.rows].mean() / len(self.x))",
        "return float(seen)",
        "minibatch noise is counted as heterogeneity",
    ),
    "batch-not-dropped": Mutant(
        "fedviz/problems/minibatches.py",
        "per_epoch = counts // size",
        "per_epoch = -(-counts // size)",
        "incomplete batches are kept",
    ),
    "cyclic-window": Mutant(
        "fedviz/participation/cyclic.py",
        "(round - 1 + self.offset) // self.parameters.availability",
        "(round - 1 + self.offset) // (self.parameters.availability + 1)",
        "a group stays on duty a round too long",
    ),
    "expected-age-away": Mutant(
        "fedviz/participation/cyclic.py",
        "np.where(away, g * (g + 1) / 2,",
        "np.where(away, g * g / 2,",
        "memories grow old too slowly while their group is away",
    ),
    "trace-twice": Mutant(
        "fedviz/participation/trace.py",
        "if before != line:",
        "if False:",
        "a client named twice in a round of a trace goes unnoticed",
    ),
    "trace-ends-early": Mutant(
        "fedviz/participation/trace.py",
        "if not cells[1]:",
        "if False:",
        "a trace from CSV cannot end with empty rounds",
    ),
    "mifa-gain": Mutant(
        "fedviz/algorithms/mifa.py",
        "return size / self.setting.num_clients",
        "return 1.0",
        "MIFA steps as far as FedVARP",
    ),
    "window-edge": Mutant(
        "fedviz/algorithms/amplified.py",
        "if cohort.round % self.window == 0:",
        "if (cohort.round + 1) % self.window == 0:",
        "windows end a round too soon",
    ),
    "last-round-amplified": Mutant(
        "fedviz/algorithms/amplified.py",
        'start = state["window_start"]\n            w = start + ',
        'start = state["window_start"]\n            w = w + 0 * start + ',
        "the window's move is added to the move already made",
    ),
    "corrections-thaw": Mutant(
        "fedviz/algorithms/amplified.py",
        'state["presence"][cohort.clients] += q\n        return state',
        'state["presence"][cohort.clients] += q\n        state["client_variates"][cohort.clients] = result.gradients\n        return state',
        "corrections change inside a window",
    ),
    "yogi-sign": Mutant(
        "fedviz/algorithms/server_optimisers.py",
        "squared * (old - squared).sign()",
        "squared * (squared - old).sign()",
        "FedYogi's memory of sizes moves the wrong way",
    ),
    "adam-bias-correction": Mutant(
        "fedviz/algorithms/server_optimisers.py",
        "moved = w - self.setting.server_lr * momentum / (sizes.sqrt() + p.epsilon)",
        "moved = w - self.setting.server_lr * momentum / (1 - p.beta1) / (sizes.sqrt() + p.epsilon)",
        "momentum is corrected as in the first step of Adam",
    ),
    "size-weights": Mutant(
        "fedviz/problems/classifier.py",
        "self.sample_weights[self.order] = np.repeat(p / self.counts, self.counts)",
        "self.sample_weights[self.order] = 1 / len(self.order)",
        "the objective counts samples instead of clients",
    ),
    "empty-window-member": Mutant(
        "fedviz/algorithms/amplified.py",
        'seen = state["presence"] > 0',
        'seen = state["presence"] > -1',
        "clients that were absent for a window lose their variates",
    ),
    "no-floor": Mutant(
        "fedviz/problems/partitions.py",
        "whole[client], whole[largest] = whole[largest][:1], whole[largest][1:]",
        "pass",
        "clients may be left without a sample",
    ),
    "gate-limit": Mutant(
        "fedviz/runs/gate.py",
        "self._limit + 1",
        "self._limit + 2",
        "a step is two rounds",
    ),
    "no-turns": Mutant(
        "fedviz/runs/gate.py",
        "if delay or not self._has_turn():",
        "if delay:",
        "more runs compute at a time than there are places",
    ),
    "anybody-controls": Mutant(
        "fedviz/runs/manager.py",
        "        if self.limits.hosted and not visitor.admin and owner != visitor.id:\n"
        '            raise NotYours("This run was started',
        "        if self.limits.hosted and not visitor.admin and not visitor.id:\n"
        '            raise NotYours("This run was started',
        "on a hosted server every visitor controls every run",
    ),
    "queue-unfair": Mutant(
        "fedviz/runs/queue.py",
        "self._waiting.move_to_end(visitor)",
        "pass",
        "one visitor's runs all come first",
    ),
    "checkpoint-ahead": Mutant(
        "fedviz/runs/computation.py",
        "at_most = work.first - 1 if",
        "at_most = work.config.rounds if",
        "a run goes on from a checkpoint that is ahead of its stored records, which then have a gap",
    ),
    "checkpoint-unchecked": Mutant(
        "fedviz/simulation/checkpoints.py",
        'if header["checksum"] != _checksum(tensors):',
        "if False:",
        "a damaged checkpoint is gone on from",
    ),
    "recorded-after-stop": Mutant(
        "fedviz/runs/pairs.py",
        "                    if run.ended:\n                        raise Stopped\n                    run.append(record)",
        "                    run.append(record)",
        "a round that was in flight when the run was stopped is recorded",
    ),
    "not-compared": Mutant(
        "fedviz/runs/pairs.py",
        "    if texts[0] != texts[1]:",
        "    if len(texts) != 2:",
        "a run is continued from records that it does not have",
    ),
    "memories-of-other-clusters": Mutant(
        "fedviz/simulation/loop.py",
        " and len(clusters) == 1 else set()",
        " else set()",
        "a fork carries memories over to other clusters than they are of",
    ),
    "running-mean-drifts": Mutant(
        "fedviz/algorithms/fedvarp.py",
        "return self.table.write(state, cohort.clients, result.updates, cohort.round)",
        'state["memory"][cohort.clients] = result.updates\n        return state',
        "the mean of the memories is never moved",
    ),
    "variates-sent-whole": Mutant(
        "fedviz/algorithms/base.py",
        "mean += self.weights[rows] @ (values - table[rows])",
        "mean += self.weights[rows] @ values",
        "clients send their variates instead of the change",
    ),
    "variate-of-the-cohort": Mutant(
        "fedviz/algorithms/base.py",
        "mean += self.weights[rows] @ (values - table[rows])",
        "mean.copy_(values.mean(0))",
        "the server variate is the cohort's mean, which is right only with everybody",
    ),
    "variates-begin-at-the-model": Mutant(
        "fedviz/algorithms/scaffold.py",
        "state = self.table.zeros(w)",
        'state = self.table.zeros(w)\n        state["client_variates"] += w',
        "control variates begin at the model instead of at zero",
    ),
    "memory-on-another-device": Mutant(
        "fedviz/algorithms/base.py",
        "{self.table: w.new_zeros(len(self.weights), len(w)), self.mean: w.new_zeros(len(w))}",
        '{self.table: w.new_zeros(len(self.weights), len(w), device="cpu"), self.mean: w.new_zeros(len(w))}',
        "memories stay on the CPU whatever the model's device",
    ),
    "correction-of-the-next-parameter": Mutant(
        "fedviz/algorithms/scaffold.py",
        'return state["server_variate"] - state["client_variates"][clients]',
        'return state["server_variate"] - state["client_variates"][clients].roll(1, 1)',
        "corrections are matched with the wrong parameters",
    ),
    "the-absent-are-divided-by": Mutant(
        "fedviz/simulation/loop.py",
        "self.participation.gain(len(ids)) / max(1, len(ids))",
        "self.participation.gain(len(ids)) / config.participation.cohort_size(config.num_clients)",
        "the mean is divided by how many were asked, not by how many came",
    ),
    "size-of-the-first-cohort": Mutant(
        "fedviz/simulation/loop.py",
        "self.participation.gain(len(ids)) / max(1, len(ids))",
        'self.participation.gain(len(ids)) / max(1, self.__dict__.setdefault("first_size", len(ids)))',
        "weights do not follow a cohort that changes its size",
    ),
    "not-a-number-goes-on": Mutant(
        "fedviz/simulation/loop.py",
        "if not all(finite.read()):",
        "if False:",
        "a run whose model is no longer finite goes on",
    ),
    "clusters-by-chunks": Mutant(
        "fedviz/problems/clustering.py",
        "np.array_split(order, clusters)",
        "np.split(order, range(-(-len(order) // clusters), len(order), -(-len(order) // clusters)))",
        "clients are cut into chunks of equal size, which may be fewer than the clusters asked for",
    ),
    "pull-without-the-half": Mutant(
        "fedviz/algorithms/fedavg.py",
        "self.mu = parameters.mu",
        "self.mu = 2 * parameters.mu",
        "the penalty is mu times the squared distance, without the half",
    ),
    "no-pull-refused": Mutant(
        "fedviz/algorithms/fedavg.py",
        "ge=0,\n        le=1e4",
        "gt=0,\n        le=1e4",
        "FedProx without a pull is refused",
    ),
    "client-momentum-lives-on": Mutant(
        "fedviz/problems/quadratics.py",
        "out.copy_(u).mul_(curvature).add_(linear)",
        'out.copy_(u).mul_(curvature).add_(linear)\n        out += 0.5 * getattr(self, "last", out * 0)[: len(out)]\n'
        "        self.last = out.clone()",
        "a client's optimiser carries its momentum over from round to round",
    ),
    "pool-runs-out": Mutant(
        "fedviz/problems/partitions.py",
        "taken = np.minimum(taken + wanted, left)",
        "taken = taken + wanted",
        "more is taken of a label than there is left",
    ),
    "sample-dealt-twice": Mutant(
        "fedviz/problems/partitions.py",
        "left -= taken",
        "pass",
        "what one client was dealt stays in the pool for the next",
    ),
    "concentration-inverted": Mutant(
        "fedviz/problems/partitions.py",
        "mixes = log_gammas(self.alpha, ",
        "mixes = log_gammas(1 / self.alpha, ",
        "a larger concentration makes clients more unlike",
    ),
    "partition-generator-lives-on": Mutant(
        "fedviz/problems/partitions.py",
        "    u = uniforms(seed, Purpose.PARTITION, round=place, ",
        '    log_gammas.calls = getattr(log_gammas, "calls", -1) + 1\n'
        "    u = uniforms(seed, Purpose.PARTITION, round=place + log_gammas.calls, ",
        "a partition depends on those dealt before",
    ),
    "memory-of-a-slot": Mutant(
        "fedviz/algorithms/fedvarp.py",
        'return state["memory"][clients]',
        'return state["memory"][: len(clients)]',
        "memories belong to a place in the cohort instead of to the client",
    ),
    "somebody-forced-in": Mutant(
        "fedviz/participation/base.py",
        "return law.available[:0]",
        "return np.zeros(1, dtype=np.int64)",
        "a client is put into an empty cohort",
    ),
    "sizes-cut-off": Mutant(
        "fedviz/participation/base.py",
        "{about}{round(size):,} of",
        "{about}{int(size):,} of",
        "4.9 clients a round are said to be four",
    ),
    "seed-zero-is-none": Mutant(
        "fedviz/keyed_random.py",
        "(seed & 0xFFFFFFFF, seed >> 32)",
        "((seed or 1) & 0xFFFFFFFF, seed >> 32)",
        "seed 0 is taken for no seed and replaced",
    ),
    "rounds-are-kept": Mutant(
        "fedviz/simulation/loop.py",
        "self.w, self.state = self.algorithm.step(self.state, self.w, cohort, result)",
        "self.w, self.state = self.algorithm.step(self.state, self.w, cohort, result)\n"
        '        self.kept = (*getattr(self, "kept", ()), self.w)',
        "every round's model is kept",
    ),
    "test-images-trained-on": Mutant(
        "fedviz/problems/datasets.py",
        "_dataset(pixels[~test], labels[~test], ",
        "_dataset(pixels, labels, ",
        "the test images are among the training images",
    ),
    "emnist-lies-on-its-side": Mutant(
        "fedviz/problems/datasets.py",
        'if name == "emnist":  # its files',
        "if False:  # its files",
        "EMNIST's characters are not turned upright",
    ),
    "sums-unread": Mutant(
        "fedviz/problems/datasets.py",
        "    _check_cifar10(folder)\n    train, test",
        "    train, test",
        "CIFAR-10's files are not named by their checksums",
    ),
    "kernel-forgets-weights": Mutant(
        "fedviz/problems/kernels.py",
        "z[labels[rows[b]]] -= weights[b]",
        "z[labels[rows[b]]] -= 1 / len(rows)",
        "padding of a small batch counts as samples in the compiled back end",
    ),
    "kernel-pull": Mutant(
        "fedviz/problems/kernels.py",
        "                    g[k] += towards\n",
        "",
        "FedProx is FedAvg in the compiled back end",
    ),
    "kernel-carries-over": Mutant(
        "fedviz/problems/classifier_numba.py",
        "u[:], of_raw[:] = start, 0",
        "u[:] = start",
        "a client's update holds those of the clients before it",
    ),
    "lockstep-one-rate": Mutant(
        "fedviz/problems/classifier_torch.py",
        "column([rule.client_lr for rule in rules])",
        "column([rules[0].client_lr for rule in rules])",
        "runs in one batch share the first one's rate",
    ),
    "lockstep-one-round-behind": Mutant(
        "fedviz/simulation/lockstep.py",
        "present = {which: run for which, run in runs.items() if run.config.rounds >= round}",
        "present = {which: run for which, run in runs.items() if run.config.rounds > round}",
        "runs in lockstep lack their last round",
    ),
    "window-memory-age": Mutant(
        "fedviz/algorithms/amplified.py",
        "            return cohort.clients[:0]\n",
        "            return cohort.clients\n",
        "memories that are renewed at a window's end seem younger",
    ),
    "bytes-one-shift": Mutant(
        "fedviz/problems/images.py",
        "black, white = prepared(normalised(extremes",
        "black, white = prepared(0 * normalised(extremes[:1].repeat(2, 0)",
        "bytes on a GPU lose their normalisation",
    ),
    "mixed-in-single": Mutant(
        "fedviz/problems/classifier_torch.py",
        "x, y = self.train_x[batch].to(self.products), self.train_y[batch]",
        "x, y = self.train_x[batch], self.train_y[batch]",
        "mixed precision is single precision",
    ),
    "mixed-with-single": Mutant(
        "fedviz/problems/classifier_torch.py",
        "return id(self.train_x), self.products, type",
        "return id(self.train_x), type",
        "runs of other precision are one batch",
    ),
    "evaluated-in-mixed": Mutant(
        "fedviz/problems/classifier_torch.py",
        "for x, targets in _chunks(self.samples_at_once, self.test_x, self.test_y):",
        "for x, targets in _chunks(self.samples_at_once, self.test_x[:].to(self.products), self.test_y):",
        "test images are evaluated in lower precision",
    ),
    "waits-before-all-is-queued": Mutant(
        "fedviz/simulation/loop.py",
        "        evaluation = evaluated() if evaluated is not None else None\n",
        "        evaluation = self.problem.evaluate(self.w) if due else None\n",
        "a device stands still while it is told what to do",
    ),
    "kernels-in-any-order": Mutant(
        "fedviz/problems/kernels.py",
        "    logits(images, rows, zeros[0], shares)\n"
        "    residuals(labels, rows, one, 2, shares)\n"
        "    add_products(images, rows, shares, zeros[0])\n"
        "    loss_and_right(labels, rows, one, 2, shares)\n",
        "",
        "the first run on a machine has other last digits than later ones",
    ),
    "warm-start-free": Mutant(
        "fedviz/simulation/loop.py",
        "if self.algorithm.starts_warm:  # everybody",
        "if False:  # everybody",
        "a warm start costs nothing",
    ),
    "one-run-too-many": Mutant(
        "fedviz/runs/manager.py",
        "if kept >= runs:",
        "if kept > runs:",
        "a visitor keeps one run more than is allowed",
        ("limits",),
    ),
    "new-runs-not-counted": Mutant(
        "fedviz/runs/manager.py",
        "kept = len(new | self._store.ids_of(visitor.id))",
        "kept = len(self._store.ids_of(visitor.id))",
        "runs that are not written yet do not count among those of a visitor",
        ("limits",),
    ),
    "references-counted": Mutant(
        "fedviz/runs/store.py",
        "SELECT id FROM runs WHERE owner = ? AND NOT is_reference",
        "SELECT id FROM runs WHERE owner = ?",
        "a reference counts as a run of its visitor",
        ("limits",),
    ),
    "room-without-the-new": Mutant(
        "fedviz/runs/manager.py",
        "if taken + added > room:",
        "if taken > room:",
        "a run is taken on that no longer fits on the disk",
        ("limits",),
    ),
    "room-without-the-live": Mutant(
        "fedviz/runs/manager.py",
        "        added += sum(_bytes_to_come(run) for pair in self._pairs.alive() for run in pair.runs)\n",
        "",
        "what live runs will take does not count",
        ("limits",),
    ),
    "counted-at-the-same-time": Mutant(
        "fedviz/runs/manager.py",
        "        with self._counting:\n            self._check_number(visitor)\n            self._check_room(sum(map(_bytes",
        "        if True:\n            self._check_number(visitor)\n            self._check_room(sum(map(_bytes",
        "many runs that come at once are all taken for the last that fits",
        ("limits",),
    ),
    "resumed-takes-nothing": Mutant(
        "fedviz/runs/manager.py",
        "                    self._check_room(sum(map(_bytes_to_come, members)))\n",
        "",
        "runs that are resumed take more than is kept",
        ("limits",),
    ),
    "stored-counts-twice": Mutant(
        "fedviz/runs/manager.py",
        "(rounds - max(0, run.round)) // rounds",
        "1",
        "what a run has left on the disk already counts as what it will leave",
        ("limits",),
    ),
    "checkpoints-take-nothing": Mutant(
        "fedviz/runs/library.py",
        "stored + sum(_size(file)",
        "stored + 0 * sum(_size(file)",
        "checkpoints do not count among what is kept",
        ("library",),
    ),
    "memory-unbounded": Mutant(
        "fedviz/runs/library.py",
        "while len(self._kept) > _KEPT or size > _KEPT_BYTES:",
        "while len(self._kept) > _KEPT:",
        "ended runs of any size are held in memory",
        ("limits",),
    ),
    "unwritten-pushed-out": Mutant(
        "fedviz/runs/library.py",
        "return self._journal.settle(run_id, timeout=0)",
        "return True",
        "a run is pushed out of memory before it is on the disk",
        ("library",),
    ),
    "unwritten-held-for-ever": Mutant(
        "fedviz/runs/library.py",
        "others[0] if others and size > _KEPT_BYTES else None",
        "None",
        "a disk that fails fills the memory",
        ("library",),
    ),
    "half-a-run-is-kept": Mutant(
        "fedviz/runs/library.py",
        "if whole and ended and",
        "if ended and",
        "what could be read before all was written is held in memory",
        ("library",),
    ),
    "share-ignored": Mutant(
        "fedviz/runs/pairs.py",
        "return sum(pair.visitor == visitor for pair in self._begun) >= self._limits.begun_per_visitor",
        "return False",
        "one visitor has begun as many as all together may",
        ("places",),
    ),
    "others-make-room": Mutant(
        "fedviz/runs/pairs.py",
        "if all(map(self._has_begun_its_share, waiting)):",
        "if False:",
        "who has begun a share has runs of others put away",
        ("places",),
    ),
    "expired-although-published": Mutant(
        "fedviz/runs/manager.py",
        "not now.state.live and not now.published",
        "not now.state.live",
        "what is published a moment before expires",
        ("library",),
    ),
    "any-size-read": Mutant(
        "fedviz/runs/imports.py",
        "if len(data) > LARGEST:",
        "if False:",
        "a file of any size is read",
        ("imports",),
    ),
    "any-number-of-lists-read": Mutant(
        "fedviz/runs/imports.py",
        "groups > _FEW + len(data) / _BYTES_A_GROUP or ",
        "",
        "a file of nothing but lists is read",
        ("imports",),
    ),
    "any-number-of-texts-read": Mutant(
        "fedviz/runs/imports.py",
        " or quotes > _FEW + len(data) / _BYTES_A_QUOTE",
        "",
        "a file of nothing but texts is read",
        ("imports",),
    ),
    "constants-read": Mutant(
        "fedviz/runs/imports.py",
        ", parse_constant=_no_constant",
        "",
        "NaN is read as a number",
        ("imports",),
    ),
    "records-beyond-the-end": Mutant(
        "fedviz/runs/imports.py",
        "if not isinstance(records, list) or len(records) > config.rounds + 1:",
        "if not isinstance(records, list):",
        "a run has more records than rounds",
        ("imports",),
    ),
    "finished-without-its-end": Mutant(
        "fedviz/runs/imports.py",
        "if state is RunState.FINISHED and len(records) != config.rounds + 1:",
        "if False:",
        "a run says it is finished and is not",
        ("imports",),
    ),
    "live-import": Mutant(
        "fedviz/runs/imports.py",
        "    if state.live:\n",
        "    if False:\n",
        "an imported run is live",
        ("imports",),
    ),
    "client-from-nowhere": Mutant(
        "fedviz/runs/imports.py",
        "0 <= client < config.num_clients",
        "0 <= client <= config.num_clients",
        "a cohort holds a client that there is not",
        ("imports",),
    ),
    "client-twice": Mutant(
        "fedviz/runs/imports.py",
        "if len(set(cohort)) != len(cohort):",
        "if False:",
        "a cohort holds a client twice",
        ("imports",),
    ),
    "infinite-numbers": Mutant(
        "fedviz/runs/imports.py",
        "(type(value) is float and math.isfinite(value))",
        "type(value) is float",
        "1e999 is a number",
        ("imports",),
    ),
    "names-without-end": Mutant(
        "fedviz/runs/imports.py",
        "if len(names) > MOST_NAMES:",
        "if False:",
        "records bring columns without end",
        ("imports",),
    ),
    "reference-of-another": Mutant(
        "fedviz/runs/imports.py",
        "replace(run, reference=_fitting(_run(other, reference=True), run))",
        "replace(run, reference=_run(other, reference=True))",
        "a run is drawn beside one of another problem",
        ("imports", "library"),
    ),
    "round-is-a-truth-value": Mutant(
        "fedviz/runs/imports.py",
        'record["round"] != round or isinstance(record["round"], bool | float)',
        'record["round"] != round',
        "a round is True or 1.0",
        ("imports",),
    ),
    "unseen-in-texts": Mutant(
        "fedviz/runs/imports.py",
        '"".join(character if character.isprintable() else " " for character in value)',
        "value",
        "texts hold what cannot be seen",
        ("imports",),
    ),
    "strangers-import-anything": Mutant(
        "fedviz/runs/manager.py",
        "        if self.limits.hosted:  # who continues",
        "        if False:  # who continues",
        "a server takes a run that it would not compute",
        ("imports",),
    ),
    "imports-are-offered": Mutant(
        "fedviz/runs/manager.py",
        "run = new_run(each.config, owner=visitor.id, reference=reference, is_reference=each is not imported)",
        "run = new_run(each.config, owner=visitor.id, reference=reference, is_reference=each is not imported,"
        " config_key=config_key(each.config, None))",
        "a file that anybody made is offered as a result",
        ("library",),
    ),
    "end-unwritten": Mutant(
        "fedviz/runs/pairs.py",
        '                run.enter(state, message.replace("{where}", _where(run)))\n            self._journal.row(row_of(run))',
        '                run.enter(state, message.replace("{where}", _where(run)))',
        "the end of a run is not written",
        ("manager",),
    ),
    "ended-holds-back": Mutant(
        "fedviz/runs/pairs.py",
        "            self._journal.row(row_of(run))\n            pair.gate.leave(member)\n",
        "            self._journal.row(row_of(run))\n",
        "a run waits for its reference, which has ended",
        ("manager",),
    ),
    "paused-keeps-its-place": Mutant(
        "fedviz/runs/pairs.py",
        "                if not pair.needs_place:\n                    pair.has_place = False\n",
        "                if not pair.needs_place:\n",
        "a paused run keeps its place",
        ("places", "manager"),
    ),
    "prepares-without-a-place": Mutant(
        "fedviz/runs/pairs.py",
        "return not gate.arrived or (gate.limit is None and gate.pace is None)",
        "return gate.limit is None and gate.pace is None",
        "a run that is paused while it prepares lets others prepare beside it",
        ("places",),
    ),
    "not-checked-again": Mutant(
        "fedviz/runs/pairs.py",
        "            if leads:  # Again",
        "            if False:  # Again",
        "memory is not looked at again when a run's turn has come",
        ("manager", "places"),
    ),
    "paced-put-away-at-once": Mutant(
        "fedviz/runs/pairs.py",
        "and time.monotonic() - pair.in_the_way >= least",
        "",
        "a paced run is put away at once",
        ("places",),
    ),
    "all-put-away-for-one": Mutant(
        "fedviz/runs/pairs.py",
        "any(pair.leaves for pair in in_the_way)",
        "any(pair.ended for pair in in_the_way)",
        "all paused pairs are put away for one run that waits",
        ("places",),
    ),
    "settled-makes-no-room": Mutant(
        "fedviz/runs/gate.py",
        " or self._is_settled() > was_settled",
        "",
        "a run that is paused in the midst of a round makes no room",
        ("places",),
    ),
    "dead-spare-stays": Mutant(
        "fedviz/runs/processes.py",
        "if each.ready and not each.alive]:",
        "if False]:",
        "a worker that dies while it waits is not replaced",
        ("workers",),
    ),
    "touched-is-not-seen": Mutant(
        "fedviz/runs/pairs.py",
        "                pair.attended()\n",
        "",
        "a button does not keep a run from being put away",
        ("places",),
    ),
    "waiting-forgotten": Mutant(
        "fedviz/runs/pairs.py",
        "if pair not in in_the_way:",
        "if True:",
        "a paced run holds up others for ever",
        ("places",),
    ),
    "waiting-counted-on": Mutant(
        "fedviz/runs/pairs.py",
        "if pair not in in_the_way:",
        "if False:",
        "a paced run is put away for what another waited who has left",
        ("places",),
    ),
    "looking-is-enough": Mutant(
        "fedviz/runs/pairs.py",
        "(pair.left_alone < ATTENDED, pair.in_the_way,",
        "(-pair.left_alone, pair.in_the_way,",
        "who looks all the time is never put away",
        ("places",),
    ),
    "the-watched-is-put-away": Mutant(
        "fedviz/runs/pairs.py",
        "max(paused, key=lambda pair: pair.left_alone)",
        "min(paused, key=lambda pair: pair.left_alone)",
        "the run that somebody looks at is put away",
        ("places",),
    ),
    "new-before-resumed": Mutant(
        "fedviz/runs/pairs.py",
        "self._queue.put(pair.visitor, pair, behind=lambda other: other.begun)",
        "self._queue.put(pair.visitor, pair)",
        "a resumed run waits behind new ones of its visitor",
        ("places",),
    ),
    "continued-twice": Mutant(
        "fedviz/runs/pairs.py",
        "            if live != {None}:  # continued by somebody else at the same moment\n                return\n",
        "",
        "a run is continued twice at the same time",
        ("library", "manager", "checkpoints", "executors"),
    ),
    "a-dead-worker-fails-the-run": Mutant(
        "fedviz/runs/pairs.py",
        "        except Died as error:\n            state, message = RunState.INTERRUPTED,",
        "        except Died as error:\n            state, message = RunState.FAILED,",
        "a run whose worker died cannot be resumed",
        ("executors",),
    ),
    "pace-forgotten": Mutant(
        "fedviz/runs/pairs.py",
        "            gate.set_pace(pace)\n",
        "",
        "a resumed run goes on at another pace",
        ("places",),
    ),
    "stopped-still-waits": Mutant(
        "fedviz/runs/pairs.py",
        "            pair.gate.stop()\n            self._queue.remove(pair)\n",
        "            pair.gate.stop()\n",
        "a run that was stopped while it waited is begun",
        ("manager", "places"),
    ),
    "taken-on-while-closing": Mutant(
        "fedviz/runs/pairs.py",
        "            if self._closed:\n                raise Refused",
        "            if False:\n                raise Refused",
        "a server that ends takes on runs",
        ("manager", "ownership", "library"),
    ),
    "a-part-goes-on": Mutant(
        "fedviz/runs/pairs.py",
        "            if len(live) > 1:  # nothing",
        "            if False:  # nothing",
        "a pair of which a part is live is taken on",
        ("library",),
    ),
    "threads-forgotten": Mutant(
        "fedviz/runs/pairs.py",
        "        except RuntimeError as error:  # the system gives no more threads",
        "        except NotImplementedError as error:  # the system gives no more threads",
        "a system without threads leaves a run starting for ever",
        ("places",),
    ),
    "partner-not-told": Mutant(
        "fedviz/runs/pairs.py",
        "# what holds for both\n            self.stop(pair, RunState.FAILED, str(error))\n",
        "# what holds for both\n",
        "a run whose memory is refused leaves its reference waiting",
        ("manager",),
    ),
    "nobody-wants-a-turn": Mutant(
        "fedviz/runs/turns.py",
        "self.wanted = len(self._line) > 0",
        "self.wanted = False",
        "a turn lasts as long as a run",
        ("places",),
    ),
    "turn-taken-from-one-who-computes": Mutant(
        "fedviz/runs/turns.py",
        "if gate in self._holding and gate.end_turn():",
        "if gate in self._holding and (gate.end_turn() or True):",
        "a turn ends while somebody computes in it",
        ("places",),
    ),
    "turn-not-passed-on": Mutant(
        "fedviz/runs/turns.py",
        "            self._holding.discard(gate)\n            self._deal()\n",
        "            self._holding.discard(gate)\n",
        "the turn of a run that ended is lost",
        ("places",),
    ),
    "twice-in-line": Mutant(
        "fedviz/runs/turns.py",
        "gate not in self._holding and gate not in self._line",
        "gate not in self._holding",
        "who asks twice has two turns",
        ("places",),
    ),
    "a-turn-too-many": Mutant(
        "fedviz/runs/turns.py",
        "len(self._holding) < self._places",
        "len(self._holding) <= self._places",
        "one more computes than there are places",
        ("places",),
    ),
    "turns-by-arrival": Mutant(
        "fedviz/runs/turns.py",
        "self._line.put(gate.visitor, gate)",
        'self._line.put("", gate)',
        "who has many slow runs has most of the turns",
        ("places",),
    ),
    "children-lose-their-beginning": Mutant(
        "fedviz/runs/library.py",
        "                if continued:\n                    self._store.change",
        "                if False:\n                    self._store.change",
        "a run is deleted under those that continue it",
        ("library", "checkpoints", "ownership"),
    ),
    "read-comes-back": Mutant(
        "fedviz/runs/library.py",
        "if whole and ended and self._reading.get(run_id) is reader:",
        "if whole and ended:",
        "a deleted run comes back with whoever was reading it",
        ("library",),
    ),
    "kept-while-it-goes-on": Mutant(
        "fedviz/runs/library.py",
        "ended = not run.foreign and not self._is_live(run_id)",
        "ended = not run.foreign",
        "what was read of a run that goes on is taken for all of it",
        ("library",),
    ),
    "foreign-kept": Mutant(
        "fedviz/runs/library.py",
        "ended = not run.foreign and not self._is_live(run_id)",
        "ended = not self._is_live(run_id)",
        "a run of another server stands still",
        ("manager", "library"),
    ),
    "leg-too-long": Mutant(
        "fedviz/runs/library.py",
        "until = min(until, each.forked_at)",
        "until = each.forked_at",
        "a fork of a fork is continued from a round that it does not have",
        ("library", "checkpoints", "executors"),
    ),
    "parent-with-owner-deleted": Mutant(
        "fedviz/runs/library.py",
        "if parent is not None and not parent.owner and not self._goes_on(parent):",
        "if parent is not None and not self._goes_on(parent):",
        "somebody else's run is deleted with the last that continues it",
        ("library", "checkpoints", "ownership"),
    ),
    "computing-parent-deleted": Mutant(
        "fedviz/runs/library.py",
        "if parent is not None and not parent.owner and not self._goes_on(parent):",
        "if parent is not None and not parent.owner:",
        "a parent that computes is deleted",
        ("library",),
    ),
    "checkpoints-stay": Mutant(
        "fedviz/runs/library.py",
        "                checkpoints.remove(self._folder, each.id)\n",
        "",
        "a deleted run leaves its checkpoints",
        ("checkpoints", "library", "ownership"),
    ),
    "ownerless-expires": Mutant(
        "fedviz/runs/library.py",
        "for row in self._store.ended_before(when) if row.owner]",
        "for row in self._store.ended_before(when)]",
        "what others continue from expires",
        ("library", "limits"),
    ),
    "unwritten-continued": Mutant(
        "fedviz/runs/library.py",
        "        if not self._journal.settle(run_id):\n",
        "        if False:\n",
        "a run is continued before its records are written",
        ("manager", "library"),
    ),
    "finished-without-last-records": Mutant(
        "fedviz/runs/journal.py",
        "self.row.state is not RunState.INTERRUPTED:",
        "False:",
        "a run whose last records are lost is stored as finished",
        ("library",),
    ),
    "older-row-wins": Mutant(
        "fedviz/runs/journal.py",
        "newer.row or entry.row",
        "entry.row or newer.row",
        "a retry writes an older state over a newer",
        ("library", "manager"),
    ),
    "records-out-of-order": Mutant(
        "fedviz/runs/journal.py",
        "entry.records + newer.records",
        "newer.records",
        "records that could not be written at once are lost",
        ("manager", "library"),
    ),
    "newer-schema-read": Mutant(
        "fedviz/runs/store.py",
        "if version > SCHEMA_VERSION:",
        "if False:",
        "a database of a newer fedviz is written to",
        ("store",),
    ),
    "writes-to-nowhere": Mutant(
        "fedviz/runs/store.py",
        "if _identity(self.path) != self._file:",
        "if False:",
        "records go on into a file that was deleted",
        ("manager", "store"),
    ),
    "ended-taken-for-interrupted": Mutant(
        "fedviz/runs/store.py",
        "if now is not None and now != found:",
        "if False:",
        "a run whose end is written while it is read was interrupted",
        ("library",),
    ),
    "process-id-used-again": Mutant(
        "fedviz/runs/store.py",
        "abs(psutil.Process(pid).create_time() - created) < 2",
        "psutil.pid_exists(pid)",
        "a run goes on because another process has its number",
        ("store", "manager"),
    ),
    "old-runs-never-end": Mutant(
        "fedviz/runs/store.py",
        "UPDATE runs SET ended = created WHERE state NOT IN",
        "UPDATE runs SET ended = NULL WHERE state NOT IN",
        "runs of an older database never expire",
        ("store", "library"),
    ),
    "only-the-first-resumes": Mutant(
        "fedviz/runs/run.py",
        "runs = [self, *([self.reference] if self.reference is not None else [])]",
        "runs = [self]",
        "a run whose reference was stopped cannot be resumed",
        ("library",),
    ),
    "references-resume": Mutant(
        "fedviz/runs/run.py",
        "if self.is_reference or not self.owner:",
        "if not self.owner:",
        "a reference is offered to be resumed alone",
        ("library",),
    ),
    "deleted-resumes": Mutant(
        "fedviz/runs/run.py",
        "if self.is_reference or not self.owner:",
        "if self.is_reference:",
        "a deleted run is offered to be resumed",
        ("library",),
    ),
    "ready-workers-go-first": Mutant(
        "fedviz/runs/processes.py",
        "sorted(self._waiting, key=lambda each: each.ready)[:too_many]",
        "self._waiting[len(self._waiting) - too_many :]",
        "a worker that is ready is ended for one that still imports",
        ("workers",),
    ),
    "one-warm-worker": Mutant(
        "fedviz/runs/processes.py",
        "least = max(_SPARE, _PAIR - len(self._working))",
        "least = _SPARE",
        "a run's reference waits for a worker to import",
        ("workers",),
    ),
    "imports-at-once": Mutant(
        "fedviz/runs/processes.py",
        " and all(each.ready for each in self._waiting)",
        "",
        "spare workers import at the same time",
        ("workers",),
    ),
}


def applied(name: str, folder: Path) -> None:
    """Put mutant `name` into the copy at `folder`."""
    mutant = MUTANTS[name]
    file = folder / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        sys.exit(
            f"{name}: its place in {mutant.file} is found {text.count(mutant.old)} times, expected once. Update tests/mutants.py."
        )
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def suite(folder: Path, seen_by: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """The tests on the copy, up to the first failure: those of `Mutant.seen_by`, else of the simulation, the charts and the gate."""
    tests = [folder / "tests" / "runs" / f"test_{name}.py" for name in seen_by]
    if not tests:
        tests = sorted(path for path in (folder / "tests").glob("test_*.py") if path.stem not in _BESIDE)
        tests += [folder / "tests" / "runs" / "test_gate.py"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow and not browser", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([*command, *tests], cwd=folder, capture_output=True, text=True, check=False, env=environment)


_BESIDE = {"test_bootstrap", "test_command_line"}  # they see nothing of what the mistakes are about


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(MUTANTS)}")
    names = parser.parse_args().names or list(MUTANTS)
    if unknown := [name for name in names if name not in MUTANTS]:
        parser.error(f"no mutant {', '.join(unknown)}; there are {', '.join(MUTANTS)}")
    survived = []
    chosen = [MUTANTS[name].seen_by for name in names]
    unchanged = [
        seen_by
        for seen_by in ((), tuple(sorted({file for each in chosen for file in each})))
        if seen_by or () in chosen
    ]
    for name, seen_by in [*(("", seen_by) for seen_by in unchanged), *zip(names, chosen, strict=True)]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "fedviz"
            ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "test-artifacts")
            shutil.copytree(ROOT, folder, ignore=ignore)
            if name:
                applied(name, folder)
            began = time.monotonic()
            done = suite(folder, seen_by)
        red, seconds = done.returncode == 1, time.monotonic() - began
        if not name:
            if done.returncode != 0:
                sys.exit(f"The suite is not green to begin with:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
            print(f"unchanged: green ({seconds:.0f} s)", flush=True)
            continue
        first = next((line for line in done.stdout.splitlines() if line.startswith("FAILED")), "").removeprefix(
            "FAILED "
        )
        print(
            f"{name}: {'red' if red else 'SURVIVED'} ({seconds:.0f} s) {MUTANTS[name].mistake}. {first[:110]}",
            flush=True,
        )
        survived += [] if red else [name]
    print(f"{len(names) - len(survived)} of {len(names)} mistakes caught.")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
