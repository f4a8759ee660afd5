"""A worker of a parameter server: pushes gradients in backward, pulls parameters for forward.

[Note: A worker's step] Each bucket's gradient is pushed when backward has made it, in the bucket's
own turn; `step` pushes what is left, and asks for all buckets in the order in which they were
registered, so that the first layers come first. A module waits for its own parameters when forward
first looks at them. Pushes and pulls have lanes of their own, so both directions of a line are used
at a time. A pull is answered when the worker's own push has been applied, and, with bounded
staleness, when nobody is too far behind.

[Note: Early pulls] With staleness 0, what a push leads to is decided with it. So a bucket that
backward has pushed is asked for at once, and comes while others are still being pushed: servers
apart send and receive at the same time, which halves a step that their lines bound. Backward may
still read the parameters, and they change in `step` only: until then the new ones are kept where
the gradient was, which the server has acknowledged by then.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn

from weft import _weft, config
from weft.bootstrap import endpoints
from weft.config import Options
from weft.errors import ArgumentError, UnsupportedError
from weft.torch.parallel.first_use import FirstUse
from weft.torch.parallel.models import requirements, trained_parameters
from weft.torch.parameter_server.compression import WIRES, Largest
from weft.torch.parameter_server.connection import (
    LANES,
    NO_FLIGHT_RECORD,
    PULL,
    PULLS,
    PUSH,
    PUSHES,
    Link,
    LocalLink,
    RemoteLink,
)
from weft.torch.parameter_server.embedding import ServedEmbedding
from weft.torch.parameter_server.messages import Limits, Message
from weft.torch.parameter_server.optimizer import ServerOptimizer
from weft.torch.parameter_server.plan import BUCKET_BYTES, piece_key, shard
from weft.torch.parameter_server.served_bucket import ServedBucket, Slot
from weft.torch.parameter_server.server import Server

__all__ = ["Worker"]


class Worker(nn.Module):
    """Trains a model whose parameters are with parameter servers.

    Calls go to `module`. `loss.backward()` pushes, `step()` ends a step; there is no optimizer
    here, the servers have it. Outside of a step, parameters that are looked at are waited for.

    Attributes:
        module: The model that was given. Its parameters become parts of buckets.
        plan: Which server keeps what.
        learning_rate: In place of the optimizer's own, from the next push on; None: its own.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: ServerOptimizer,
        servers: Sequence[str],
        *,
        name: str | None = None,
        staleness: int | None = 0,
        workers: int = 1,
        wire_format: str = "full",
        compression: Largest | None = None,
        correct_staleness: bool = False,
        brings_values: bool = True,
        bucket_bytes: int = BUCKET_BYTES,
        local: Server | None = None,
        server_timeout: float = 60.0,
        answer_timeout: float = 300.0,
        limits: Limits | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Joins the workers of a job.

        Args:
            module: The model, on the CPU, of `float32`; all workers' have the same shapes.
            optimizer: What servers update with; the same for all workers.
            servers: Their addresses, `host:port`, in the same order for all workers; `A+B` for one
                at A that B, its second server, may take the place of.
            name: What this worker is called; with staleness 0, contributions are added in the order
                of the names. A random one, if not given.
            staleness: How many steps a worker may be ahead of the slowest: 0: all steps are taken
                together, by the average gradient; n: by at most n, each gradient is applied when it
                comes; None: any number. The same for all.
            workers: The job begins when so many have come. The same for all.
            wire_format: `full`, `fp16` or `bf16`: how gradients and parameters travel.
            compression: Pushes only the `Largest` gradients.
            correct_staleness: Whether servers divide the learning rate of a push by its staleness.
                The same for all.
            brings_values: Whether this worker may be asked for the first values. If several may,
                different servers may take them from different ones: give those the same.
            bucket_bytes: Neighbouring parameters travel together up to so many bytes. The same for
                all.
            local: The server of this process among `servers`, for the layout `localps`.
            server_timeout: Seconds that a server may be away, such as while it is started again.
            answer_timeout: Seconds that an answer may take, such as while others are waited for.
            limits: What is taken from servers.
            options: See `weft.config.Options`: as the servers have them.

        Raises:
            weft.ArgumentError, weft.UnsupportedError: An option or a parameter is not allowed.
            StalePlan: The job's other workers have another model or other options.
            ServerLost: No server answers at an address.
        """
        super().__init__()
        if wire_format not in WIRES:
            raise ArgumentError(f"wire_format={wire_format!r}: expected one of {', '.join(WIRES)}")
        self.module = module
        self.learning_rate: float | None = None
        self.watching = False
        self.step_number = 0
        self._wire = WIRES[wire_format]
        self._compression = compression
        self._pulls_early = staleness == 0
        self._synchronizes = True
        self._closed = False
        self._tables = {name: one for name, one in module.named_modules() if isinstance(one, ServedEmbedding)}
        trained = _trained(module, bool(self._tables))
        self.plan = shard(
            [(name, tuple(parameter.shape)) for name, parameter in reversed(trained)],
            len(servers),
            [embedding.table(name) for name, embedding in self._tables.items()],
            bucket_bytes=bucket_bytes,
        )
        policy = {"staleness": staleness, "workers": workers, "correct": correct_staleness}
        job = {"plan": self.plan.to_value(), "optimizer": optimizer.to_value(), "policy": policy}
        self._endpoint = _weft.Endpoint(
            route_to=servers[0].split("+")[0], **endpoints.options_of(config.load(options)) | NO_FLIGHT_RECORD
        )
        self._links: list[Link] = []
        self._lanes: list[list[ThreadPoolExecutor]] = []
        try:
            own = f"{name or 'worker'}/{secrets.token_hex(8)}"
            for number, address in enumerate(servers):
                hello = {
                    "kind": "hello",
                    "worker": own,
                    "brings": brings_values,
                    "job": _as_on_wire({**job, "server": number}),
                }
                if local is not None and address == local.address:
                    self._links.append(LocalLink(local.service, hello))
                else:
                    self._links.append(
                        RemoteLink(
                            address.split("+"),
                            hello,
                            self._endpoint,
                            limits=limits or Limits(),
                            server_seconds=server_timeout,
                            answer_seconds=answer_timeout,
                            options=options,
                        )
                    )
                self._lanes.append([ThreadPoolExecutor(1, f"weft lane {number}.{lane}") for lane in range(LANES)])
        except BaseException:
            self.close(wait=False)
            raise
        self._prepare(trained)

    # Training.

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls the model."""
        for slot in self._first_use.at_root:
            self.use(slot.parameter)
        return self.module(*arguments, **keywords)

    def step(self) -> None:
        """Ends a step: pushes what has not been pushed yet, and asks for new parameters.

        Returns at once; modules wait for their parameters when they are used.

        Raises:
            weft.Error: A push of an earlier step has failed.
            weft.UnsupportedError: A parameter that was frozen at first, which no server keeps, is
                trained.
        """
        if any(requirements(self._frozen)):
            raise UnsupportedError(
                f"{', '.join(self._unfrozen())}: unfrozen since the worker was made, and no server keeps it. Unfreeze "
                "parameters before, or make a worker and servers for another job"
            )
        if self._first_values:
            self.wait()
            self._first_values.clear()
        self.step_number += 1
        self.watching = True
        late = [bucket for bucket in self._buckets if not bucket.is_pushed]
        for bucket in late:
            self._push(bucket)
        for name, embedding in self._tables.items():
            self._push_rows(name, embedding)
        for bucket in reversed(late if self._pulls_early else self._buckets):
            self._pull(bucket)
        for bucket in self._buckets:
            bucket.is_pushed = False

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Lets gradients of backwards in the block add up.

        They are pushed with that of the next backward outside.
        """
        before, self._synchronizes = self._synchronizes, False
        try:
            yield
        finally:
            self._synchronizes = before

    def wait(self) -> None:
        """Waits for all parameters that have been asked for.

        Raises:
            weft.Error: A push or a pull has failed.
        """
        for bucket in self._buckets:
            bucket.wait()
        self.watching = False

    def close(self, *, wait: bool = True) -> None:
        """Leaves the servers, which go on without this worker.

        All pushes are acknowledged first. With `wait`, the last parameters are waited for as well;
        without it, some may be older than others.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if wait and hasattr(self, "_buckets"):
                self.wait()
        finally:
            for lane in (lanes[number] for lanes in self._lanes for number in PUSHES):
                lane.shutdown(wait=True)
            for link in self._links:
                link.close()
            for lane in (lanes[number] for lanes in self._lanes for number in PULLS):
                lane.shutdown(wait=True, cancel_futures=True)
            self._endpoint.close()
            self._release()

    def _release(self) -> None:
        """Leaves the model as it was, but for its parameters."""
        if hasattr(self, "_first_use"):
            self._first_use.release()
            for hook in self._hooks:
                hook.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=error is None)

    def statistics(self) -> list[dict[str, Any]]:
        """For each server: its members, updates, and how stale pushes were; `repeated` pushes."""
        question: Message = ({"kind": "statistics"}, [])
        futures = [lanes[PULL].submit(link.request, PULL, question) for link, lanes in self._ways()]
        return [future.result()[0] for future in futures]

    def snapshot(self) -> None:
        """Lets all servers write their shards to their directories now."""
        for future in [
            lanes[PUSH].submit(link.request, PUSH, ({"kind": "snapshot"}, [])) for link, lanes in self._ways()
        ]:
            future.result()

    @property
    def reconnections(self) -> int:
        """How often connections to servers were made again."""
        return sum(link.reconnections for link in self._links)

    # What `FirstUse` asks.

    @property
    def slots(self) -> Sequence[Slot]:
        """All trained parameters."""
        return list(self._slots.values())

    def slot_of(self, parameter: Any) -> Slot | None:
        """That of a parameter of the model; None of anything else."""
        return self._slots.get(id(parameter))

    def use(self, parameter: Any) -> None:
        """Waits until a parameter has come."""
        slot = self._slots.get(id(parameter))
        if slot is not None:
            slot.bucket.wait()

    # Rows.

    def pull_rows(self, table: str, rows: Tensor) -> Tensor:
        """Rows of a table as they are now, or not older than allowed: float32 (rows, width)."""
        width = self._tables[table].embedding_dim
        found = torch.empty(rows.numel(), width, dtype=torch.float32, device="cpu")
        owners = rows % self.plan.servers
        parts: list[tuple[int, Tensor, Future[Message]]] = []
        for server in range(self.plan.servers):
            places = (owners == server).nonzero().view(-1)
            if places.numel():
                asked = {"kind": "pull", "key": f"table {table}", "number": self.step_number, "dtype": self._dtype}
                parts.append((server, places, self._submit(server, PULL, (asked, [rows[places]]))))
        for server, places, future in parts:
            fields, (values,) = future.result()
            self._table_versions[table, server] = fields["version"]
            found[places] = values.float().view(-1, width)
        return found

    def _push_rows(self, name: str, embedding: ServedEmbedding) -> None:
        table = next(table for table in self.plan.tables if table.name == name)
        gradients = embedding.take_gradients()
        for server in range(self.plan.servers):
            if not table.rows_of(server, self.plan.servers):
                continue
            before = self._row_pushes.get((name, server))
            if before is not None:
                before.result()
            tensors = []
            if gradients is not None:
                places = (gradients[0] % self.plan.servers == server).nonzero().view(-1)
                tensors = [gradients[0][places], gradients[1][places].to(self._wire).flatten()]
            fields = self._push_fields(f"table {name}", self.step_number, self._table_versions.get((name, server)))
            self._row_pushes[name, server] = self._submit(server, PUSH, (fields, tensors))

    # How it is done.

    def _unfrozen(self) -> list[str]:
        frozen = set(map(id, self._frozen))
        return [name for name, one in self.module.named_parameters() if one.requires_grad and id(one) in frozen]

    def _prepare(self, trained: list[tuple[str, nn.Parameter]]) -> None:
        by_name = dict(trained)
        self._frozen = [parameter for parameter in self.module.parameters() if not parameter.requires_grad]
        self._buckets = [ServedBucket(number, bucket, by_name) for number, bucket in enumerate(self.plan.buckets)]
        self._slots = {id(slot.parameter): slot for bucket in self._buckets for slot in bucket.slots}
        self._first_values = {bucket.number: bucket.values.clone() for bucket in self._buckets}
        self._table_versions: dict[tuple[str, int], int] = {}
        self._row_pushes: dict[tuple[str, int], Future[Message]] = {}
        for name, embedding in self._tables.items():
            embedding.bind(self, name)
        self._hooks = [
            slot.parameter.register_post_accumulate_grad_hook(self._take_gradient)  # type: ignore[no-untyped-call]
            for slot in self._slots.values()
        ]
        self._first_use = FirstUse(self.module, self)
        self._hooks.append(self.module.register_state_dict_pre_hook(self._before_state_dict))  # type: ignore[no-untyped-call]
        self.watching = True
        for bucket in reversed(self._buckets):
            self._pull(bucket)

    def _before_state_dict(self, *_: Any) -> None:
        self.wait()

    def _take_gradient(self, parameter: Tensor) -> None:
        if not self._synchronizes:
            return
        slot = self._slots[id(parameter)]
        if slot.bucket.is_pushed or slot.is_ready:
            raise ArgumentError(
                f"{slot.name} has a second gradient in one step: call step() after each backward, or put all but the "
                "last into no_sync()"
            )
        slot.take_gradient()
        if slot.bucket.is_ready:
            self._push(slot.bucket)
            slot.bucket.is_pushed = True
            if self._pulls_early:
                self._pull(slot.bucket, early=True)

    def _push(self, bucket: ServedBucket) -> None:
        """Starts a bucket's push; of the step that is under way, in backward, or has just ended."""
        bucket.wait_for_pushes()
        has_gradient = bucket.finish_gradient()
        number = bucket.begin_push()
        for place, piece in enumerate(bucket.pieces):
            tensors: list[Tensor] = []
            fields = self._push_fields(piece_key(bucket.number, place), number, bucket.versions.get(place))
            if has_gradient:
                gradient = bucket.gradient[piece.start : piece.stop]
                if self._compression is not None:
                    fields["sparse"] = True
                    tensors = list(self._compression.compress(fields["key"], gradient, self._wire))
                else:
                    tensors = [gradient.to(self._wire)]
            lane = PUSHES[(bucket.number + place) % len(PUSHES)]
            bucket.pushes[place] = self._submit(piece.server, lane, (fields, tensors))

    def _push_fields(self, key: str, number: int, version: int | None) -> dict[str, Any]:
        fields: dict[str, Any] = {"kind": "push", "key": key, "number": number}
        if version is not None:
            fields["version"] = version
        if self.learning_rate is not None:
            fields["lr"] = self.learning_rate
        return fields

    def _pull(self, bucket: ServedBucket, *, early: bool = False) -> None:
        """Asks for a bucket, as it is after the step that has ended, or that will end next."""
        number, target = self.step_number + early, bucket.begin_pull(apart=early)
        for place, piece in enumerate(bucket.pieces):
            lane, pushed = PULLS[(bucket.number + place) % len(PULLS)], bucket.pushes.get(place)
            bucket.pulls[place] = self._lanes[piece.server][lane].submit(
                self._pull_piece, bucket, place, lane, number, target[piece.start : piece.stop], pushed
            )

    def _pull_piece(
        self, bucket: ServedBucket, place: int, lane: int, number: int, target: Tensor, pushed: Future[Message] | None
    ) -> None:
        if pushed is not None:
            pushed.result()
        key, server = piece_key(bucket.number, place), bucket.pieces[place].server
        request: Message = ({"kind": "pull", "key": key, "number": number, "dtype": self._dtype}, [])
        link = self._links[server]
        fields, tensors = link.request(lane, request, into=[target])
        while fields.get("wanted"):
            self._bring_values(server, lane)
            fields, tensors = link.request(lane, request, into=[target])
        if tensors[0].data_ptr() != target.data_ptr():
            target.copy_(tensors[0])
        bucket.versions[place] = fields["version"]

    def _bring_values(self, server: int, lane: int) -> None:
        for bucket in self._buckets:
            for place, piece in enumerate(bucket.pieces):
                if piece.server == server:
                    values = self._first_values[bucket.number][piece.start : piece.stop]
                    request: Message = ({"kind": "put", "key": piece_key(bucket.number, place)}, [values])
                    self._links[server].request(lane, request)

    def _submit(self, server: int, lane: int, message: Message) -> Future[Message]:
        return self._lanes[server][lane].submit(self._links[server].request, lane, message)

    def _ways(self) -> Iterator[tuple[Link, list[ThreadPoolExecutor]]]:
        return zip(self._links, self._lanes, strict=True)

    @property
    def _dtype(self) -> str:
        return str(self._wire).removeprefix("torch.")


def _trained(module: nn.Module, has_tables: bool) -> list[tuple[str, nn.Parameter]]:
    """The parameters that servers keep."""
    if has_tables and not any(parameter.requires_grad for parameter in module.parameters()):
        return []
    trained = trained_parameters(module)
    for name, parameter in trained:
        if parameter.dtype != torch.float32:
            raise UnsupportedError(f"{name} is of {parameter.dtype}: servers keep float32")
        if not parameter.is_cpu:
            raise UnsupportedError(f"{name} is on {parameter.device}: servers take parameters of the CPU")
    return trained


def _as_on_wire(job: Mapping[str, Any]) -> Any:
    """The job as servers compare it: tuples are lists there."""
    return json.loads(json.dumps(job))
