"""The planner of a model: its first bucket plan, and better ones once steps have been measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from weft.errors import ArgumentError
from weft.torch.parallel import agreement
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.costs import CostModel, DivisionRule, Network, StepProfile
from weft.torch.parallel.fusion import PlanOptions, make_plan
from weft.torch.parallel.observer import Observer
from weft.torch.parallel.plan import BucketPlan, ParameterInfo
from weft.torch.parallel.verdict import Expectations

__all__ = ["Planner"]

_MEASURED_STEPS = 5
"""The number of steps before a new plan that are measured."""


class Planner:
    """Makes the same plans at the same steps on all ranks."""

    def __init__(
        self,
        parameters: Sequence[ParameterInfo],
        options: PlanOptions,
        rows: Collection[int],
        communication: Communication,
        replan_after: int,
        replan_every: int | None,
        *,
        rounds: bool,
    ) -> None:
        """`rounds`: whether averages are sent in 16 bits between hosts."""
        if replan_after < 1 or (replan_every is not None and replan_every < 1):
            raise ArgumentError(
                f"replan_after={replan_after}, replan_every={replan_every}: expected numbers of at least 1"
            )
        self._parameters = parameters
        self._options = options
        self._rows = rows
        self._communication = communication
        self._next_plan: int | None = replan_after
        self._replan_after = replan_after
        self._replan_every = replan_every
        self._rounds = rounds
        self.network: Network | None = None
        """The costs of all-reduces, as measured for this model."""
        self._costs: CostModel | None = None
        self._costs_16_bit: CostModel | None = None
        self._measured: StepProfile | None = None
        self.profile: StepProfile | None = None
        """The profile of the last plan, if it had one."""

    def first(self, given: BucketPlan | None, hosts: Sequence[str], known: Network | None) -> BucketPlan:
        """The plan to begin with: the given one, which stays, or one without a profile.

        `hosts` are those of all ranks; see [Note: Wrapped again] for the `known` network.
        """
        self.network = known
        self._given = given is not None
        if self._given or not self._options.learns:
            self._next_plan = None
        plan = given
        if plan is None:
            if self._options.fusion == "automatic" and self._communication.size > 1:
                network = None if known is None else known.among(hosts, self._communication.size)
                if network is None:
                    has_16_bit = self._communication.hosts > 1 and all(p.dtype == "float32" for p in self._parameters)
                    network = agreement.measured_network(hosts, self._communication, has_16_bit=has_16_bit)
                    self.network = network
                self._costs = network.rounded if self._rounds else network.exact
                self._costs_16_bit = network.narrow and network.rounded
            plan = make_plan(self._parameters, self._options, self._costs, rows=self._rows)
        plan.check_parameters(self._parameters)
        agreement.check_plan(plan, self._communication)
        agreement.check_algorithms(plan, self._communication)
        return plan

    def for_others(self, parameters: Sequence[ParameterInfo], rows: Collection[int], observer: Observer) -> BucketPlan:
        """A plan for other parameters, by the measurements of the previous ones.

        If a plan was given, which is not for these, nothing is learned either.
        """
        self._parameters, self._rows, self.profile, self._measured = parameters, rows, None, None
        observer.profile()
        if self._options.learns and not self._given:
            self._next_plan = observer.steps + self._replan_after
        plan = make_plan(parameters, self._options, self._costs, rows=rows)
        agreement.check_plan(plan, self._communication)
        return plan

    def next(
        self, observer: Observer, row_bytes: Mapping[int, float], division: DivisionRule | None, *, deferred: bool
    ) -> BucketPlan | None:
        """Called before each step that averages: a new plan, if one is due.

        Before that, it makes the observer measure some steps. `row_bytes` and `division` are for
        the profile; `deferred`: whether averages may continue after backward.
        """
        if self._next_plan is None:
            return None
        if observer.steps < self._next_plan:
            if observer.steps >= self._next_plan - _MEASURED_STEPS and observer.windows is None:
                observer.measure(len(self._parameters))
            return None
        self._next_plan = None if self._replan_every is None else observer.steps + self._replan_every
        measured = observer.profile()
        if measured is not None:
            measured = dataclasses.replace(measured, row_bytes=row_bytes, division=division)
        profile = agreement.agreed_profile(measured, self._communication)
        if profile is None:
            return None
        self._measured = profile
        self.profile = profile if deferred else profile.not_deferred()
        plan = make_plan(self._parameters, self._options, self._costs, self.profile, self._rows)
        agreement.check_plan(plan, self._communication)
        return plan

    def expectations(self, plan: BucketPlan, *, deferred: bool, exact: bool) -> Expectations | None:
        """The measurements of steps with this plan; None where there are none."""
        if self._measured is None or self._costs is None:
            return None
        return Expectations(
            plan,
            lambda costs, profile: make_plan(self._parameters, self._options, costs, profile, self._rows),
            self._measured,
            self._costs,
            self._costs_16_bit if exact else None,
            deferred,
        )
