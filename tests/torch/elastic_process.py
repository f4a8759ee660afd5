"""One process of a training that processes join and leave: started as a program by the tests.

It appends a line of JSON to its record for each step, and one at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import weft.torch
from weft.errors import ArgumentError
from weft.torch.parallel.divided import division
from weft.torch.recovery import ahead, entrance, lobby, members, recovery, replay, sending, shares, transfer, vote

INPUTS, OUTPUTS = 6, 2


def die() -> None:
    """At once, as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


SPOILED: dict[str, tuple[Callable[[], Any], Any, str, int]] = {
    "newcomer dies": (die, replay.Replay, "_take", 3),
    "newcomer stops": (lambda: os.kill(os.getpid(), signal.SIGSTOP), replay.Replay, "_take", 3),
    "newcomer fails": (lambda: 1 / 0, replay.Replay, "_take", 3),
    "newcomer is slow": (lambda: time.sleep(0.5), replay.Replay, "_take", 0),
    "newcomer dies before it meets": (die, replay, "met", 0),
    "newcomer dies where it is taken in": (die, entrance, "met", 0),
    "rank dies as it compares": (die, transfer, "_sums_of_all", 0),
    "member dies where newcomers are met": (die, members, "met", 0),
    "member dies before another leads": (die, recovery, "led_by", 0),
    "member dies as another leads": (die, members, "_agreed", 0),
    "member dies as it is handed shares": (die, shares.Shares, "hand_over", 0),
    "member dies when others have left": (die, recovery.Recovery, "_shrunk", 0),
    "member dies": (die, sending.Outbox, "send", 5),
    "member dies in a vote": (die, vote, "meet", 2),
}
"""Faults where the members change: what happens, in which function, and after how many calls."""


