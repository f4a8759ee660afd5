"""The trained parameters, which change when a program freezes or unfreezes some.

[Note: Unfreezing] A forward whose backward averages begins with a check of `requires_grad` of all
parameters. If it has changed, the ranks exchange the names of those that they train now, and plan
again. Ranks that have not noticed a change make other calls meanwhile: so a rank first leaves a
note in the group's store, from which errors of the others explain what has happened.

A parameter that was frozen while it had a gradient of backwards without synchronization stays in
the plan until that gradient has been averaged; ranks without such a gradient keep it too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from torch import nn

from weft.errors import ConfigError, Desync
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.models import check_trained, requirements, trained_parameters
from weft.torch.patches.modes import outside_of_modes

__all__ = ["TrainedParameters"]

_NAMES_MAX = 5


@dataclasses.dataclass(frozen=True)
class _Training:
    """The parameters that a rank trains."""

    trained: list[str]
    accumulated: list[str]
    """Those with a gradient that has not been averaged."""


class TrainedParameters:
    """The parameters of a model that are trained: see [Note: Unfreezing]."""

    def __init__(self, module: nn.Module) -> None:
        """Takes the parameters that require a gradient now; raises as `trained_parameters` does."""
        self._module = module
        self.named = trained_parameters(module)
        self._note()

    @property
    @outside_of_modes
    def changed(self) -> bool:
        """Whether other parameters require a gradient than at the last agreement."""
        return requirements(self._parameters) != self._required

    def agree(self, accumulated: Collection[str], communication: Communication) -> bool:
        """Takes the parameters that require a gradient now, on all ranks; returns if there are any.

        Raises:
            weft.ConfigError: The ranks train different parameters; raised on all ranks.
        """
        now = [name for name, parameter in self._module.named_parameters() if parameter.requires_grad]
        before = {name for name, _ in self.named}
        what = f"rank {communication.rank} {_difference(before, set(now))} since its last forward"
        with communication.announced(what):
            try:
                training = communication.gather(_Training(now, list(accumulated)), _Training)
            except (ConfigError, Desync) as error:
                raise _disagreeing(f"{what}, and other ranks do not") from error
        for rank, theirs in enumerate(training):
            if theirs.trained != now:
                raise _disagreeing(f"rank {rank} {_difference(set(now), set(theirs.trained))}, unlike this rank")
        kept = before & {name for theirs in training for name in theirs.accumulated}
        self._note(kept)
        if not now:
            return False
        self.named = [
            (name, parameter)
            for name, parameter in self._module.named_parameters()
            if parameter.requires_grad or name in kept
        ]
        check_trained(self.named)
        return True

    def _note(self, kept: Collection[str] = ()) -> None:
        """Keeps the agreed parameters. Frozen ones that are `kept` count as changed again."""
        parameters = list(self._module.named_parameters())
        self._parameters = [parameter for _, parameter in parameters]
        self._required = [
            None if name in kept and not parameter.requires_grad else parameter.requires_grad
            for name, parameter in parameters
        ]
        self.frozen = [parameter for _, parameter in parameters if not parameter.requires_grad]


def _difference(before: set[str], now: set[str]) -> str:
    parts = []
    for what, names in (("trains", sorted(now - before)), ("does not train", sorted(before - now))):
        if names:
            more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
            parts.append(f"{what} {', '.join(names[:_NAMES_MAX])}{more}")
    return " and ".join(parts) or "trains the same parameters"


def _disagreeing(what: str) -> ConfigError:
    return ConfigError(
        f"{what}: parameters are frozen and unfrozen (requires_grad_) on all ranks together, before the same forward"
    )
