"""A transformer that learns to write Python's documentation, and continues after a failure.

torchrun --standalone --nproc-per-node 2 examples/language_model.py

Rank 0 prints the loss on held-back text, and in the end a sample of generated text. With
--checkpoint it saves regularly, and a restarted run continues from there, with the same bits as
without the interruption. --kill-at shows it: the last rank is killed once at that step, and
torchrun starts all again.

torchrun --standalone --nproc-per-node 2 --max-restarts 1 examples/language_model.py \\
    --steps 100 --checkpoint /tmp/language-model.pt --kill-at 60
"""

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import weft.torch
import weft.torch.hooks
from weft.torch import modes
from weft_lab.demo.language import LanguageModel, Text, loss_of

MODES = {
    "exact": modes.Exact,
    "bf16": lambda: modes.Wire("bf16"),
    "fp8": lambda: modes.Wire("fp8_e4m3"),
    "double-buffering": modes.DoubleBuffering,
    "power-sgd": lambda: modes.PowerSGD(rank=4),
    "one-bit": lambda: modes.OneBit(warmup_steps=50),
}
"""Those of docs/how-to/compression.md that go with Adam."""
TEST_SAMPLES = 64


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="(default: 400, about a minute on two cores)")
    parser.add_argument("--batch", type=int, default=16, help="pieces of 64 characters, of each rank (default: 16)")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate (default: 0.002)")
    parser.add_argument("--mode", choices=MODES, default="exact", help="how gradients are averaged (default: exact)")
    parser.add_argument("--ddp", action="store_true", help="by DistributedDataParallel, for comparison")
    parser.add_argument("--report-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="where to save, and to continue from")
    parser.add_argument("--save-every", type=int, default=25, metavar="STEPS")
    parser.add_argument("--kill-at", type=int, metavar="STEP", help="kill the last rank once at this step")
    return parser.parse_args()


class Training:
    """Model, optimizer and mode, by the wrapper or by DDP, and all of their state."""

    def __init__(self, net: LanguageModel, mode: modes.Mode, arguments: argparse.Namespace, plan: str | None) -> None:
        self.net = net
        self.wrapper: weft.torch.DataParallel | None = None
        optimizer = torch.optim.AdamW(net.parameters(), arguments.rate)
        if arguments.ddp:
            self.model: Any = DistributedDataParallel(net)
            self.mode = weft.torch.hooks.register(self.model, mode).mode
            self.optimizer: torch.optim.Optimizer = optimizer
        else:
            buckets = None if plan is None else weft.torch.BucketPlan.from_json(plan)
            # A plan that is measured would be another one after a restart, and last bits too.
            self.model = self.wrapper = weft.torch.DataParallel(net, mode=mode, fusion=1 << 18, plan=buckets)
            self.optimizer = weft.torch.Overlapped(optimizer, self.model)

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.optimizer.zero_grad()
        loss_of(self.model, batch).backward()
        self.optimizer.step()  # the wrapper's returns before gradients are averaged

    def state(self) -> dict[str, Any]:
        """A whole step. A mode's state is each rank's own."""
        mode = self.wrapper.mode if self.wrapper is not None else self.mode
        of_ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(of_ranks, mode.state_dict())
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "modes": of_ranks,
            "plan": None if self.wrapper is None else self.wrapper.plan.to_json(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        mode = self.wrapper.mode if self.wrapper is not None else self.mode
        mode.load_state_dict(state["modes"][dist.get_rank()])


def saved(path: Path | None) -> dict[str, Any] | None:
    """Returns rank 0's checkpoint of an earlier start, if any."""
    found = [None]
    if dist.get_rank() == 0 and path is not None and path.exists():
        found = [torch.load(path)]
    dist.broadcast_object_list(found)
    return found[0]


def save(path: Path, state: dict[str, Any]) -> None:
    """Replaces the file atomically: a failure meanwhile leaves the one before."""
    if dist.get_rank() == 0:
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)


def main() -> None:
    arguments = parsed()
    dist.init_process_group("weft")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    text = Text.load()
    torch.manual_seed(0)
    before = saved(arguments.checkpoint)
    net = LanguageModel(len(text.symbols))
    training = Training(net, MODES[arguments.mode](), arguments, before and before["plan"])
    first = 0
    if before is not None:
        training.load(before)
        first = before["step"]
        if rank == 0:
            print(f"continues from step {first} of {arguments.checkpoint}", flush=True)
    began = time.monotonic()
    for step in range(first, arguments.steps):
        if step == arguments.kill_at and rank == ranks - 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        training.step(text.batch(arguments.batch, ranks * step + rank))  # the same after a restart
        done = step + 1
        if arguments.checkpoint is not None and (done % arguments.save_every == 0 or done == arguments.steps):
            save(arguments.checkpoint, {"step": done, **training.state()})
        if done % arguments.report_every == 0 or done == arguments.steps:
            training.model.eval()  # carries out all updates
            with torch.no_grad():
                loss = loss_of(net, text.test_batch(TEST_SAMPLES)).item()
            training.model.train()
            if rank == 0:
                seconds = time.monotonic() - began
                print(f"step {done}: loss {loss:.3f}, {(done - first) / seconds:.1f} steps/s", flush=True)
    if rank == 0:
        print("It writes:\n" + text.decode(net.continued(text.test[:20], 200)))
        if training.wrapper is not None:
            print(training.wrapper.report())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
