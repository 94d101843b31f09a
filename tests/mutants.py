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
        "{about}{round(size)} of",
        "{about}{int(size)} of",
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


def suite(folder: Path) -> subprocess.CompletedProcess[str]:
    """The tests of the engine, the charts and the gate on the copy, up to the first failure."""
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
    for name in ["", *names]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "fedviz"
            ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "test-artifacts")
            shutil.copytree(ROOT, folder, ignore=ignore)
            if name:
                applied(name, folder)
            began = time.monotonic()
            done = suite(folder)
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
