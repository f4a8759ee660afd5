"""Type stubs of the native layer: memory addresses as arguments, `weft.errors` as exceptions."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

__version__: str

__all__ = [
    "AboveStandardStreams",
    "AdamUpdate",
    "ControlBlock",
    "Counters",
    "Cancellation",
    "DlpackTensor",
    "Endpoint",
    "Explanation",
    "Failure",
    "Group",
    "HostDomains",
    "HostPart",
    "MemoryStore",
    "UserSchedule",
    "Registration",
    "Operation",
    "Request",
    "Steps",
    "Symmetric",
    "SymmetricPart",
    "TcpStore",
    "Timed",
    "Work",
    "__version__",
    "algorithms",
    "checksum",
    "ciphers",
    "domains",
    "element_types",
    "fail_meeting",
    "family",
    "flight_records",
    "named_addresses",
    "operations",
    "plan",
    "price",
    "rdma_ports",
    "sgd_update",
    "simulate",
    "try_device_memory",
    "untuned",
    "verify",
    "wait_for_word",
    "wire_formats",
]

@final
class AboveStandardStreams:
    """A `with` block in which opened files get no descriptor from 0 to 2.

    For sockets and files of programs that may run with closed standard streams: printed text would
    be written into them.
    """

    def __new__(cls) -> AboveStandardStreams: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *raised: object) -> None: ...

def algorithms() -> str:
    """All algorithms, as JSON."""

def element_types() -> list[tuple[str, int]]:
    """The element types of reductions, and their lengths in bytes."""

def checksum(address: int, count: int) -> int:
    """The XXH3 hash, 64 bits, of the bytes at an address."""

def ciphers() -> list[str]:
    """The ciphers that links can have, beginning with the faster one on this machine."""

def named_addresses(interface: str) -> list[tuple[int, str, str]]:
    """The addresses that ranks publish with this value of `WEFT_INTERFACE`.

    For each the number of its network, the name of its interface, and the address.
    """

def rdma_ports() -> list[tuple[str, str, bool]]:
    """The ports of this machine's RDMA devices: name, description, whether it can be used.

    If there are none, raises an error with the reason.
    """

def try_device_memory(name: str, pointer: int, nbytes: int, file: int, offset: int) -> str | None:
    """Why an RDMA device refuses memory of another device, such as a GPU; None if it accepts it.

    The memory is at `offset` in a file (dma-buf).
    """

def wait_for_word(address: int, value: int, timeout: float) -> bool:
    """Waits until a 32-bit word of memory has reached a value, modulo 2**32.

    Returns False if it has not after `timeout` seconds. Calls no driver and takes no lock; the
    caller keeps the word.
    """

def wire_formats() -> list[str]:
    """The names of all wire formats."""

def operations() -> list[str]:
    """The names of all reductions except `weft.PremulSum`."""

def plan(request: str) -> str:
    """An algorithm's schedule for a group, and the verifier's report on it; JSON in and out."""

def simulate(request: str) -> str:
    """Times of calls on a machine that need not exist, by algorithm and size; JSON in and out."""

def verify(request: str) -> str:
    """The verifier's report on schedules in text form; JSON in and out."""

def domains() -> HostDomains:
    """The domains that the operating system reports, and those that this process runs in."""

@final
class AdamUpdate:
    """An update by Adam of float32 memory, in blocks that stay in the cache.

    A step has ten numbers: whether products are added without being rounded before; 1 or -1; the
    factor of the parameters; that of what is added to the gradients, or None; the weight of the
    gradients; that of the averages of squares, that of squares in them; the divisor of roots, and
    what is added to them; the step size, negative. Elements are the number of their step, the
    addresses of parameters, gradients, averages, averages of squares, and how many there are.
    """

    def __new__(
        cls,
        steps: Sequence[tuple[bool, float, float, float | None, float, float, float, float, float, float]],
        elements: Sequence[tuple[int, int, int, int, int, int]],
        roots: int,
        block: int,
    ) -> AdamUpdate:
        """Blocks have `block` elements; `roots` is the address of room for one."""

    def advance(self) -> int:
        """Ends the block before, by the roots at `roots`, and begins the next one.

        Returns how many squares it has left there, of which the caller takes the roots; 0 after the
        last block.
        """