def main(arguments: list[str] | None = None) -> None:
    """`arguments`: the command's, by default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("record", type=Path)
    parser.add_argument("--wrapping", default="virtual")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--version", default="")
    parser.add_argument("--virtual-ranks", type=int, default=4)
    parser.add_argument("--every", type=int, default=1, help="steps from one commit to the next")
    parser.add_argument("--clip", action="store_true", help="the norm of the gradients of virtual ranks")
    parser.add_argument("--one-copy", action="store_true", help="of the parameters, for all ranks")
    parser.add_argument("--ranks-min", type=int, default=1)
    parser.add_argument("--ranks-max", type=int)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of a step")
    parser.add_argument("--hold-at", default="", help="steps that wait for the file goSTEP beside the record")
    parser.add_argument("--odd-state", action="store_true", help="a part whose state is no plain data")
    parser.add_argument("--fails-with", type=int, help="the number of ranks that the model refuses")
    parser.add_argument("--ahead", action="store_true", help="newcomers receive even a small state ahead")
    parser.add_argument("--short-queue", action="store_true", help="give up slow newcomers soon")
    parser.add_argument("--spoils", choices=SPOILED, help="what goes wrong, in this process")
    parser.add_argument("--shrinks", action="store_true", help="the program changes parameters after each update")
    parser.add_argument("--opens-late", action="store_true", help="opens the lobby when the file `open` is there")
    parser.add_argument("--impatient", action="store_true", help="soon give up a visitor of the store it offers")
    parser.add_argument("--off-lobby", action="store_true", help="no address of the lobby is of this host")
    given = parser.parse_args(arguments)
    if given.off_lobby:
        lobby.is_own = entrance.is_own = lambda _: False  # type: ignore[assignment]
    if given.opens_late:
        open_lobby_late(given.record.parent / "open")
    if given.impatient:
        lobby._FORSAKEN_S = 1.0
    if given.ahead:
        ahead.BYTES_MIN = 1
    if given.short_queue:
        sending._QUEUED_BYTES_MIN = 0
    if given.spoils:
        spoil(given.spoils)
    torch.set_num_threads(1)
    with given.record.open("a", buffering=1) as record:
        train(given, lambda **line: print(json.dumps(line), file=record))


def train(given: argparse.Namespace, write: Any) -> None:
    torch.manual_seed(1)
    division.BLOCK_ELEMENTS = 64
    width = given.width
    net = nn.Sequential(
        nn.Linear(INPUTS, width), nn.BatchNorm1d(width), nn.Tanh(),
        nn.Linear(width, width), nn.Dropout(0.2 if given.wrapping.startswith("virtual") else 0.0), nn.Tanh(),
        nn.Linear(width, OUTPUTS),
    )  # fmt: skip
    plain = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(plain, 3, 0.9)
    options = {name: getattr(given, name) for name in ("every", "ranks_min", "ranks_max", "version")}
    parts = [OddPart()] if given.odd_state else []
    recovery = weft.torch.Recovery(net, plain, schedule, *parts, **options)

    def steps(recovery: weft.torch.Recovery) -> str:
        if dist.get_world_size() == given.fails_with:
            raise ArgumentError(f"{given.fails_with} ranks are not allowed")
        model, optimizer = wrapped(given, net, plain)
        while recovery.step < given.steps:
            go = given.record.parent / f"go{recovery.step}"
            while str(recovery.step) in given.hold_at.split(",") and not go.exists():
                time.sleep(0.02)
            deferred = not getattr(optimizer, "_first", True)
            loss = step(model, optimizer, recovery.step, 0.5 if given.clip else None)
            if given.shrinks:
                net[0].weight.data.mul_(0.99)
            schedule.step()
            time.sleep(given.pause)
            place = {"rank": dist.get_rank(), "ranks": dist.get_world_size()}
            write(step=recovery.step, **place, loss=loss, deferred=deferred, at=time.monotonic())
            recovery.commit()
        if isinstance(optimizer, weft.torch.Overlapped):
            return hashed(net, optimizer.full_state_dict())
        return hashed(net, optimizer.state_dict())

    write(hash=recovery.run(steps), recoveries=recovery.recoveries)
    dist.destroy_process_group()


def open_lobby_late(path: Path) -> None:
    """Lets this process open the lobby when there is a file."""
    open_now = lobby.Desk.open

    def opened(*given: Any) -> Any:
        while not path.exists():
            time.sleep(0.02)
        return open_now(*given)

    lobby.Desk.open = opened  # type: ignore[method-assign]


def spoil(how: str) -> None:
    """Lets a function of this process fail: see `SPOILED`."""
    what, owner, name, number = SPOILED[how]
    sound, calls = getattr(owner, name), itertools.count()

    def spoiled(*given: Any, **named: Any) -> Any:
        if next(calls) >= number:
            what()
        return sound(*given, **named)

    setattr(owner, name, spoiled)


class OddPart:
    """A part of training with a state that only Python could send."""

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": {1, 2, 3}}

    def load_state_dict(self, _state: dict[str, Any]) -> None:
        """Has nothing to load."""


def wrapped(given: argparse.Namespace, net: nn.Module, plain: torch.optim.Optimizer) -> tuple[Any, Any]:
    if given.wrapping == "ddp":
        return DistributedDataParallel(net), plain
    options: dict[str, Any] = {
        "virtual": {"virtual_ranks": given.virtual_ranks},
        "virtual, divided": {"virtual_ranks": given.virtual_ranks, "shard": 2048},
        "virtual, balanced": {"virtual_ranks": given.virtual_ranks, "balance_every": 5},
        "virtual, divided, balanced": {"virtual_ranks": given.virtual_ranks, "shard": 2048, "balance_every": 5},
        "divided": {"shard": 2048},
        "overlapped": {},
    }[given.wrapping]
    if given.one_copy:
        options["parameters"] = "host"
    model = weft.torch.DataParallel(net, fusion=4096, **options)
    return model, weft.torch.Overlapped(plain, model)


def step(model: Any, optimizer: Any, number: int, clip: float | None) -> float:
    optimizer.zero_grad()
    if not isinstance(model, weft.torch.DataParallel) or not model.virtual_ranks:
        loss = loss_of(model, number, 10 * dist.get_world_size() + dist.get_rank())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())
    losses = []
    for part in model.parts(list(model.virtual_ranks)):
        loss = loss_of(model, number, part)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    if clip is not None:
        optimizer.clip_grad_norm_(clip)
    optimizer.step()
    return model.mean_over_parts(losses)


def loss_of(model: nn.Module, number: int, part: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * number + part)
    inputs = torch.randn(3, INPUTS, generator=generator)
    targets = torch.randn(3, OUTPUTS, generator=generator)
    return mse_loss(model(inputs), targets)


def hashed(net: nn.Module, optimizer: dict[str, Any]) -> str:
    together = hashlib.blake2b(digest_size=8)
    states = [state[name] for _, state in sorted(optimizer["state"].items()) for name in sorted(state)]
    for tensor in (*net.parameters(), *states):
        together.update(tensor.detach().numpy().tobytes())
    return together.hexdigest()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
