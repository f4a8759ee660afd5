"""A worker of a parameter server: pushes gradients in backward, pulls parameters for forward.

[Note: A worker's step] Each bucket's gradient is pushed when backward has made it; `step` pushes
the rest, and requests all buckets in the order of registration, so that the first layers arrive
first. A module waits for its own parameters when forward first reads them. Pushes and pulls have
separate lanes, so both directions of a connection are used at the same time. A server answers a
pull when it has applied the worker's own push, and, with bounded staleness, when no worker is too
far behind.

[Note: Early pulls] With staleness 0, a push determines the next parameters. So the worker requests
a bucket as soon as backward has pushed it, and receives it while it pushes others. Servers on other
hosts then send and receive at the same time, which halves a step that is bound by the network.
Backward may still read the parameters, so they change in `step` only. Until then the new ones are
kept in the memory of the gradient, which the server has acknowledged by then.
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
from weft.errors import ArgumentError, UnsupportedError
from weft.settings import Options
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
    """Trains a model whose parameters are stored by parameter servers.

    Calls go to `module`. `loss.backward()` pushes gradients, and `step()` ends a step. The servers
    have the optimizer, so the worker has none. Outside of a step, reading a parameter waits for it.

    Attributes:
        module: The model that was given. Its parameters become parts of buckets.
        plan: The assignment of parameters to servers.
        learning_rate: Replaces the optimizer's learning rate from the next push on, unless None.

    Examples:
        >>> worker = Worker(net, ServerOptimizer("sgd", lr=0.1), [server.address], name="a")
        >>> worker(inputs).square().mean().backward(); worker.step()  # one training step
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
            module: The model: `float32` parameters on the CPU, of the same shapes on all workers.
            optimizer: The servers' optimizer; the same for all workers.
            servers: The servers' addresses, `host:port`, in the same order for all workers. `A+B`
                is a server at A with a second server at B, which may take over.
            name: The worker's name; a random one by default. With staleness 0, contributions are
                added in the order of the names.
            staleness: How many steps a worker may be ahead of the slowest. 0: all workers step
                together, by the average gradient. n: at most n, and each gradient is applied when
                it arrives. None: any number. The same for all workers.
            workers: The number of workers that must have joined before the job begins. The same for
                all workers.
            wire_format: `full`, `fp16` or `bf16`: the format of gradients and parameters in
                messages.
            compression: Pushes only the `Largest` gradients.
            correct_staleness: Whether servers divide the learning rate of a push by its staleness.
                The same for all workers.
            brings_values: Whether servers may ask this worker for the first values. If several
                workers may be asked, different servers may ask different ones: give those the same
                values.
            bucket_bytes: Neighbouring parameters are sent together up to this many bytes. The same
                for all workers.
            local: The server of this process among `servers`, for the layout `localps`.
            server_timeout: Seconds that a server may be unreachable, for instance while it is
                started again.
            answer_timeout: Seconds that an answer may take, for instance while the server waits for
                other workers.
            limits: Limits of messages from servers.
            options: See `weft.settings.Options`; the same as the servers'.

        Raises:
            weft.ArgumentError: An option is not allowed, or the model is a `ServedEmbedding`.
            weft.UnsupportedError: A parameter is not `float32` or not on the CPU.
            weft.AuthError: The servers have another secret or certificate.
            StalePlan: The job's other workers have another model or other options.
            ServerLost: No server answers at an address.

        Examples:
            >>> worker = Worker(net, ServerOptimizer("adamw", lr=1e-3), [server.address])
            >>> worker.close()  # leaves; the servers keep the parameters
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
        self._tables = _tables(module)
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
        """Calls the model with these arguments."""
        for slot in self._first_use.at_root:
            self.use(slot.parameter)
        return self.module(*arguments, **keywords)

    def step(self) -> None:
        """Ends a step: pushes the remaining gradients, and requests new parameters.

        Returns immediately; modules wait for their parameters when they are used.

        Raises:
            ServerLost: A server could not be reached during an earlier push.
            weft.Timeout: A server did not answer an earlier push in time.
            weft.Error: A push of an earlier step has failed for another reason.
            weft.UnsupportedError: A parameter that was frozen when the worker was made, so that no
                server keeps it, is trained.

        Examples:
            >>> loss = worker(inputs).square().mean(); loss.backward()
            >>> worker.step()
        """
        if any(requirements(self._frozen)):
            raise UnsupportedError(
                f"{', '.join(self._unfrozen())}: unfrozen after the worker was made, so no server keeps it. Unfreeze "
                "parameters before making the worker, or make a worker and servers for another job"
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
        """Accumulates the gradients of backward passes in the block.

        The next backward pass outside of the block pushes their sum.

        Examples:
            >>> with worker.no_sync():
            ...     worker(inputs).square().mean().backward()  # pushes nothing
            >>> worker(inputs).square().mean().backward(); worker.step()  # pushes the sum
        """
        before, self._synchronizes = self._synchronizes, False
        try:
            yield
        finally:
            self._synchronizes = before

    def wait(self) -> None:
        """Waits for all parameters that have been requested.

        Raises:
            ServerLost: A server cannot be reached.
            weft.Timeout: A server did not answer in time.
            weft.Error: A push or a pull has failed for another reason.

        Examples:
            >>> worker.step(); worker.wait()
            >>> values = worker.module.state_dict()  # those after the step
        """
        for bucket in self._buckets:
            bucket.wait()
        self.watching = False

    def close(self, *, wait: bool = True) -> None:
        """Leaves the servers, which continue without this worker.

        Waits until the servers have acknowledged all pushes.

        Args:
            wait: Whether to wait for the last parameters as well. Without it, some parameters may
                be older than others.

        Raises:
            weft.Error: With `wait`, a push or a pull has failed.

        Examples:
            >>> with Worker(net, ServerOptimizer("sgd", lr=0.1), [server.address]) as worker:
            ...     worker(inputs).square().mean().backward(); worker.step()  # closed at the end
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
        """Removes the hooks from the model, which keeps its parameters."""
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
        """Returns for each server its members, updates, staleness of pushes, and repeated pushes.

        Returns:
            One dictionary per server. `staleness` counts, by worker, pushes by their staleness: the
            number of updates between pull and push.

        Raises:
            ServerLost: A server cannot be reached.

        Examples:
            >>> statistics = worker.statistics()[0]
            >>> assert statistics["repeated"] == 0
        """
        question: Message = ({"kind": "statistics"}, [])
        futures = [lanes[PULL].submit(link.request, PULL, question) for link, lanes in self._ways()]
        return [future.result()[0] for future in futures]

    def snapshot(self) -> None:
        """Makes all servers write their shards to their directories now.

        Raises:
            ServerLost: A server cannot be reached.
            ServerError: A server cannot write its shard.

        Examples:
            >>> worker.wait()  # the servers have applied this worker's pushes
            >>> worker.snapshot()
        """
        for future in [
            lanes[PUSH].submit(link.request, PUSH, ({"kind": "snapshot"}, [])) for link, lanes in self._ways()
        ]:
            future.result()

    @property
    def reconnections(self) -> int:
        """The number of times that a connection to a server was made again."""
        return sum(link.reconnections for link in self._links)

    # The interface for `FirstUse`.

    @property
    def slots(self) -> Sequence[Slot]:
        """All trained parameters."""
        return list(self._slots.values())

    def slot_of(self, parameter: Any) -> Slot | None:
        """The slot of a parameter of the model; None for anything else."""
        return self._slots.get(id(parameter))

    def use(self, parameter: Any) -> None:
        """Waits until a parameter has arrived."""
        slot = self._slots.get(id(parameter))
        if slot is not None:
            slot.bucket.wait()

    # Rows.

    def pull_rows(self, table: str, rows: Tensor) -> Tensor:
        """Requests rows of a table, not older than allowed: float32 (rows, width)."""
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

    # Implementation of the above.

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
                f"parameter {slot.name} has a second gradient in one step: call step() after each backward, or put all "
                "but the last into no_sync()"
            )
        slot.take_gradient()
        if slot.bucket.is_ready:
            self._push(slot.bucket)
            slot.bucket.is_pushed = True
            if self._pulls_early:
                self._pull(slot.bucket, early=True)

    def _push(self, bucket: ServedBucket) -> None:
        """Starts a bucket's push, of the present step in backward, or of the one just ended."""
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
        """Requests a bucket as of the step that has ended; `early`, of the step that ends next."""
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
            raise UnsupportedError(f"parameter {name} is {parameter.dtype}: servers support float32 only")
        if not parameter.is_cpu:
            raise UnsupportedError(
                f"parameter {name} is on {parameter.device}: servers support parameters on the CPU only"
            )
    return trained


def _tables(module: nn.Module) -> dict[str, ServedEmbedding]:
    """The tables that servers keep, by the names of their modules."""
    if isinstance(module, ServedEmbedding):
        raise ArgumentError(
            "Worker: the model is a ServedEmbedding, but servers keep a table by the name of its module in a model. "
            "Put it into one, such as torch.nn.Sequential(table)"
        )
    return {name: one for name, one in module.named_modules() if isinstance(one, ServedEmbedding)}


def _as_on_wire(job: Mapping[str, Any]) -> Any:
    """The job in the form that servers compare: tuples are lists there."""
    return json.loads(json.dumps(job))
