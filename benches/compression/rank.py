"""One rank of the compression benchmark: `python -m benches.compression.rank SPEC`.

Every contender begins with the same parameters and sees the same data. The clock runs while the
model trains, not while it is evaluated; all updates end first. Rank 0 reports for all.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import weft.torch
from benches.compression.rows import CompressionRow
from benches.compression.settings import CONTENDERS, CompressionEffort, Contender
from weft.processes.local_ranks import die_with_parent
from weft.torch.modes import GroupCommunication
from weft_lab.demo.language import LanguageModel, Text, loss_of

_SAMPLES, _TEST_SAMPLES = 8, 64
_STEPS_BETWEEN_LOOKS = 10


def main() -> None:
    """Trains by each contender; rank 0 appends a row to the file for each."""
    die_with_parent()
    spec = json.loads(Path(sys.argv[1]).read_text())
    effort = CompressionEffort(**{**spec["effort"], "contenders": tuple(spec["effort"]["contenders"])})
    torch.set_num_threads(1)
    dist.init_process_group("weft")
    text = Text.load()
    for name in effort.contenders:
        row = _trained(name, spec["gbps"], text, effort)
        if dist.get_rank() == 0:
            with Path(spec["rows"]).open("a") as file:
                file.write(json.dumps(row.to_value()) + "\n")
            reached = "not reached" if row.seconds is None else f"reached after {row.seconds:.1f} s"
            print(f"  {name}: {row.step_ms:.0f} ms a step, loss {effort.loss:g} {reached}", flush=True)
    dist.destroy_process_group()


def _trained(name: str, gbps: float, text: Text, effort: CompressionEffort) -> CompressionRow:
    training = _Training(CONTENDERS[name], text)
    seconds, steps, loss = 0.0, 0, training.loss()
    while loss > effort.loss and steps < effort.steps_max and seconds < effort.seconds_max:
        dist.barrier()
        begin = time.monotonic()
        for _ in range(_STEPS_BETWEEN_LOOKS):
            training.step(steps)
            steps += 1
        training.model.flush()
        seconds += time.monotonic() - begin
        seconds, loss = _of_rank_0(seconds, training.loss())
    reached = loss <= effort.loss
    return CompressionRow(
        gbps=gbps,
        contender=name,
        reference=CONTENDERS[name].reference,
        step_ms=round(1e3 * seconds / max(1, steps), 2),
        steps=steps if reached else None,
        seconds=round(seconds, 2) if reached else None,
        loss=round(loss, 4),
    )


class _Training:
    def __init__(self, contender: Contender, text: Text) -> None:
        torch.manual_seed(0)
        self._text = text
        self._test = text.test_batch(_TEST_SAMPLES)
        net = LanguageModel(len(text.symbols))
        self.model = weft.torch.DataParallel(net, mode=contender.mode(), fusion=1 << 18, buffers="leave")
        self._optimizer = weft.torch.Overlapped(contender.optimizer(net.parameters()), self.model)
        self._averager = None
        if contender.averager is not None:
            self._averager = contender.averager(self.model.parameters(), GroupCommunication(dist.group.WORLD))

    def step(self, number: int) -> None:
        """One step on this rank's data."""
        batch = self._text.batch(_SAMPLES, dist.get_world_size() * number + dist.get_rank())
        self._optimizer.zero_grad()
        loss_of(self.model, batch).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        if self._averager is not None:
            self._averager.step()

    def loss(self) -> float:
        """On the test text, of this rank's parameters."""
        self.model.eval()
        with torch.no_grad():
            loss = loss_of(self.model.module, self._test).item()
        self.model.train()
        return loss


def _of_rank_0(*values: float) -> list[float]:
    numbers = torch.tensor(values, dtype=torch.float64)
    dist.broadcast(numbers, 0)
    found: list[float] = numbers.tolist()
    return found


if __name__ == "__main__":
    main()