def sgd_update(
    step: tuple[bool, float, float | None, float, float, bool, float],
    elements: Sequence[tuple[int, int, int, int]],
) -> None:
    """Updates float32 memory by SGD with momentum.

    The step has seven numbers: whether products are added without being rounded before; 1 or -1;
    the factor of what is added to the gradients, or None; the momentum; the weight of the gradients
    in it; whether it is Nesterov's; the step size, negative. Elements are the addresses of
    parameters, gradients, momenta, and how many there are.
    """

@final
class HostDomains:
    """The domains that the operating system reports."""

    @property
    def caches(self) -> list[list[int]]:
        """The cores of each last-level cache."""
    @property
    def nodes(self) -> list[list[int]]:
        """The cores of each NUMA node."""
    @property
    def cache(self) -> int | None:
        """The cache of this process, by its lowest core.

        None if it may run under several.
        """
    @property
    def node(self) -> int | None:
        """The NUMA node of this process; None if it may run in several."""

def family(request: str) -> str:
    """The names of the algorithms that a group can use; JSON in and out."""

def price(request: str) -> str:
    """Times of calls on machines, by the simulator; JSON in and out."""

def untuned(
    collective: str, ranks_per_host: Sequence[int], symmetric: bool, round_trip_s: float
) -> list[tuple[int | None, list[str]]]:
    """The algorithms that a group without a profile tries, best first, by size of the message.

    None is the limit of the last ones.
    """

@final
class ControlBlock:
    """The page that the measuring processes of one library share.

    Start barrier and times, for `weft bench`.
    """

    SAMPLES_MAX: int
    """The most calls that can be timed in one turn."""

    def __new__(cls, path: str, rank: int, ranks: int, spin: bool) -> ControlBlock: ...
    def time(self, timed: Timed, pointer: int, nbytes: int, pattern: bytes, calls: int) -> list[float]:
        """The slowest rank's seconds of each call.

        Before each, the memory is filled with `pattern`.
        """
    def cost(self, timed: Timed, calls: int) -> tuple[float, float, float]:
        """The cost of consecutive calls, in seconds.

        Elapsed time; time of this process's threads; time of the machine's cores.
        """
    def round_trip(self, count: int) -> float:
        """Seconds of a round trip between ranks 0 and 1 over bare flags, the mean of `count`."""

@final
class Timed:
    """An operation that can be timed; `hold` owns its memory."""

    @staticmethod
    def group(
        group: Group, request: Request, hold: Any, registered: Sequence[tuple[int, int]] = ..., **how: Any
    ) -> Timed:
        """A blocking collective of a group.

        Memory in `registered`, pairs of address and length, is registered for each call.
        """
    @staticmethod
    def ping_pong(group: Group, partner: int | None, source: int, target: int, nbytes: int, hold: Any) -> Timed:
        """A message to another rank of a group and one back; nothing without a partner."""
    @staticmethod
    def library(function: int, source: int, target: int, count: int, hold: Any) -> Timed:
        """A C function `int (*)(const void *from, void *to, size_t elements)` at this address."""
    @staticmethod
    def callable(function: Callable[[], object]) -> Timed:
        """A Python function without arguments, timed with the cost of calling it."""
    @staticmethod
    def copy(source: int, target: int, nbytes: int, hold: Any) -> Timed:
        """Copying within this process."""
    @staticmethod
    def add(vectors: Sequence[int], dtype: str, elements: int, hold: Any) -> Timed:
        """Adding vectors of this process, the sum into each."""
    @staticmethod
    def prototype(path: str, rank: int, dtype: str, elements: int) -> Timed:
        """The bare all-reduce of two ranks over memory in a file."""
    @staticmethod
    def streams(sockets: Sequence[int], rank: int, pointer: int, dtype: str, elements: int, hold: Any) -> Timed:
        """The bare all-reduce over TCP: a connected socket to every other rank, in their order."""
    @staticmethod
    def round_trip(socket: int | None, first: bool, polling: bool) -> Timed:
        """A byte over a connected socket and one back; nothing without a socket."""
    @staticmethod
    def one_stream(socket: int | None, sends: bool, uncounted: int, counted: int) -> Timed:
        """Bytes over a connected socket in one direction; nothing without a socket."""
    @property
    def pointer(self) -> int:
        """The address of the prototype's buffer; 0 for all other operations."""

