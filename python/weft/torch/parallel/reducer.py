"""The reducer: gradients into buckets, averages in the plan's order, updates at first use.

[Note: One order for all ranks] Averages are started in the order of the plan, never in that of the
hooks: a full bucket waits for those before it. At the end of backward all remaining ones are
started, full or not, so each backward starts every bucket once on every rank.

[Note: Deferred updates] With deferred updates, `step` takes the gradients of each bucket from its
parameters and leaves an update in the bucket. The first use of a parameter carries it out, on the
using thread: it waits for the average, and steps. A bucket's memory is written again only by a
backward, which carries out pending updates before anything else.
"""

from __future__ import annotations

import atexit
import contextlib
import operator
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.errors import Error, UnsupportedError
from weft.torch.parallel.averaging import Averaging
from weft.torch.parallel.buckets import Bucket, Shares, Slot, make_buckets
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.divided.division import Division, flattened, own_memory
from weft.torch.parallel.divided.one_copy import OneCopy
from weft.torch.parallel.divided.optimizer import DividedOptimizer
from weft.torch.parallel.gradient import guard, raw_gradient, set_raw_gradient, unguard
from weft.torch.parallel.gradient_state import Brings
from weft.torch.parallel.late_changes import share_memory
from weft.torch.parallel.observer import Observer
from weft.torch.parallel.plan import BucketPlan
from weft.torch.patches.autograd import at_end_of_backward, in_backward
from weft.torch.patches.modes import in_dispatch_mode, in_function_mode, no_modes, outside_of_modes

__all__ = ["Reducer"]

_Gradient = tuple[Tensor, Tensor]
"""A gradient, and the same flat, in the order of its bucket."""
_NO_CONTEXT = contextlib.nullcontext()
_now = time.monotonic_ns


