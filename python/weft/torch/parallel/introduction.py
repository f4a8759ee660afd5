"""Introduction of the ranks to each other when they wrap a model: one exchange before all else.

[Note: Wrapped again] After a change of ranks a program wraps its models again, and the training
waits for it. What the ranks know already is not found out again: the costs of all-reduces among
the same hosts, fewer of them or some more, as rank 0 remembers them, and parameters that
`weft.torch.Recovery` has put back on all ranks, which need no broadcast. Nor has an optimizer to
show again, by a first step as a whole, that its groups hold no state of all parameters.
"""

from __future__ import annotations

import dataclasses
import hashlib
import socket
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import nn

from weft.torch.exchange import encoded
from weft.torch.parallel import agreement
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.costs import Network
from weft.torch.parallel.plan import ParameterInfo
from weft.torch.parallel.virtual.probe import Probe

__all__ = ["Introduction", "introduced", "note_network", "note_restored"]

_networks: WeakKeyDictionary[nn.Module, Network] = WeakKeyDictionary()
_restored: WeakKeyDictionary[nn.Module, list[int]] = WeakKeyDictionary()
"""The versions of the parameters that were put back."""


@dataclasses.dataclass(frozen=True)
class Introduction:
    """The data that a rank shows the others."""

    model: str
    """A hash of the trained parameters' properties."""
    options: dict[str, str | int | None]
    probe: Probe
    """Of the bits that the rank computes; empty without virtual ranks."""
    seed: int
    host: str
    network: Network | None
    """The costs of all-reduces when the model was wrapped before."""
    is_restored: bool
    """Whether the parameters are those that all ranks have returned to."""


def introduced(
    module: nn.Module,
    parameters: Sequence[ParameterInfo],
    options: Mapping[str, str | int | None],
    probe: Probe,
    communication: Communication,
) -> list[Introduction]:
    """The introductions of all ranks, by rank. Every rank calls it.

    Raises:
        weft.ConfigError: The ranks differ in their models or options.
    """
    own = Introduction(
        hashlib.sha256(encoded(parameters)).hexdigest()[:32],
        dict(options),
        probe,
        torch.initial_seed(),
        socket.gethostname(),
        _networks.get(module),
        _versions(module) == _restored.pop(module, None),
    )
    ranks: list[Introduction] = communication.gather(own, Introduction)
    if len({one.model for one in ranks}) > 1:
        agreement.check_model(parameters, communication)
    agreement.check_options([one.options for one in ranks], communication)
    return ranks


def note_network(module: nn.Module, network: Network | None) -> None:
    """Remembers what all-reduces cost, for when the model is wrapped again."""
    if network is not None:
        _networks[module] = network


def note_restored(module: nn.Module) -> None:
    """Notes that all ranks have put back the same parameters, if nothing changes them from here."""
    _restored[module] = _versions(module)


def _versions(module: nn.Module) -> list[int]:
    return [parameter._version for parameter in module.parameters()]
