"""Streaming DiLoCo: outer steps of one fragment after the other, beside the inner steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from weft.errors import ArgumentError, ConfigError
from weft.torch.exchange import gather
from weft.torch.modes.block_encoding import LEVELS
from weft.torch.modes.fragment import Clock, Fragment, cut
from weft.torch.modes.local_sgd import carry_out_updates
from weft.torch.modes.mode import check_state
from weft.torch.modes.sites import Sites
from weft.torch.patches.modes import outside_of_modes

__all__ = ["StreamingDiLoCo"]

_UNKNOWN = -1


class StreamingDiLoCo:
    """DiLoCo by fragments, whose exchange takes place while inner steps go on (arXiv 2501.18512).

    The parameters are cut into fragments of equal size. In every `period` inner steps, each
    fragment once starts an exchange of how far the sites have moved it since its last outer step,
    `d = average(theta_outer - theta_local)`; the starts are spread over the period, so that the
    line is used evenly. `delay` steps later, or, if it is late, at a later step on which the sites
    agree, all sites apply it: one step of SGD with Nesterov's momentum on `theta_outer`, with d as
    the gradient, then `theta_local = mixing * theta_local + (1 - mixing) * theta_outer`. A site
    that is slower, pauses, or whose line is cut, costs the others no inner step: they train on, and
    a fragment that is under way starts no other exchange.

    With 4 or 8 bits, each site sends its changes as multiples of a step that 128 elements share,
    and adds what that leaves out to the next ones (error feedback). Each site then sends
    `n * bits / 8` bytes (3 % more with 8 bits, 6 % with 4) to every other site in a period, exact
    changes twice 4 n in all. A rank keeps two copies of the parameters, a leader three.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        sites: Sites,
        *,
        fragments: int = 4,
        period: int = 100,
        delay: int = 5,
        mixing: float = 0.5,
        lr: float = 0.7,
        momentum: float = 0.9,
        bits: int | None = 8,
        init_sync: bool = True,
    ) -> None:
        """Sets the parameters and the schedule. Every rank calls it with the same options.

        Args:
            parameters: All parameters, in the same order on all ranks, and inside a site with the
                same values at every step.
            sites: The sites. Ranks of a site average their gradients in `sites.group`.
            fragments: The number of fragments.
            period: Inner steps from one exchange of a fragment to the next.
            delay: Inner steps from the start of an exchange to its application, at least. 0: the
                step waits for it.
            mixing: The part of the local parameters that is kept where a fragment is applied.
            lr: The outer learning rate.
            momentum: The outer momentum.
            bits: Bits of an element that is sent to other sites: 4, 8, or None for exact ones.
            init_sync: Whether to begin with rank 0's parameters on all ranks.

        Raises:
            weft.ArgumentError: An option is not allowed.
            weft.ConfigError: Ranks differ in options or parameters.
            weft.UnsupportedError: A parameter has gaps in its memory.
        """
        self._parameters = list(parameters)
        _check(self._parameters, fragments, period, delay, mixing, bits)
        options = f"fragments={fragments}, period={period}, delay={delay}, mixing={mixing}, lr={lr}, "
        options += f"momentum={momentum}, bits={bits}"
        _check_same(options, self._parameters)
        self._sites = sites
        self._period = period
        self._mixing, self._lr, self._momentum = mixing, lr, momentum
        self._clock = Clock(delay)
        self._site_size = len(sites.ranks[sites.index])
        if init_sync:
            _broadcast(self._parameters)
        self._started = 0
        """The number of exchanges that this site has started."""
        self._control = sites.between()
        """For agreements that sites wait for; exchanges have a group of their own."""
        between = sites.between()
        self._fragments = [Fragment(pieces, bits, self._clock, between) for pieces in cut(self._parameters, fragments)]
        self._next_start = self._pause()

    @outside_of_modes
    @torch.no_grad()
    def step(self) -> list[int]:
        """Counts an inner step; starts and applies what is due. Every rank calls it.

        Returns:
            The numbers of the fragments that were applied.

        Raises:
            weft.Error: Communication has failed, or the sites' outer parameters differ.
        """
        self._clock.step += 1
        applied = self._apply_due()
        if self._clock.step >= self._next_start and self._next.started is None:
            self._start()
            if self._clock.delay == 0:
                self._wait()
                applied += self._apply_due()
        return applied

    @outside_of_modes
    @torch.no_grad()
    def synchronize(self) -> None:
        """Takes an outer step of all fragments now, with all changes, and waits for it.

        Every rank calls it, at the end of training, or before an evaluation that all sites make of
        the same parameters: these are the outer ones then.
        """
        self._end_exchanges()
        self._apply_all(self._mixing)
        for _ in self._fragments:
            self._start()
        self._end_exchanges()
        self._apply_all(0.0)

    def checksums(self) -> list[int]:
        """By fragment, a hash of its outer parameters: the same on all ranks after a step."""
        return [fragment.checksum() for fragment in self._fragments]

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """The state with which this rank continues; exchanges under way are waited for.

        Every rank calls it. It differs between ranks.
        """
        self._end_exchanges()
        return {
            "mode": type(self).__name__,
            "step": self._clock.step,
            "started": self._started,
            "next_start": self._next_start,
            "fragments": [fragment.state_dict() for fragment in self._fragments],
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that `state_dict` returned on this rank.

        Raises:
            weft.ArgumentError: It is the state of another class, or of other fragments.
        """
        check_state(state, self)
        sizes = [[part["outer"].numel() for part in state["fragments"]], [one.outer.numel() for one in self._fragments]]
        if sizes[0] != sizes[1]:
            raise ArgumentError(f"the state has fragments of {sizes[0]} elements: expected {sizes[1]}")
        self._clock.step, self._started, self._next_start = state["step"], state["started"], state["next_start"]
        for fragment, part in zip(self._fragments, state["fragments"], strict=True):
            fragment.load_state_dict(part)

    @property
    def _next(self) -> Fragment:
        """The fragment of the next exchange: they take turns."""
        return self._fragments[self._started % len(self._fragments)]

    def _start(self) -> None:
        """Starts the next exchange, and plans the one after it."""
        self._next.start(self._clock.step)
        self._started += 1
        self._next_start = self._clock.step + self._pause()

    def _pause(self) -> int:
        """The steps before the next exchange, so that all of a round take a period."""
        turn, turns = self._started % len(self._fragments), len(self._fragments)
        return (turn + 1) * self._period // turns - turn * self._period // turns

    def _pending(self) -> list[int]:
        """The fragments under way."""
        return [number for number, fragment in enumerate(self._fragments) if fragment.started is not None]

    def _apply_due(self) -> list[int]:
        pending = self._pending()
        if not pending:
            return []
        for number in pending:
            self._fragments[number].advance()
        self._share_schedule()
        due = [number for number in pending if self._is_due(self._fragments[number])]
        for number in due:
            self._apply(number, self._mixing)
        return due

    def _is_due(self, fragment: Fragment) -> bool:
        return fragment.due is not None and fragment.due <= self._clock.step

    def _apply_all(self, mixing: float) -> None:
        for number in self._pending():
            self._apply(number, mixing)

    def _end_exchanges(self) -> None:
        """Ends the exchanges that any site has started: the others start them now."""
        most = torch.tensor([self._started], dtype=torch.int64, device="cpu")
        if self._control is not None:
            dist.all_reduce(most, dist.ReduceOp.MAX, group=self._control)
        if self._site_size > 1:
            dist.broadcast(most, self._sites.leader, group=self._sites.group)
        while self._started < int(most):
            if self._next.started is not None:  # elsewhere its average has been applied
                self._wait()
                self._apply(self._started % len(self._fragments), self._mixing)
            self._start()
        self._wait()

    def _wait(self) -> None:
        for fragment in self._fragments:
            fragment.advance(wait=True)
        self._share_schedule()

    def _share_schedule(self) -> None:
        """Gives the ranks of the site what its leader knows."""
        if self._site_size == 1:
            return
        known = [_UNKNOWN if fragment.due is None else fragment.due for fragment in self._fragments]
        dues = torch.tensor(known, dtype=torch.int64, device="cpu")
        dist.broadcast(dues, self._sites.leader, group=self._sites.group)
        for fragment, due in zip(self._fragments, dues.tolist(), strict=True):
            fragment.due = None if due == _UNKNOWN else due

    def _apply(self, number: int, mixing: float) -> None:
        fragment = self._fragments[number]
        average = torch.empty_like(fragment.outer) if fragment.average is None else fragment.average
        if self._site_size > 1:
            dist.broadcast(average, self._sites.leader, group=self._sites.group)
        fragment.apply(average, self._lr, self._momentum, mixing)


def _check(parameters: list[Tensor], fragments: int, period: int, delay: int, mixing: float, bits: int | None) -> None:
    elements = sum(parameter.numel() for parameter in parameters)
    if not 1 <= fragments <= elements:
        raise ArgumentError(f"fragments={fragments}: expected 1 to {elements}, the number of elements")
    if period < fragments:
        raise ArgumentError(f"period={period}: expected at least {fragments} steps, one for each fragment")
    if not 0 <= delay < period:
        raise ArgumentError(f"delay={delay}: expected 0 to {period - 1} steps, less than the period")
    if not 0 <= mixing < 1:
        raise ArgumentError(f"mixing={mixing}: expected at least 0 and less than 1")
    if bits is not None and bits not in LEVELS:
        raise ArgumentError(f"bits={bits}: expected 4, 8, or None for exact changes")
    for parameter in parameters:
        if not parameter.is_cpu or not parameter.is_floating_point():
            raise ArgumentError(
                f"a parameter of {parameter.dtype} on {parameter.device}: expected floating point on the CPU"
            )


def _check_same(options: str, parameters: list[Tensor]) -> None:
    shapes = [f"{tuple(one.shape)} of {one.dtype} with strides {one.stride()}" for one in parameters]
    own = [options, *shapes]
    everywhere: list[list[str]] = gather(own, list[str], None)
    for rank, theirs in enumerate(everywhere):
        if len(theirs) != len(own):
            raise ConfigError(f"rank {rank} has {len(theirs) - 1} parameters, this rank {len(shapes)}")
        for there, here in zip(theirs, own, strict=True):
            if there != here:
                raise ConfigError(f"StreamingDiLoCo of rank {rank} has {there}, that of this rank {here}")


def _broadcast(parameters: list[Tensor]) -> None:
    """Makes rank 0's values everybody's."""
    carry_out_updates(parameters)
    for parameter in parameters:
        dist.broadcast(parameter.detach(), 0)