@final
class Counters:
    """The counters of a group, which stay valid after it is closed."""

    def totals(self) -> list[tuple[str, int, int, float]]:
        """For each kind of operation: (name, calls that have ended, bytes, seconds)."""
    @property
    def in_flight(self) -> int:
        """The number of operations that have not ended."""

@final
class Cancellation:
    """Ends a meeting of ranks from another thread."""

    def __new__(cls) -> Cancellation: ...
    def cancel(self) -> None:
        """Makes the meetings with this object fail with `weft.Aborted`."""

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""

@final
class Endpoint:
    """A participant: a pool of memory and the connections to other participants."""

    def __new__(
        cls,
        *,
        transport: str,
        pool_bytes: int,
        peer_timeout: float,
        interface: str | None = None,
        tcp_congestion: str = "auto",
        tcp_connections: int | None = None,
        tcp_resume: str = "auto",
        rdma_devices: str | None = None,
        rdma_gid_index: int | None = None,
        rdma_traffic_class: int | None = None,
        registration: str = "pool",
        encrypt: str = "0",
        require_shared_memory: bool = False,
        route_to: str | None = None,
        flight_dir: str | PathLike[str] | None = None,
        flight_signal: int | None = None,
    ) -> Endpoint: ...
    def pool_bytes(self) -> tuple[int, int, int]:
        """The bytes of the pool that are in use, those of them in quarantine, and the bound."""
    def finish(self) -> None:
        """Waits until all operations in its groups have ended, as `Group.finish` does."""
    def close(self) -> None:
        """Closes every connection, and waits for calls about failures."""

def flight_records() -> list[str]:
    """The flight records of this process's endpoints, as JSON in the layout of the files."""

def fail_meeting(store: Any, prefix: str, rank: int, size: int, reason: str, cancel: Cancellation) -> None:
    """Ends a meeting that this rank cannot join, and reports the reason to the other ranks."""

@final
class MemoryStore:
    """A store within one process."""

    def __new__(cls) -> MemoryStore: ...
    def set(self, key: str, value: bytes) -> None:
        """Sets a key."""
    def get(self, key: str, timeout: float) -> bytes | None:
        """The value of a key; None if it is not set within `timeout` seconds."""

@final
class TcpStore:
    """A store that one process serves to others over TCP.

    With a secret of at least 16 bytes, a process that has it is accepted, and messages are
    encrypted. With `tls`, the PEM files of a certificate, its key and the CA's certificates, a
    process with a certificate of the CA is accepted. Without either, only loopback addresses are
    used, unless `insecure`.
    """

    def __new__(
        cls,
        host: str,
        port: int,
        serve: bool,
        timeout: float,
        cancel: Cancellation,
        secret: bytes | None = None,
        insecure: bool = False,
        tls: Sequence[str] | None = None,
        on_delay: Callable[[str], object] | None = None,
        tls_name: str | None = None,
    ) -> TcpStore:
        """Connects, and serves if `serve` is set.

        The server's certificate must be for `tls_name`, or else for `host`.

        If the host's name or address is not known for a second, `on_delay` is called with the
        reason; the attempts continue until `timeout`.
        """
    @property
    def listens_everywhere(self) -> bool:
        """Whether this process serves it at all addresses, because `host` is not one of its own."""
    def status(self, timeout: float, cancel: Cancellation) -> str:
        """The status of the job whose ranks meet here, as JSON."""
    def set(self, key: str, value: bytes) -> None:
        """Sets a key."""
    def get(self, key: str, timeout: float) -> bytes | None:
        """The value of a key; None if it is not set within `timeout` seconds."""

