"""A model whose gradients are averaged over the ranks while backward computes them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from weft.errors import ArgumentError, ConfigError, Error, UnsupportedError
from weft.torch.modes import Mode
from weft.torch.modes.wire import Wire
from weft.torch.parallel.averaging import Averaging, ExactAveraging
from weft.torch.parallel.buckets import parameter_info
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.costs import DivisionRule
from weft.torch.parallel.ddp_keywords import DDPKeywords, check_ddp_keywords
from weft.torch.parallel.divided.wire_averaging import WireAveraging
from weft.torch.parallel.first_use import FirstUse
from weft.torch.parallel.fusion import PlanOptions
from weft.torch.parallel.gradient_state import Brings
from weft.torch.parallel.introduction import introduced, note_network
from weft.torch.parallel.joining import ShadowTraining
from weft.torch.parallel.mode_averaging import ModeAveraging, check_algorithms_of_mode, check_mode
from weft.torch.parallel.models import SHARD_BYTES_MIN, Shard, checked_shard, for_device, sends_16_bits, tensors_in
from weft.torch.parallel.module_buffers import BufferPolicy, ModuleBuffers
from weft.torch.parallel.observer import Observer
from weft.torch.parallel.plan import BucketPlan
from weft.torch.parallel.planner import Planner
from weft.torch.parallel.reducer import Reducer
from weft.torch.parallel.rows import EmbeddingPolicy, RowAveraging, Rows, bytes_of_rows, check_rows, exchanged_by_rows
from weft.torch.parallel.trained import TrainedParameters
from weft.torch.parallel.virtual.balance import check_balance
from weft.torch.parallel.virtual.continued import begin_parts
from weft.torch.parallel.virtual.parts import Parts, checked_virtual_ranks
from weft.torch.parallel.virtual.probe import probed
from weft.torch.parallel.virtual.sums import PartAveraging
from weft.torch.parallel.weight_gradients import compute_in_bucket
from weft.torch.patches.autograd import in_backward
from weft.torch.patches.modes import outside_of_modes

if TYPE_CHECKING:
    from weft.torch.parallel.report import Report

__all__ = ["DataParallel", "living_models"]

_Batch = TypeVar("_Batch")
_models: weakref.WeakSet[DataParallel] = weakref.WeakSet()


class DataParallel(nn.Module, Joinable):
    """Trains copies of a model on all ranks of a group, as one model.

    Gradients are averaged in buckets, each as soon as backward has computed it. By default, all are
    averaged when `backward` returns, and any optimizer steps as usual. With `weft.torch.Overlapped`
    around the optimizer, communication continues in the next forward.

    Calls go to `module`; parameters and buffers are rank 0's from the start. As with
    `DistributedDataParallel`, keys of `state_dict` begin with "module.", those of
    `model.module.state_dict()` do not. Copies and pickles are of the plain module.

    Attributes:
        module: The model that was given.
    """

    @outside_of_modes
    def __init__(
        self,
        module: nn.Module,
        process_group: ProcessGroup | None = None,
        *,
        fusion: str | int = "automatic",
        algorithm: str = "automatic",
        gradients: Literal["copy", "view"] = "copy",
        buffers: BufferPolicy = "broadcast",
        plan: BucketPlan | None = None,
        mode: Mode | None = None,
        embeddings: EmbeddingPolicy = "automatic",
        shard: Shard = "none",
        parameters: Literal["own", "host"] = "own",
        replan_after: int = 10,
        replan_every: int | None = None,
        init_sync: bool = True,
        virtual_ranks: int | None = None,
        balance_every: int | None = None,
        strict: bool = True,
        **ddp: Unpack[DDPKeywords],
    ) -> None:
        """Wraps a model. Every rank calls it with the same model and options.

        Args:
            module: The model, on the CPU or on one GPU (docs/how-to/cuda.md). Compile it, or its
                blocks, before.
            process_group: The ranks, over weft; the default group if not given.
            fusion: The division of gradients into buckets: `none`, a number of bytes, `lazy` (by
                bytes, in the order of their computation), or `automatic` (for the shortest wait of
                a step, by measurement). The last two learn: see `replan_after`. On a GPU,
                `automatic` is 4 MiB.
            algorithm: The algorithm for buckets: `automatic` (the group's choice for the size),
                `hybrid` (small ones by halving-doubling, large ones by ring), or the name of an
                all-reduce that `weft plan --list` prints.
            gradients: `copy`: autograd's gradients are copied into buckets; `view`: autograd adds
                to the buckets, which needs zeros first. In both cases `grad` is a part of a bucket.
            buffers: Before each forward that trains: `broadcast` rank 0's, `average`, or `leave`.
            plan: The buckets, for the bits of an earlier run; then nothing is learned.
            mode: The averaging of buckets, such as `weft.torch.modes.PowerSGD(rank=4)`: see
                `weft.torch.modes`. Exact by default.
            embeddings: The averaging of gradients of `Embedding` and `EmbeddingBag` whose weights
                nothing else uses: by the `rows` that inputs have touched, if that is less, all
                `dense`, or, `automatic`, those from 1 MiB on by rows.
            shard: With `Overlapped`, each rank updates only its share of a bucket's parameters, and
                has the optimizer's state of that: `automatic`, of buckets of at least 256 KiB; or
                of at least this number of bytes. `none`: every rank updates all, also in modes
                that are no reduce-scatter (with a warning). Not on a GPU.
            parameters: `host`: the ranks, which are on one host, share one copy of the parameters
                of divided buckets; `shard` is at least `automatic` then. `own`: each has its own.
            replan_after: After this many steps the plan is made again, by measurement.
            init_sync: False: parameters and buffers are the same on all ranks already, and are not
                sent.
            virtual_ranks: Gradients, buffers and random numbers are those of this number of parts,
                with the same bits for any number of ranks up to it: see `parts`. Not on a GPU, and
                without `mode`, `algorithm`, `buffers` and views.
            balance_every: Virtual ranks are dealt anew, by how long the ranks compute for one, each
                time this many steps have passed: read `virtual_ranks` after each step then. Never,
                if not given.
            strict: With virtual ranks: refuse ranks and checkpoints of processes that compute other
                bits, such as on other processors or with other numbers of threads. False: warn.
            replan_every: And again each time this many steps have passed. Never, if not given.
            ddp: Keywords of `DistributedDataParallel`, such as `device_ids`: accepted where they
                make no difference here, else refused with what to drop.

        Raises:
            weft.ConfigError: There is no process group, or ranks differ in their models or options,
                or, with virtual ranks, in the bits that they compute.
            weft.ArgumentError: An option is not allowed, or the group's backend is not weft.
            weft.UnsupportedError: A parameter is not initialized, or the model is not on the CPU or
                on one GPU; or, on a GPU, `mode` or embeddings by rows are asked for.
        """
        super().__init__()
        check_ddp_keywords(ddp, module, process_group)
        if gradients not in ("copy", "view"):
            raise ArgumentError(f"gradients={gradients!r}: expected 'copy' or 'view'")
        found = TrainedParameters(module)
        trained = found.named
        self._on_device = not trained[0][1].is_cpu
        if self._on_device:
            fusion, embeddings = for_device(fusion, mode, embeddings)
        self._one_copy = parameters == "host"
        self._shard = checked_shard(shard, parameters, mode, on_device=self._on_device)
        check_balance(balance_every, virtual_ranks)
        if virtual_ranks is not None:
            embeddings = "dense"
        options = PlanOptions(fusion, algorithm)
        check_mode(mode, trained)
        rows = exchanged_by_rows(module, trained, embeddings, mode)
        infos = [parameter_info(name, parameter) for name, parameter in trained]
        self._communication = Communication(process_group)
        self._planner = Planner(
            infos, options, rows, self._communication, replan_after, replan_every, rounds=sends_16_bits(mode)
        )
        dtypes = [parameter.dtype for _, parameter in trained if parameter.is_floating_point()]
        ranks = introduced(
            module,
            infos,
            {
                **dataclasses.asdict(options),
                "gradients": gradients,
                "buffers": buffers,
                "mode": repr(mode),
                "embeddings": embeddings,
                "shard": shard,
                "parameters": parameters,
                "replan_after": replan_after,
                "replan_every": replan_every,
                "virtual_ranks": virtual_ranks,
                "balance_every": balance_every,
                "strict": str(strict),
            },
            {} if virtual_ranks is None else probed(dtypes),
            self._communication,
        )
        is_restored = all(one.is_restored for one in ranks) and mode is None and parameters == "own"
        self._parts: Parts | None = None
        if virtual_ranks is not None:
            checked_virtual_ranks(
                virtual_ranks,
                self._communication,
                module,
                on_device=self._on_device,
                mode=mode is not None,
                algorithm=algorithm != "automatic",
                buffers=buffers != "broadcast",
                gradients=gradients != "copy",
            )
            probes = [one.probe for one in ranks]
            self._parts = Parts(
                virtual_ranks,
                self._communication,
                probes,
                ranks[0].seed,
                strict=strict,
                balance_every=balance_every,
            )
            mode, buffers = self._parts.sums, "leave"
            begin_parts(module, self._parts.sums)
            check_mode(mode, trained)
        self.module = module
        self._trained = found
        self._embeddings = embeddings
        self._buffers_of_modules = ModuleBuffers(module, self._communication, buffers)
        if init_sync:
            self._broadcast_everything(0, parameters=not is_restored)
        self._presets = gradients == "view"
        self._observer = Observer()
        self._mode = mode
        first = self._planner.first(plan, [one.host for one in ranks], ranks[0].network)
        note_network(module, self._planner.network)
        check_algorithms_of_mode(mode, first)
        check_rows(first, trained)
        self._reducer = Reducer(
            trained, first, self._communication, self._observer, self._averaging(), presets=self._presets
        )
        self._reducer.synchronizes = not self.is_alone
        self._first_use = FirstUse(module, self._reducer, self._compute_in_bucket)
        self.require_backward_grad_sync = True
        """Whether the next forward's backward averages; `no_sync` sets it."""
        self._ran = False
        Joinable.__init__(self)
        _models.add(self)

    # Training.

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls the model.

        Raises:
            weft.Error: Communication has failed.
        """
        return self._forward(torch.compiler.is_compiling(), arguments, keywords)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _forward(self, compiled: bool, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if in_backward():  # recomputed by activation checkpointing
            return self.module(*arguments, **keywords)
        if not self._ran:
            self._prepare_first(compiled)
        try:
            self._before_forward()
        except Error as error:
            raise self._communication.explained(error) from error.__cause__
        self._observer.begin_forward()
        for slot in self._first_use.at_root:
            self._reducer.use(slot.parameter)
        outputs = self.module(*arguments, **keywords)
        self._observer.end_forward()
        if torch.is_grad_enabled():
            self._expect_backward(outputs)
        return outputs

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients of forwards in the block on each rank, without averaging.

        The backward of the next forward outside averages the sums.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @property
    def virtual_ranks(self) -> range:
        """The virtual ranks of this rank, which give a batch its parts; empty without any.

        With `balance_every`, they may change in the end of `parts`.
        """
        return range(0) if self._parts is None else self._parts.own

    def parts(self, batch: Sequence[_Batch | None]) -> Iterator[_Batch]:
        """Iterates over the parts of a step, which are those of this rank's `virtual_ranks`.

        Call the model for each, and backward. Each part has random numbers of its own (of torch, on
        the CPU), the step's first buffers, and no gradients. The backward of the last one starts
        the averages over the parts of all ranks: if parts have several, call the model for all but
        the last one within `no_sync`. The gradients of a part without backward count as zeros.

        Args:
            batch: The samples of each of `virtual_ranks`; None for one that has none this time: it
                is left out, and its gradients count as zeros.

        Raises:
            weft.ArgumentError: The batch has another number of parts.
            weft.ConfigError: The model has no virtual ranks.
            weft.UnsupportedError: It is within `no_sync`: parts are accumulated anyway. Or the last
                part has a second backward.

        Examples:
            >>> model = weft.torch.DataParallel(net, virtual_ranks=8)
            >>> for batch in loader:  # a list of as many micro-batches as model.virtual_ranks
            ...     for part in model.parts(batch):
            ...         loss(model(part)).backward()
            ...     optimizer.step()
        """
        return self._with_parts().iterate(self, self._reducer, batch, self._begin_step)

    def mean_over_parts(self, values: Sequence[float | Tensor | None]) -> float:
        """The mean of a number over the parts of all ranks, such as a loss; None is left out.

        Its bits do not depend on the number of ranks. Every rank calls it.

        Raises:
            weft.ConfigError: The model has no virtual ranks.
        """
        return self._with_parts().mean(values)

    def _with_parts(self) -> Parts:
        if self._parts is None:
            raise ConfigError("the model has no virtual ranks: make the DataParallel with virtual_ranks=")
        return self._parts

    def flush(self) -> None:
        """Carries out all updates of `Overlapped` optimizers.

        Raises:
            weft.Error: Communication has failed.
        """
        self._reducer.check()
        self._reducer.flush()

    @property
    def mode(self) -> Mode | None:
        """The communication mode, after all averages that were started have ended; None if exact.

        Its state differs between ranks and belongs in a checkpoint: `model.mode.state_dict()`.

        Raises:
            weft.Error: Communication has failed, so there is no complete state.
        """
        self._reducer.check()
        self._reducer.wait()
        return self._mode

    def flush_mode(self) -> bool:
        """Makes the averages that the mode has not delivered yet the gradients of a further step.

        Every rank calls it after the last step, and steps once more if it returns True:
        `DoubleBuffering` keeps the last step's. Other modes have nothing to deliver.

        Raises:
            weft.Error: Communication has failed.
        """
        mode = self.mode
        averages = {} if mode is None else mode.flush()
        if averages:
            self._reducer.deliver(averages)
        return bool(averages)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients; updates that have taken them keep them."""
        if set_to_none:
            self._reducer.zero_gradients()
            for parameter in self._trained.frozen:
                parameter.grad = None
        else:
            super().zero_grad(set_to_none=False)

    def train(self, mode: bool = True) -> DataParallel:
        """As of any module; all updates are carried out before an evaluation."""
        if not mode and hasattr(self, "_reducer"):
            self.flush()
        super().train(mode)
        return self

    @property
    def is_alone(self) -> bool:
        """Whether gradients are averages without communication: of one rank, and in no mode."""
        return self._mode is None and self._communication.size == 1

    @property
    def shard_bytes_min(self) -> int | None:
        """The least bytes of a bucket whose updates are divided; None if none are."""
        if self._shard == "none" or self._communication.size == 1:
            return None
        return SHARD_BYTES_MIN if isinstance(self._shard, str) else self._shard

    @property
    def has_one_copy(self) -> bool:
        """Whether the ranks of the host share the parameters of divided buckets."""
        return self._one_copy and self.shard_bytes_min is not None

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lets the program change parameters that ranks share (`parameters="host"`).

        Every rank calls it. In the block each rank has parameters of its own, which it may change
        as in a plain model, for instance by `load_state_dict`. After it, the parameters that were
        shared are rank 0's. Without such parameters it changes nothing.

        Raises:
            weft.Error: Communication has failed.
        """
        self.flush()
        with self._reducer.separated():
            yield

    @property
    def plan(self) -> BucketPlan:
        """The present buckets."""
        return self._reducer.plan

    def report(self, *, full: bool = False) -> Report:
        """The time of communication since the last plan, and the part of it that was waited for.

        Print it, or take its `to_dict()`. Its text begins with a verdict, and has 100 columns at
        most.

        Args:
            full: Its text has all buckets, layers and names, in lines as long as they are.

        Raises:
            weft.UnsupportedError: The model is on a GPU, where only a profiler sees waits.
        """
        if self._on_device:
            raise UnsupportedError("report() is for models on the CPU: for one on a GPU, use torch.profiler")
        from weft.torch.parallel.report import report_of

        planner, reducer = self._planner, self._reducer
        deferred = reducer.defers and not reducer.all_read_early
        known = planner.expectations(reducer.plan, deferred=deferred, exact=self._mode is None)
        return report_of(reducer, self._mode, planner.profile, known, full=full)

    # Methods that need all updates.

    def named_parameters(self, *arguments: Any, **keywords: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """As of any module, after all updates."""
        if hasattr(self, "_reducer"):
            self._reducer.flush()
        return super().named_parameters(*arguments, **keywords)

    def state_dict(self, *arguments: Any, **keywords: Any) -> dict[str, Any]:  # type: ignore[override]
        """As of any module, after all updates.

        Raises:
            weft.Error: Communication has failed, so there is no complete state.
        """
        self.flush()
        return cast("dict[str, Any]", super().state_dict(*arguments, **keywords))

    def load_state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        """As of any module. After a failure, pending work is dropped first.

        Raises:
            weft.Error: Updates could not be divided anew: a new model is needed.
        """
        if self._reducer.failed:
            self._reducer.discard()
        self.flush()
        return super().load_state_dict(*arguments, **keywords)

    def unwrap(self) -> nn.Module:
        """Ends data parallelism and returns the plain module.

        Updates are carried out first. After a failure they are dropped, and the parameters must be
        loaded from a checkpoint. Where updates were divided, a plain optimizer that had state
        refuses steps until it has loaded a whole one, such as that of
        `weft.torch.Overlapped.full_state_dict`; divided gradients are dropped, unless all ranks
        have read a `grad` of each bucket.
        """
        if self._reducer.failed:
            self._reducer.discard()
        self._reducer.flush()
        self._reducer.wait()
        self._first_use.release()
        self._reducer.release()
        _models.discard(self)
        return self.module

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        """A copy of the module, which is a plain one."""
        self.flush()
        self._first_use.release()
        try:
            return copy.deepcopy(self.module, memo)
        finally:
            self._first_use.watch_again()

    def __reduce_ex__(self, _: Any) -> Any:
        """The pickle of the plain module."""
        return _same, (copy.deepcopy(self),)

    # Uneven inputs.

    @property
    def join_device(self) -> torch.device:
        """The device on which `Join` communicates."""
        return torch.device("cpu")

    @property
    def join_process_group(self) -> ProcessGroup:
        """The group of `Join`."""
        return self._communication.process_group

    def join_hook(self, **keywords: Any) -> JoinHook:
        """The hook that `Join` calls on ranks without further inputs."""
        if self._parts is not None:
            raise UnsupportedError(
                "join() with virtual_ranks: a virtual rank without samples has None in the batch of model.parts"
            )
        if self.shard_bytes_min is not None:
            raise UnsupportedError(
                f"join() with shard={self._shard!r}: a rank without inputs would not update its share. Give all ranks "
                'the same number of inputs, or make the DataParallel with shard="none"'
            )
        if not keywords.get("divide_by_initial_world_size", True):
            raise UnsupportedError(
                "divide_by_initial_world_size=False: expected True, as gradients are averages of all ranks"
            )
        return ShadowTraining(self._shadow_step, self._take_over)

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True) -> Join:
        """A context in which ranks may have different numbers of inputs.

        Ranks without further inputs contribute zeros to the averages, and get the others'
        parameters in the end.
        """
        return Join([self], enable, divide_by_initial_world_size=divide_by_initial_world_size)

    # Implementation of the above.

    def _averaging(self) -> Averaging:
        if self._parts is not None:
            return PartAveraging(self._parts.sums, self._communication, self._observer)
        if self._mode is not None:
            averaging = ModeAveraging(self._mode, self._communication, self._observer)
            if isinstance(self._mode, Wire) and self.shard_bytes_min is not None:
                return WireAveraging(averaging, self._mode, self._communication)
            return averaging
        rows = ModeAveraging(Rows(), self._communication, self._observer)
        return RowAveraging(ExactAveraging(self._communication), rows, self._communication.size)

    def _compute_in_bucket(self, module: nn.Module) -> Callable[[], None] | None:
        if self._on_device or self._presets:
            return None
        return compute_in_bucket(module, self._reducer)

    def _before_forward(self) -> None:
        self._reducer.check()
        synchronizes = torch.is_grad_enabled() and self.require_backward_grad_sync and not self.is_alone
        if torch.is_grad_enabled():
            self._reducer.synchronizes = synchronizes
            if self._parts is not None and self.training:
                self._parts.check()
        if synchronizes and self._parts is None:
            self._begin_step()

    def _begin_step(self) -> None:
        """Does what all ranks do together before a forward whose backward averages."""
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
        if self._trained.changed:
            self._train_others()
        if not self.training:
            return
        if not self._join_config.enable:  # ranks that have joined do not count steps
            self._take_next_plan()
        self._synchronize_buffers()

    @outside_of_modes
    def _expect_backward(self, outputs: Any) -> None:
        announced = False
        for tensor in tensors_in(outputs):
            if tensor.grad_fn is not None:  # hooks of parameters would stay forever
                tensor.register_hook(self._begin_backward)  # type: ignore[no-untyped-call]
                announced = True
        if not announced and self.shard_bytes_min is not None:
            self._reducer.keep_averages()

    def _begin_backward(self, _: Tensor) -> None:
        self._reducer.begin_backward()

    def _prepare_first(self, compiled: bool) -> None:
        """Modules may have been compiled since the model was wrapped."""
        self._ran = True
        self._first_use.watch_again()
        if compiled:
            warnings.warn(
                "torch.compile(DataParallel(net)) runs uncompiled: compile net, or better its blocks, and wrap that",
                stacklevel=3,
            )
        elif self._first_use.compiled_whole:
            warnings.warn(
                "the model is compiled as a whole, so all of its parameters are needed when forward begins, and "
                "communication does not overlap with it: compile its blocks one by one (`block.compile()`)",
                stacklevel=3,
            )

    @outside_of_modes
    def _train_others(self) -> None:
        """Plans again for the parameters that require a gradient now: see [Note: Unfreezing]."""
        self._reducer.flush()
        self._reducer.wait()
        accumulated = [slot.name for slot in self._reducer.slots if slot.brings is Brings.UNSYNCHRONIZED]
        if not self._trained.agree(accumulated, self._communication):
            return
        trained = self._trained.named
        check_mode(self._mode, trained)
        rows = exchanged_by_rows(self.module, trained, self._embeddings, self._mode)
        infos = [parameter_info(name, parameter) for name, parameter in trained]
        self._reducer.use_parameters(trained, self._planner.for_others(infos, rows, self._observer))
        self._first_use.watch_again()

    @outside_of_modes
    def _take_next_plan(self) -> None:
        row_bytes = bytes_of_rows(self._reducer.plan, self._reducer.buckets, self._communication.size)
        plan = self._planner.next(self._observer, row_bytes, self._division(), deferred=self._reducer.defers)
        if plan is not None:
            self._reducer.use_plan(plan)
        if self._observer.windows is not None:
            self._reducer.watching = True

    def _division(self) -> DivisionRule | None:
        """How updates are divided now; None if they are not."""
        if not self._reducer.divided or (bytes_min := self.shard_bytes_min) is None:
            return None
        return DivisionRule(self._communication.size, bytes_min, isinstance(self._shard, str))

    @outside_of_modes
    def _synchronize_buffers(self, joined: bool = False) -> None:
        root = 0
        if self._join_config.enable:
            root = self._common_rank(not joined)
        self._buffers_of_modules.synchronize(root)

    def _common_rank(self, candidate: bool) -> int:
        """The highest rank for which the condition holds."""
        number = torch.tensor([self._communication.rank if candidate else -1], dtype=torch.int64, device="cpu")
        self._communication.all_reduce(number, "max").wait()
        if number.item() < 0:
            raise Error("no rank is left to take the model from")
        return int(number.item())

    def _shadow_step(self) -> None:
        """This rank's part in a step of the others, after its own inputs have ended."""
        self._synchronize_buffers(joined=True)
        self._reducer.average_nothing()

    @outside_of_modes
    def _take_over(self, candidate: bool) -> None:
        self.flush()
        self._broadcast_everything(self._common_rank(candidate))

    def _broadcast_everything(self, root: int, *, parameters: bool = True) -> None:
        tensors = [*(self.module.parameters() if parameters else ()), *self.module.buffers()]
        self._communication.broadcast((tensor for tensor in tensors if tensor.numel()), root)


def living_models() -> list[DataParallel]:
    """The models of this process that exist and were not unwrapped."""
    return list(_models)


def _same(module: nn.Module) -> nn.Module:
    """Returns its argument; unpickling a model calls it."""
    return module