class Reducer:
    """Averages the gradients of one model over the ranks of a group."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        plan: BucketPlan,
        communication: Communication,
        observer: Observer,
        average: Averaging,
        *,
        presets: bool,
    ) -> None:
        """With `presets`, autograd adds to the buckets."""
        self.slots: list[Slot] = []
        self._slot_of: dict[int, Slot] = {}
        self.communication = communication
        self.observer = observer
        self.synchronizes = True
        """Whether the next backward averages; else gradients stay this rank's own."""
        self.defers = False
        """Whether averages may continue after backward."""
        self.watching = False
        """Whether uses of parameters must be reported: updates are pending, or uses are measured.
        """
        self.average = average
        """Starts the average of a bucket's memory."""
        self.deferred: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """The optimizers whose updates are carried out at first use."""
        self.divided: list[DividedOptimizer] = []
        """The optimizers whose updates are divided: see [Note: Divided updates]."""
        self._presets = presets
        self._in_backward = False
        self._learned = False
        self._next = 0
        self._failure: BaseException | None = None
        self._divided_in_part = False
        """Whether the optimizers' states are of other shares than the parameters, for good."""
        self._updater: int | None = None
        """The thread that carries out an update."""
        self._lock = threading.RLock()
        self._share_memory = False
        """Whether an update of one parameter may look like a change of another."""
        self._hooks: list[Any] = []
        self._divided_bytes_min = 0
        self._kind = Division
        self._whole_tensors = False
        self._moved: set[Slot] = set()
        """The parameters in the memory of divisions."""
        self._read_early: set[int] = set()
        """Buckets whose gradients were read after this backward, before a step took them."""
        self.use_parameters(parameters, plan)
        communication.call_before_shutdown(self.finish)
        atexit.register(_finish_at_exit, weakref.ref(self))

    # The interface for the model.

    @outside_of_modes
    def use_parameters(self, parameters: Iterable[tuple[str, nn.Parameter]], plan: BucketPlan) -> None:
        """Continues with other parameters, which the plan is for.

        Every rank calls it between two steps, with the same arguments.
        """
        if hasattr(self, "buckets"):
            self.flush()
            self.wait()
        before = self._slot_of
        self.slots = [
            self._slot(index, name, parameter, before.get(id(parameter)))
            for index, (name, parameter) in enumerate(parameters)
        ]
        self._slot_of = {id(slot.parameter): slot for slot in self.slots}
        self._learned = False
        for hook in self._hooks:
            hook.remove()
        self._hooks = [
            cast("Any", slot.parameter).register_post_accumulate_grad_hook(_Ready(self, slot))
            for slot in self.slots
            if slot.parameter.requires_grad
        ]
        for key, slot in before.items():
            if key not in self._slot_of:
                unguard(slot.parameter)
                self._move_out(slot)
        if self.defers:
            self._guard()
        self.use_plan(plan)

    def _slot(self, index: int, name: str, parameter: nn.Parameter, before: Slot | None) -> Slot:
        """The parameter's slot, which stays the same object."""
        slot = before or Slot(index, name, parameter)
        slot.index = index
        if before is None and raw_gradient(parameter) is not None:
            slot.brings = Brings.UNSYNCHRONIZED  # there may have been backwards without synchronization
        return slot

    @outside_of_modes
    def use_plan(self, plan: BucketPlan) -> None:
        """Continues with other buckets; every rank calls it with one plan between two steps."""
        if hasattr(self, "buckets"):
            self.keep_averages()
        self.plan = plan
        try:
            self.buckets = make_buckets(plan, self.slots, self.communication)
            self.observer.begin_plan(plan)
            self._divide()
        except BaseException as error:  # there is no memory
            self._failure, self._divided_in_part = error, bool(self.divided)
            raise

    def check(self) -> None:
        """Raises if the parameters are incomplete."""
        if self._failure is not None:
            what = "communication failed", " into a model of a new process group"
            if self._refused:
                what = "an update could not be carried out", ""
            if self._divided_in_part:
                what = "updates could not be divided anew", " into a new model"
            raise Error(
                f"this model's parameters are incomplete since {what[0]}: load a checkpoint (load_state_dict)"
                f"{what[1]}. It failed with: {self._failure}"
            ) from self._failure
        if self._in_backward and not in_backward():
            raise Error(
                f"the last backward ended with an exception after {self._next} of {len(self.buckets)} buckets were "
                "started, so ranks may have started different ones: load a checkpoint into a new model"
            )

    @outside_of_modes
    def begin_backward(self) -> None:
        """Called as soon as autograd begins, also in a backward that averages nothing.

        Operations of an earlier backward end first: autograd may add to their memory.
        """
        if self._in_backward:
            return
        self.check()
        self._in_backward = True
        at_end_of_backward(self._end_backward)
        self._begin_averages()
        if self._presets and self.synchronizes:
            self._preset_views()

    def _preset_views(self) -> None:
        """Makes autograd add to the buckets: zeroes the parts of parameters without gradient."""
        for slot in self.slots:
            if raw_gradient(slot.parameter) is None:
                slot.view.zero_()
                set_raw_gradient(slot.parameter, slot.view)
                slot.brings = Brings.PRESET_ZEROS

    def _begin_averages(self) -> None:
        self.keep_averages()
        self._next = 0
        self._read_early.clear()
        for bucket in self.buckets:
            bucket.begin()
        self.observer.begin_backward()

    @outside_of_modes
    def average_without_backward(self) -> None:
        """In place of a backward on a rank without samples: starts the averages, with zeros."""
        self.check()
        self._begin_averages()
        self._issue_rest(averages=True)

    @outside_of_modes
    def average_nothing(self) -> None:
        """Takes part in the averages of a backward with zeros, and ignores the results."""
        self.flush()
        for bucket in self.buckets:
            bucket.memory.zero_()
            bucket.handle = self.average(bucket)
        for bucket in self.buckets:
            self._wait(bucket)

    @outside_of_modes
    def zero_gradients(self) -> None:
        """Removes all parameters' gradients; does not wait for averages."""
        for slot in self.slots:
            slot.drop_gradient()

    @outside_of_modes
    def deliver(self, averages: Mapping[str, Tensor]) -> None:
        """Makes these, flat and by name, the gradients of a further step; others have none."""
        self.flush()
        self.wait()
        for slot in self.slots:
            slot.drop_gradient()
            if slot.name in averages:
                slot.deliver(averages[slot.name])

    # Updates.

    @outside_of_modes
    def defer_updates(self, optimizer: Optimizer) -> None:
        """Makes averages continue after backward; reading a `grad` waits from now on."""
        self.deferred.add(optimizer)
        if not self.defers:
            self.defers = True
            self._guard()

    def _guard(self) -> None:
        own = (slot.parameter for slot in self.slots if slot not in self._moved and slot.parameter.numel())
        self._share_memory = share_memory(own)
        for slot in self.slots:
            guard(slot.parameter, slot, self)

    @outside_of_modes
    def divide_updates(
        self, optimizer: DividedOptimizer, nbytes_min: int, kind: type[Division], *, whole_tensors: bool
    ) -> None:
        """Divides the updates of buckets of at least this many bytes. Every rank calls it.

        If it fails (there is no memory), the updates are undivided as before.
        """
        self.flush()
        self.wait()
        self.divided.append(optimizer)
        self._divided_bytes_min, self._kind = nbytes_min, kind
        self._whole_tensors |= whole_tensors
        try:
            self._divide()
        except BaseException as error:
            self.divided.remove(optimizer)
            self._undivide(error)
            raise

    @contextlib.contextmanager
    def separated(self) -> Iterator[None]:
        """Gives each rank parameters of its own in the block: see [Note: One copy]."""
        shared = [bucket.division for bucket in self.buckets if isinstance(bucket.division, OneCopy)]
        for division in shared:
            division.separate()
        if shared:
            self.communication.group.barrier()  # rank 0 may write what they share now
        try:
            yield
        finally:
            for division in shared:
                division.join()

    def _divide(self) -> None:
        if not self.divided:
            return
        loads = [0] * self.communication.size if self._whole_tensors else None
        buckets = self.buckets
        if loads is not None:  # the smallest even out what the others leave
            buckets = sorted(buckets, key=lambda bucket: -bucket.buffer.numel())
        for bucket in buckets:
            if self._is_divisible(bucket):
                division = self._kind(bucket, self.communication, loads)
                if loads is not None:
                    loads = list(map(operator.add, loads, division.counts))
                self._moved.update(bucket.slots)
            else:
                for slot in bucket.slots:
                    self._move_out(slot)
        for optimizer in self.divided:
            optimizer.use(self.buckets)

    def _undivide(self, error: BaseException) -> None:
        """Takes back what was divided before an error."""
        if self.divided:  # the state of another optimizer is divided otherwise
            self._failure, self._divided_in_part = error, True
            return
        for bucket in self.buckets:
            if bucket.division is not None:
                bucket.division = None
                for slot in bucket.slots:
                    own_memory(slot.parameter)
        self._moved.clear()

    def _is_divisible(self, bucket: Bucket) -> bool:
        planned = bucket.planned
        if planned.rows or planned.undivided or self._share_memory or not bucket.memory.is_floating_point():
            return False
        return bucket.buffer.nbytes >= self._divided_bytes_min

    def _move_out(self, slot: Slot) -> None:
        if slot in self._moved:
            self._moved.discard(slot)
            own_memory(slot.parameter)

    @outside_of_modes
    def keep_averages(self) -> None:
        """Carries out all updates, and waits for all averages.

        Gathers divided ones that parameters keep as gradients, for which every rank calls it.
        """
        self.flush()
        self.wait()
        for bucket in self.buckets:
            self._keep_averages(bucket)

    def _keep_averages(self, bucket: Bucket) -> None:
        division = bucket.division
        if division is None or not division.is_partial:
            return
        if any(slot.gradient is not None for slot in bucket.slots):
            self._gather_averages(bucket, division)
        division.is_partial = False

    def _gather_averages(self, bucket: Bucket, division: Shares) -> None:
        try:
            with self.observer.waiting(bucket):
                self.communication.issue(division.gather_gradients).wait()
        except Error as error:
            raise self.communication.explained(error) from error.__cause__
        division.is_partial = False
        for slot in bucket.slots:
            slot.show()

    def gradients_of(self, parameters: Iterable[Tensor]) -> tuple[list[_Gradient], list[_Gradient]]:
        """The whole averages of these parameters, and this rank's parts of divided ones.

        Each with a flat copy or view of it. Nothing may be under way.
        """
        whole: list[_Gradient] = []
        parts: list[_Gradient] = []
        for parameter in parameters:
            slot = self._slot_of.get(id(parameter))
            gradient = raw_gradient(parameter) if slot is None else slot.gradient
            if gradient is None:
                continue
            if slot is None:
                whole.append((gradient, gradient.reshape(-1)))
                continue
            division = slot.bucket.division
            if division is None or not slot.has_share:
                whole.append((gradient, flattened(gradient, slot.parameter)))
            elif (piece := division.pieces.get(slot)) is not None:
                parts.append((piece.gradient, flattened(piece.gradient, piece.parameter)))
        return whole, parts

    def slot_of(self, parameter: object) -> Slot | None:
        """The slot of a parameter; None if it is not one of the model's."""
        return self._slot_of.get(id(parameter))

    def use(self, parameter: object) -> None:
        """Called before a parameter is used: carries out the pending updates of its bucket."""
        slot = self._slot_of.get(id(parameter))
        if slot is not None:
            windows = self.observer.windows
            if windows is not None:
                windows.use(slot.index, _now())
            if slot.bucket.updates:
                self.update(slot.bucket)

    @outside_of_modes
    def update(self, bucket: Bucket) -> None:
        """Carries out the updates of a bucket."""
        with self._lock:
            if not bucket.updates:
                return
            self.check()
            # Updates of parameters that share memory look like changes of each other's.
            buckets = [one for one in self.buckets if one.updates] if self._share_memory else [bucket]
            try:
                for one in buckets:
                    for update in one.updates:
                        update.check()
            except Error as error:
                self._failure = error
                raise
            for one in buckets:
                self._carry_out(one)

    def _carry_out(self, bucket: Bucket) -> None:
        self._wait(bucket)
        updates = bucket.updates
        if bucket.division is not None:
            self._wait_for_shares(bucket)
        bucket.updates = []
        self._updater = threading.get_ident()
        try:
            with self.observer.updating(bucket):
                for update in updates:
                    update()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._updater = None

    def _wait_for_shares(self, bucket: Bucket) -> None:
        try:
            with self.observer.waiting(bucket):
                for update in bucket.updates:
                    update.wait()
        except BaseException as error:
            self._failure = self.communication.explained(error)
            raise self._failure from error.__cause__

    def flush(self) -> None:
        """Carries out all updates; waits only for the averages that they need."""
        for bucket in self.buckets:
            self.update(bucket)
        self.watching = self.observer.windows is not None

    def wait(self) -> None:
        """Waits for all averages."""
        for bucket in self.buckets:
            self._wait(bucket)

    def finish(self) -> None:
        """Carries out all updates and waits for all averages, as far as they do not fail.

        A rank that left earlier would make the others' last step fail. A failure is raised at the
        next use of the parameters.
        """
        with contextlib.suppress(Error):
            self.flush()
        with contextlib.suppress(Error):
            if self._refused:
                self._end_averages()
            self.check()
            self.wait()
            self.average.finish()

    @outside_of_modes
    def discard(self) -> None:
        """Drops failures, pending updates and gradients: the parameters get other values."""
        if self._refused:
            self._end_averages()
        if not self._divided_in_part:
            self._failure = None
        self._in_backward = False
        for bucket in self.buckets:
            for update in bucket.updates:
                with contextlib.suppress(Exception):  # the thread may still write parameters
                    update.wait()
            bucket.handle, bucket.updates = None, []
        for slot in self.slots:
            slot.forget()

    def release(self) -> None:
        """Restores the model's plain parameters, without gradients that are no averages."""
        for hook in self._hooks:
            hook.remove()
        for slot in self.slots:
            if slot.has_share:
                slot.forget()
            unguard(slot.parameter)
            self._move_out(slot)
        for optimizer in self.divided:
            optimizer.end()

    @property
    def all_read_early(self) -> bool:
        """Whether reads of gradients have waited for all averages of the last backward."""
        return len(self._read_early) == len(self.buckets)

    @property
    def failed(self) -> bool:
        """Whether parameters are incomplete."""
        return self._failure is not None or (self._in_backward and not in_backward())

    @property
    def _refused(self) -> bool:
        """Whether an update was refused, which is this program's mistake: the group is intact."""
        return isinstance(self._failure, UnsupportedError)

    def _end_averages(self) -> None:
        """Waits for operations under way in an intact group: their memory will be reused."""
        for bucket in self.buckets:
            if bucket.handle is not None:
                bucket.handle.wait()
                bucket.handle = None

    # The interface for guarded parameters.

    def before_use(self, slot: Slot) -> None:
        """Carries out the last step's update, unless the update itself reads."""
        if self._updater != threading.get_ident() and slot.bucket.updates:
            self.update(slot.bucket)

    @outside_of_modes
    def before_read(self, slot: Slot) -> None:
        """Waits until the gradient is the average, and the last step's update is complete."""
        if self._in_backward and in_backward():
            return
        if slot.is_taken and self._updater == threading.get_ident():  # the update itself reads
            return
        if slot.bucket.handle is not None and not slot.is_taken:
            self._read_early.add(slot.bucket.number)
        self.update(slot.bucket)
        self._wait(slot.bucket)
        division = slot.bucket.division
        if division is not None and division.is_partial and slot.gradient is not None:
            self._gather_averages(slot.bucket, division)

    def before_write(self, slot: Slot) -> None:
        """Notes that the gradient is the user's now."""
        slot.drop_gradient()

    # The interface for autograd.

    def place_for(self, parameter: Tensor, dtype: torch.dtype) -> Tensor | None:
        """The memory for a gradient that this backward is about to make; None to make it elsewhere.

        Its bucket is idle, and the gradient is the first of its parameter since it was dropped.
        """
        slot = self._slot_of.get(id(parameter))
        if slot is None or not (self._in_backward and self.synchronizes):
            return None
        if slot.placed or slot.fired or raw_gradient(slot.parameter) is not None:
            return None
        if slot.view.dtype != dtype or not slot.is_aligned:
            return None
        slot.placed = True
        return slot.view

    def gradient_ready(self, slot: Slot) -> None:
        """Called when autograd has added to a parameter's gradient."""
        if not self._in_backward:
            self._begin_late(slot)
        if not self.synchronizes:
            slot.brings = Brings.UNSYNCHRONIZED
            return
        bucket = slot.bucket
        if bucket.number < self._next:
            raise Error(
                f"{slot.name} got a gradient again after its bucket was sent, since this backward differs from the "
                "first one; with activation checkpointing, pass use_reentrant=False"
            )
        if slot.is_large:
            bucket.take_in(slot)
        elif not slot.fired:
            bucket.small.append(slot)  # copied when the bucket is complete
        slot.fired += 1
        windows = self.observer.windows
        if windows is not None:
            windows.gradient(slot.index, _now())
        if slot.fired == slot.expected:
            bucket.missing -= 1
            if self._learned and not bucket.missing and bucket.number == self._next:
                self._issue_full()

    def _begin_late(self, slot: Slot) -> None:
        """Begins a backward that no output of the model has announced, with a gradient in hand.

        Autograd has not added to an average that is under way: see `Slot.hide`.
        """
        gradient = raw_gradient(slot.parameter)
        if gradient is slot.view:  # in which autograd has added to an average that is complete
            self.begin_backward()
            return
        set_raw_gradient(slot.parameter, None)
        self.begin_backward()
        before = raw_gradient(slot.parameter)
        if before is not None and gradient is not None:
            gradient = before.add_(gradient)
        set_raw_gradient(slot.parameter, gradient)

    def _issue_full(self) -> None:
        while self._next < len(self.buckets) and self.buckets[self._next].missing == 0:
            self._issue(self.buckets[self._next])

    def _issue(self, bucket: Bucket) -> None:
        self._next += 1
        bucket.complete()
        with self.observer.issuing(bucket):
            try:
                bucket.handle = self.average(bucket)
            except Error as error:  # the group has broken meanwhile
                raise self.communication.explained(error) from error.__cause__

    @outside_of_modes
    def _end_backward(self) -> None:
        """Starts the remaining averages.

        There are none if no parameter got a gradient, as in `autograd.grad`.
        """
        averages = self.synchronizes and any(slot.fired for slot in self.slots)
        if averages:
            for slot in self.slots:
                slot.expected = max(slot.expected, slot.fired)
            self._learned = True
        else:
            for slot in self.slots:
                if slot.brings is Brings.PRESET_ZEROS:
                    slot.drop_gradient()
        self._issue_rest(averages=averages)

    def _issue_rest(self, *, averages: bool) -> None:
        """Ends a backward, or what is in its place."""
        if averages:
            for bucket in self.buckets[self._next :]:
                self._issue(bucket)
            self.communication.native.count_step()
        self._in_backward = False
        self.observer.end_backward(averages)
        if not self.defers:
            self.wait()
        elif averages:
            for slot in self.slots:
                slot.hide()

    @outside_of_modes
    def _wait(self, bucket: Bucket) -> None:
        with self._lock:
            if bucket.handle is None:
                return
            self.check()
            try:
                with self.observer.waiting(bucket):
                    bucket.handle.wait()
            except BaseException as error:
                self._failure = self.communication.explained(error)
                raise self._failure from error.__cause__
            bucket.handle = None
            bucket.settle()


class _Ready:
    """The hook of one parameter. Copies and pickles of it do nothing.

    Autograd holds hooks where the garbage collector does not look: this hook must not hold the
    parameter, or neither would ever be freed.
    """

    def __init__(self, reducer: Reducer, slot: Slot) -> None:
        self._reducer = weakref.ref(reducer)
        self._index = slot.index

    def __call__(self, _: Any) -> None:
        reducer = self._reducer()
        if reducer is None:
            return
        with no_modes() if in_function_mode() or in_dispatch_mode() else _NO_CONTEXT:
            reducer.gradient_ready(reducer.slots[self._index])


def _finish_at_exit(reference: weakref.ref[Reducer]) -> None:
    reducer = reference()
    if reducer is not None:
        reducer.finish()