@final
class Explanation:
    """The explanation of the choice for a call."""

    @property
    def algorithm(self) -> str:
        """The algorithm's name, with its parts."""
    @property
    def asked_tile_bytes(self) -> int | None:
        """The requested tile size in bytes; None for the largest that fits."""
    @property
    def asked_tiles_in_flight(self) -> int | None:
        """The requested number of concurrent tiles; None for as many as possible."""
    @property
    def tile_bytes(self) -> int:
        """Bytes of the largest chunk in one tile."""
    @property
    def tiles(self) -> int:
        """The number of tiles."""
    @property
    def tiles_in_flight(self) -> int:
        """The most concurrent tiles."""
    @property
    def hash(self) -> int:
        """The plan's hash."""
    @property
    def schedule(self) -> str | None:
        """All ranks' programs in text form, for a user schedule; else None."""
    @property
    def why(self) -> list[str]:
        """The reasons for or against each candidate."""

@final
class UserSchedule:
    """A user schedule of a group."""

    @property
    def name(self) -> str:
        """The name in calls."""
    @property
    def collective(self) -> str:
        """The collective."""
    @property
    def root(self) -> int | None:
        """The root; None if the collective has none."""
    @property
    def symmetric(self) -> bool:
        """Whether it needs symmetric memory."""
    @property
    def reproducible(self) -> bool:
        """Whether it combines each element's contributions in one step, in the order of ranks."""
    @property
    def text(self) -> str:
        """All ranks' programs in text form."""

@final
class Operation:
    """A collective with its root, element type and reduction, which calls of one kind share."""

    def __new__(cls, collective: str, dtype: str, itemsize: int, op: object | None = None, root: int = 0) -> Operation:
        """`dtype` is the name of the elements' type, `itemsize` their length in bytes.

        Types that weft cannot reduce are moved as bytes. `op` is one of `operations`, or has
        a `factor`, as `weft.PremulSum` has.
        """

@final
class Request:
    """A call of a collective, with the addresses of its memory."""

    def __new__(
        cls,
        operation: Operation,
        counts: int | Sequence[int] | tuple[Sequence[int], Sequence[int]],
        source: int | None = None,
        target: int | None = None,
    ) -> Request:
        """Without `source`, a collective that works in place reads its target."""
    def stated(self) -> dict[str, Any]:
        """Its fields by name; `counts` are elements of `dtype`."""

@final
class Failure:
    """The failure of a group, once it breaks."""

    def error(self) -> BaseException | None:
        """The exception; None while the group works."""

