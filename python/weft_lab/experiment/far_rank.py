"""The rank of one site of the experiment `far`: `python -m weft_lab.experiment.far_rank FILE`."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import weft.torch
from weft.torch import modes
from weft.torch.exchange import gather
from weft_lab.demo.language import CONTEXT, LanguageModel, Text, loss_of
from weft_lab.experiment.far import FarOutcome, FarStudy, Trained, load
from weft_lab.experiment.far_cut import Cut
from weft_lab.experiment.far_torchft import TorchftDiLoCo
from weft_lab.experiment.results import save
from weft_lab.experiment.stages import Stages

__all__ = ["main"]

_RATE = 2e-3
_LOOKS = 10
"""Losses on the test text, in a training: one at the end of each block."""
_TEST_SAMPLES = 64
_WARM_UP = 3
_BITS = {"streaming-exact": None, "streaming": 8, "streaming-4": 4}


def main() -> None:
    """Trains by all contenders that the file lacks, with the rank in the launcher's variables."""
    path = Path(sys.argv[1])
    outcome = load(path)
    if outcome is None:
        sys.exit(f"weft_lab.experiment.far_rank: there is no file {path}")
    torch.set_num_threads(1)
    dist.init_process_group("weft")
    missing = [name for name in outcome.study.contenders if name not in outcome.trained]
    text, rank = Text.load(), dist.get_rank()
    stages = Stages.into_file(path, len(missing) * _LOOKS) if rank == 0 else Stages.silent()
    for together in filter(None, [[name] for name in missing] if outcome.study.cut_s else [missing]):
        trainings = [Training(name, outcome.study, text) for name in together]
        _take_turns(trainings, outcome.study, stages)
        for training in trainings:
            outcome.trained[training.name] = training.end()
        if rank == 0:
            outcome.parameters = sum(one.numel() for one in trainings[0].net.parameters())
            outcome.tokens = outcome.study.steps * outcome.study.samples * CONTEXT * outcome.study.sites
            _order(outcome)
            save(path, outcome)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # torchft leaves threads that do not end


def _take_turns(trainings: list[Training], study: FarStudy, stages: Stages) -> None:
    """Trains, one block after the other, each block by all: the machine's speed drifts by minutes.

    What a block leaves under way has a twentieth of its time to end, which does not count.
    """
    bounds = [study.steps * look // _LOOKS for look in range(_LOOKS + 1)]
    dist.barrier()
    with _cut(study):
        for number, (first, last) in enumerate(itertools.pairwise(bounds)):
            for training in trainings[:: -1 if number % 2 else 1]:
                stages.begin(training.name)
                block_s = training.block(first, last)
                if len(trainings) > 1:
                    time.sleep(block_s / 20)
                    dist.barrier()


def _cut(study: FarStudy) -> contextlib.AbstractContextManager[object]:
    cut = study.cut_s > 0 and dist.get_rank() == study.sites - 1
    return Cut(study.cut_after_s, study.cut_s) if cut else contextlib.nullcontext()


class Training:
    """A training of the language model by one contender."""

    def __init__(self, name: str, study: FarStudy, text: Text) -> None:
        torch.manual_seed(0)
        self.name = name
        self.net = LanguageModel(len(text.symbols))
        self._study, self._text = study, text
        self._test = text.test_batch(_TEST_SAMPLES)
        self._model, self._optimizer = self._trained_by(name)
        self._torchft = TorchftDiLoCo(study, self.net, self._optimizer) if name == "torchft" else None
        self._outer = self._outer_steps(name)
        self._taken_s, self._longest_s = 0.0, 0.0
        self._seconds: list[float] = []
        self._losses: list[float] = []
        for step in range(_WARM_UP):  # of this process: the state stays as it is
            loss_of(self.net, text.batch(study.samples, step)).backward()  # type: ignore[no-untyped-call]
            self.net.zero_grad()

    def block(self, first: int, last: int) -> float:
        """Makes steps first + 1 to last, and looks at the loss; their time in seconds."""
        study, before_s = self._study, self._taken_s
        for step in range(first + 1, last + 1):
            begin = time.monotonic()
            self._step(study.samples, step * study.sites + dist.get_rank())
            step_s = time.monotonic() - begin
            self._taken_s += step_s
            self._longest_s = max(self._longest_s, step_s)
        if last == study.steps:
            begin = time.monotonic()
            self._finish()
            self._taken_s += time.monotonic() - begin
        self._seconds.append(self._taken_s)
        self._losses.append(self._loss())
        return self._taken_s - before_s

    def end(self) -> Trained:
        """The result, of all sites. Every rank calls it."""
        own = [self._seconds, self._losses, [self._longest_s]]
        every: list[list[list[float]]] = gather(own, list[list[float]])
        slowest = [max(times) for times in zip(*(one[0] for one in every), strict=True)]
        if self._torchft is not None:
            self._torchft.close()
        last = sum(one[1][-1] for one in every) / len(every)
        return Trained(slowest, [*self._losses[:-1], last], 1e3 * max(one[2][0] for one in every))

    def _step(self, samples: int, batch: int) -> None:
        self._optimizer.zero_grad()
        loss = loss_of(self._model, self._text.batch(samples, batch))
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        if self._outer is not None:
            self._outer.step()

    def _finish(self) -> None:
        """Makes all sites' parameters those of one model, if they train one."""
        if self._outer is not None:
            self._outer.synchronize()
        elif isinstance(self._model, weft.torch.DataParallel):
            self._model.flush()

    def _trained_by(self, name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
        inner = torch.optim.AdamW(self.net.parameters(), _RATE)
        if name not in ("exact", "bf16"):
            return self.net, inner
        model = weft.torch.DataParallel(self.net, mode=modes.Wire("bf16") if name == "bf16" else None)
        return model, weft.torch.Overlapped(inner, model)

    def _outer_steps(self, name: str) -> modes.DiLoCo | modes.StreamingDiLoCo | None:
        study, parameters = self._study, list(self.net.parameters())
        lr, momentum = study.outer_lr, study.outer_momentum
        if name == "diloco":
            sites = modes.GroupCommunication()
            return modes.DiLoCo(parameters, sites, period=study.period, lr=lr, momentum=momentum)
        if name not in _BITS:
            return None
        return modes.StreamingDiLoCo(
            parameters,
            modes.Sites(timeout=None if study.patience_s is None else timedelta(seconds=study.patience_s)),
            fragments=study.fragments,
            period=study.period,
            delay=study.delay,
            bits=_BITS[name],
            lr=lr,
            momentum=momentum,
        )

    @torch.no_grad()
    def _loss(self) -> float:
        """On the test text, of this site's parameters."""
        return float(loss_of(self._model, self._test))


def _order(outcome: FarOutcome) -> None:
    """Puts the contenders into the order in which they were asked for."""
    outcome.trained = {name: outcome.trained[name] for name in outcome.study.contenders if name in outcome.trained}


if __name__ == "__main__":
    main()