@final
class Group:
    """Ranks that communicate with each other."""

    @staticmethod
    def create(
        *,
        endpoint: Endpoint,
        store: Any,
        rank: int,
        size: int,
        name: str,
        prefix: str,
        cancel: Cancellation,
        global_ranks: list[int] | None = None,
        **options: Any,
    ) -> Group:
        """Meets the other ranks through the store."""
    @property
    def rank(self) -> int:
        """This process's number in the group."""
    @property
    def size(self) -> int:
        """The number of ranks."""
    @property
    def identity(self) -> int:
        """A number that identifies the group, the same on all ranks."""
    @property
    def name(self) -> str:
        """The group's name in error messages."""
    def hosts(self) -> list[int]:
        """For every rank, the lowest rank that shares memory with it."""
    def domains(self) -> list[list[int]]:
        """Levels of domains inside hosts, innermost first.

        For every rank, the lowest rank of its domain.
        """
    def host_names(self) -> list[str]:
        """For every rank, the name of its host."""
    def transport(self, rank: int) -> str | None:
        """The transport to another rank: `shm`, `rdma`, `tcp` or `loopback`; None for this rank."""
    def unshared(self) -> list[tuple[int, int, str, bool]]:
        """Pairs of ranks on one machine that share no memory.

        Rows of (rank that tried, the other rank, why it failed, whether they are separated
        intentionally, such as in containers).
        """
    def cipher(self, rank: int) -> str | None:
        """The cipher between this rank and another: `aes-gcm` or `chacha20-poly1305`.

        None if they share memory, or links are not encrypted.
        """
    def issue(self, request: Request, hold: object, background: bool, timeout: float | None = None, **how: Any) -> Work:
        """Starts a collective; `how` are the other keywords of `weft.api.collectives.CallKeywords`.

        `hold`, which owns the memory, is kept until it has ended. Without `background`, the caller
        must wait for it.
        """
    def run(self, request: Request, hold: object, timeout: float | None = None, **how: Any) -> None:
        """Executes a collective; the arguments are those of `issue`."""
    def issue_in_place(
        self, operation: Operation, count: int, address: int, hold: object, timeout: float | None = None, **how: Any
    ) -> Work:
        """`issue`, in the background, of an operation in place on elements at an address."""
    def run_in_place(
        self, operation: Operation, count: int, address: int, hold: object, timeout: float | None = None, **how: Any
    ) -> None:
        """`run` of an operation in place on elements at an address."""
    def run_plain(self, collective: str, root: int, op: object, source: object | None, target: object | None) -> bool:
        """Executes a collective on plain arrays, if that is possible, and returns whether it did.

        Without `source` it works in place, and without `target` too it has no data.
        """
    def send_plain(self, x: object, to: object, tag: object) -> bool:
        """Sends a plain array to a rank, if that is possible, and returns whether it did."""
    def receive_plain(self, x: object, source: object | None, tag: object) -> int | None:
        """Receives into a plain array, if that is possible, and returns the sender; else None."""
    def send(
        self,
        to: int,
        tag: int,
        pointer: int,
        nbytes: int,
        timeout: float | None = None,
        hold: object = None,
        background: bool = True,
    ) -> Work:
        """Starts sending bytes to a rank. Without `background`, the caller must wait for it."""
    def receive(
        self,
        source: int | None,
        tag: int,
        pointer: int,
        nbytes: int,
        timeout: float | None = None,
        hold: object = None,
        background: bool = True,
    ) -> Work:
        """Starts receiving bytes from a rank, or from any rank.

        Without `background`, the caller must wait for it.
        """
    def split(
        self,
        ranks: Sequence[int],
        name: str,
        *,
        global_ranks: Sequence[int] | None = None,
        waits: bool = False,
        **options: Any,
    ) -> Group | None:
        """A group of some ranks, in this order; None on other ranks.

        `global_ranks` are their numbers in the world, for messages. With `waits`, returns when the
        members next to this one have made it.
        """
    def shrink(self, name: str, timeout: float | None = None) -> Group:
        """A group of the surviving ranks. Every one of them calls it."""
    def shrink_with_vote(self, name: str, vote: bool, timeout: float) -> tuple[Group, bool]:
        """A group of the surviving ranks, and whether all of them have voted yes."""
    def ranks_of(self, other: Group) -> list[int]:
        """The ranks in this group of another group's members."""
    def explain(self, collective: str, nbytes: int, dtype: str, symmetric: bool) -> Explanation:
        """Explains the choice for a call: `nbytes` of the whole message, root 0."""
    def choices(self, collective: str) -> list[tuple[int | None, str, str]]:
        """The choices for a collective, by size: (up to bytes, algorithm, origin of the choice)."""
    def pairs(self) -> dict[str, int]:
        """The number of pairs of ranks that each transport connects."""
    def on_failure(self, callback: Callable[[BaseException], object]) -> None:
        """Calls `callback` with the exception when the group breaks, on a thread of its own."""
    def failure(self) -> Failure:
        """The group's failure from now on."""
    def counters(self) -> Counters:
        """The group's counters, which count from the first call of this method on."""
    def traffic(self) -> list[tuple[int, str, str, int, int, int, int]]:
        """The traffic over the links to other ranks, for all groups, where the network counts it.

        Rows of (endpoint, host, transport, bytes sent, bytes received, packets retransmitted,
        connections made anew).
        """
    def add_schedule(self, name: str, text: str) -> None:
        """Adds schedules in text form, which calls can then name as their algorithm."""
    def schedules(self) -> list[UserSchedule]:
        """The group's user schedules."""
    def symmetric(self, nbytes: int, signals: int = 0, name: str = "") -> Symmetric:
        """Makes memory that ranks of this host access directly, and all by one-sided operations."""
    def shared(self, nbytes: int, holder: int) -> Symmetric:
        """Makes memory that all ranks of a host share: the part of rank `holder`, see `at`."""
    def register(self, pointer: int, nbytes: int, hold: object) -> Registration:
        """Registers memory, which `hold` keeps alive, so that adapters read it in place."""
    def register_device(self, pointer: int, nbytes: int, file: int, offset: int, hold: object) -> Registration:
        """Registers memory of a device by a file, which is open meanwhile, as `register` does."""
    def send_from_device(
        self,
        to: int,
        tag: int,
        pointer: int,
        nbytes: int,
        timeout: float | None = None,
        hold: object = None,
        background: bool = True,
    ) -> Work | None:
        """As `send`, of registered memory of a device.

        Returns None, and sends nothing, if the link cannot read it.
        """
    def reads_device(self, to: int, pointer: int, nbytes: int) -> bool:
        """Whether `send_from_device` would send now."""
    def trace_stages(self, tracing: bool) -> None:
        """Starts or stops recording the stages of tiles."""
    def take_stages(self) -> list[tuple[str, int, int, int, int, int]]:
        """Returns the recorded stages, and clears them.

        Rows of (stage, operation, tile, bytes, begin and end in ns of the monotonic clock).
        """
    def registration_refusal(self) -> str | None:
        """The reason if memory was copied instead of registered while it was sent."""
    @property
    def staged_bytes(self) -> int:
        """The number of bytes that were copied into the pool before they were sent."""
    @property
    def symmetric_operations(self) -> int:
        """The number of operations that worked directly on symmetric memory."""
    @property
    def steps_helped(self) -> int:
        """The number of steps that this rank has executed for others."""
    def abort(self, reason: str) -> None:
        """Ends every pending operation on all ranks."""
    def abort_as(self, other: Group) -> None:
        """Ends every pending operation on all ranks with the error of another group of them.

        If that is broken.
        """
    def fail(self, reason: str) -> None:
        """Breaks the group on all ranks. Operations that all ranks have issued continue."""
    def finish(self) -> bool:
        """Waits until all operations have ended, with or without an error.

        Receives that match no message yet are left out. Returns whether the group is unbroken.
        """
    def count_step(self) -> None:
        """Counts a step of training, which `weft top` shows."""
    def close(self) -> None:
        """Leaves the group."""

@final
class Registration:
    """Memory that links read in place."""

    def deregister(self) -> None:
        """Ends the registration. Idempotent."""
    def transports(self) -> list[str]:
        """The transports whose links read the memory in place only because it is registered."""

@final
class Work:
    """The handle of an operation."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the operation. Returns False if it has not ended after `timeout` seconds.

        Raises the error of an operation that failed.
        """
    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""
    def value(self) -> int:
        """The previous value of the cell, for an atomic operation that has ended."""
    def source(self) -> int:
        """The sender, for a receive that has ended."""

@final
class HostPart:
    """The collectives of an operation on memory of a device, and whether they have ended."""

    def __new__(cls, collectives: int) -> HostPart: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all have ended. Returns False if they have not after `timeout` seconds."""
    def is_set(self) -> bool:
        """Whether all have ended."""
    def error(self) -> BaseException | None:
        """The first error of a collective."""
    @property
    def skipped(self) -> bool:
        """Whether one was not begun, because the steps were stopped before."""

@final
class Steps:
    """The steps of a group on memory of devices, in one order: collectives, and steps of Python."""

    def __new__(cls, most: int) -> Steps:
        """At most `most` are under way."""
    def take_room(self) -> None:
        """Waits until one more step may be under way."""
    def give_room(self) -> None:
        """Gives back the room of a step of Python, or of one that is not added."""
    def put_collective(
        self,
        group: Group,
        request: Request,
        device: int,
        arrival: tuple[int, int],
        release: tuple[int, int],
        part: HostPart,
        timeout: float | None = None,
        **keywords: Any,
    ) -> None:
        """Adds a collective, for which there is room, and which gives that back.

        It begins when the word `arrival`, an address and a value, has reached that; at its end the
        word `release` is set. The caller keeps all memory until then.
        """
    def put(self, step: object) -> None:
        """Adds a step of Python."""
    def next(self) -> Any:
        """Begins collectives in their order, without the interpreter lock.

        Returns the next step of Python; None at the end of the steps, once they are closed.
        """
    def close(self) -> None:
        """Lets `next` return None after the steps that have been added."""
    def stop(self) -> None:
        """Begins no further collective."""
    def failure(self) -> BaseException | None:
        """The first failure of a collective."""
    def report(self) -> int | BaseException | None:
        """Waits for something to do.

        Returns the number of a device that makes the host wait, at which somebody should look, or
        the first failure; None after `close_reports`.
        """
    def close_reports(self) -> None:
        """Lets `report` return None after the last report."""

@final
class Symmetric:
    """Memory that the ranks of one host access directly; NumPy reads it as an array of bytes."""

    @property
    def nbytes(self) -> int:
        """Its length."""
    @property
    def name(self) -> str:
        """The name in error messages."""
    @property
    def signals(self) -> tuple[int, int]:
        """The number of signals, and their offset in each part, in bytes."""
    def put(
        self,
        peer: int,
        offset: int,
        pointer: int,
        nbytes: int,
        hold: object,
        signal: tuple[int, str, int] | None = None,
        timeout: float | None = None,
        background: bool = False,
    ) -> Work:
        """Starts writing bytes to a rank's part, and then changing a signal there.

        `signal` is (number, `set` or `add`, value). Without `background`, the caller must wait.
        """
    def put_from_device(
        self,
        peer: int,
        offset: int,
        pointer: int,
        nbytes: int,
        hold: object,
        signal: tuple[int, str, int] | None = None,
        timeout: float | None = None,
        background: bool = False,
    ) -> Work | None:
        """As `put`, from registered memory of a device.

        Returns None, and writes nothing, if the link cannot read it.
        """
    def get(
        self,
        peer: int,
        offset: int,
        pointer: int,
        nbytes: int,
        hold: object,
        timeout: float | None = None,
        background: bool = False,
    ) -> Work:
        """Starts reading bytes from a rank's part."""
    def fetch_add(
        self, peer: int, offset: int, value: int, timeout: float | None = None, background: bool = False
    ) -> Work:
        """Starts adding to a cell of a rank, by its offset in bytes.

        The handle returns its previous value.
        """
    def compare_swap(
        self, peer: int, offset: int, expected: int, new: int, timeout: float | None = None, background: bool = False
    ) -> Work:
        """As `fetch_add`, but stores `new` if the cell has the expected value."""
    def signal(
        self, peer: int, signal: tuple[int, str, int], timeout: float | None = None, background: bool = False
    ) -> Work:
        """Starts changing a signal of a rank."""
    def wait_signal(
        self, signal: int, compare: str, value: int, timeout: float | None = None, background: bool = False
    ) -> Work:
        """Starts waiting until a signal of this rank compares with `value` as `compare` says."""
    def signal_value(self, signal: int) -> int:
        """The current value of a signal of this rank."""
    def fence(self) -> None:
        """Orders this rank's earlier writes to each rank before its later ones."""
    def quiet(self, timeout: float | None = None, background: bool = False) -> Work:
        """Starts waiting until all writes of this rank are complete."""
    def at(self, peer: int) -> SymmetricPart | None:
        """A rank's part if it is mapped here: data and signals."""
    def free(self) -> None:
        """Frees it. Arrays in it stay readable here."""
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class SymmetricPart:
    """A mapped part of a rank's symmetric memory; NumPy reads it as an array of bytes."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class DlpackTensor:
    """The tensor in a DLPack capsule, whose memory this keeps alive."""

    def __new__(cls, capsule: object) -> DlpackTensor: ...
    @property
    def pointer(self) -> int:
        """The address of the first element."""
    @property
    def dtype(self) -> tuple[int, int, int]:
        """DLPack's type code, bits and lanes."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in elements."""
    @property
    def read_only(self) -> bool:
        """Whether the memory must not be written, or the producer cannot say that it may."""
    @property
    def device_type(self) -> int:
        """DLPack's number for the device; 1 is the CPU."""
