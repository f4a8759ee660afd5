"""Type stubs of the native layer: memory addresses as arguments, `weft.errors` as exceptions."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

__version__: str

__all__ = [
    "AboveStandardStreams",
    "ControlBlock",
    "Counters",
    "Cancellation",
    "DlpackTensor",
    "Endpoint",
    "Explanation",
    "Group",
    "HostDomains",
    "MemoryStore",
    "UserSchedule",
    "Registration",
    "Operation",
    "Request",
    "Symmetric",
    "SymmetricPart",
    "TcpStore",
    "Timed",
    "Work",
    "__version__",
    "algorithms",
    "ciphers",
    "domains",
    "element_types",
    "fail_meeting",
    "family",
    "flight_records",
    "operations",
    "plan",
    "price",
    "rdma_ports",
    "simulate",
    "try_device_memory",
    "verify",
    "wire_formats",
]

@final
class AboveStandardStreams:
    """A `with` block in which nothing that is opened gets a descriptor from 0 to 2.

    For sockets and files of programs that may run with closed standard streams: printed text would
    be written into them.
    """

    def __new__(cls) -> AboveStandardStreams: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *raised: object) -> None: ...

def algorithms() -> str:
    """All algorithms, as JSON."""

def element_types() -> list[tuple[str, int]]:
    """The element types that reductions know, and their lengths in bytes."""

def ciphers() -> list[str]:
    """The ciphers that links can have; the one that is faster on this machine comes first."""

def rdma_ports() -> list[tuple[str, str, bool]]:
    """The ports of RDMA devices: name, description, and whether it can be used.

    If there are none, raises an error with the reason.
    """

def try_device_memory(name: str, pointer: int, nbytes: int, file: int, offset: int) -> str | None:
    """Why an RDMA device does not take memory of a GPU; None if it does.

    The memory is at `offset` in a file (dma-buf).
    """

def wire_formats() -> list[str]:
    """The names of the formats in which elements can travel."""

def operations() -> list[str]:
    """The names of the operations that reductions know, besides `weft.PremulSum`."""

def plan(request: str) -> str:
    """An algorithm's schedule for a group, and the verifier's verdict on it; JSON in and out."""

def simulate(request: str) -> str:
    """Times of calls on a machine that need not exist, by algorithm and size; JSON in and out."""

def verify(request: str) -> str:
    """The verifier's verdict on schedules in text form; JSON in and out."""

def domains() -> HostDomains:
    """The parts of this host, and those that this process runs in."""

@final
class HostDomains:
    """The parts of a host as the operating system reports them."""

    @property
    def caches(self) -> list[list[int]]:
        """The cores of each last-level cache."""
    @property
    def nodes(self) -> list[list[int]]:
        """The cores of each NUMA node."""
    @property
    def cache(self) -> int | None:
        """The cache that this process runs under, by its lowest core.

        None if it may run under several.
        """
    @property
    def node(self) -> int | None:
        """The NUMA node that this process runs in; None if it may run in several."""

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
    """The most calls that can be timed at once."""

    def __new__(cls, path: str, rank: int, ranks: int, spin: bool) -> ControlBlock: ...
    def time(self, timed: Timed, pointer: int, nbytes: int, pattern: bytes, calls: int) -> list[float]:
        """The slowest rank's seconds of each call.

        Before each, the memory is filled with `pattern`.
        """
    def cost(self, timed: Timed, calls: int) -> tuple[float, float, float]:
        """The cost in seconds of this many calls, one after the other.

        Elapsed time; user and system time of this process; busy time of the machine's cores.
        """
    def round_trip(self, count: int) -> float:
        """Seconds of a round trip between ranks 0 and 1 over bare flags, the mean of `count`."""

@final
class Timed:
    """An operation that can be timed repeatedly on the same memory, which `hold` owns."""

    @staticmethod
    def group(
        group: Group, request: Request, hold: Any, registered: Sequence[tuple[int, int]] = ..., **how: Any
    ) -> Timed:
        """A blocking collective of a group.

        Memory in `registered`, pairs of address and bytes, is registered for each call.
        """
    @staticmethod
    def ping_pong(group: Group, partner: int | None, source: int, target: int, nbytes: int, hold: Any) -> Timed:
        """A message to another rank and one back, by blocking calls; the lower rank sends first."""
    @staticmethod
    def library(function: int, source: int, target: int, count: int, hold: Any) -> Timed:
        """A C function `int (*)(const void *from, void *to, size_t elements)` at this address."""
    @staticmethod
    def callable(function: Callable[[], object]) -> Timed:
        """A Python function, including the cost of calling it."""
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
        """The bare all-reduce over connected sockets, one to every other rank, in their order."""
    @staticmethod
    def round_trip(socket: int | None, first: bool, polling: bool) -> Timed:
        """A byte over a connected socket and one back; nothing without a socket."""
    @staticmethod
    def one_stream(socket: int | None, sends: bool, uncounted: int, counted: int) -> Timed:
        """Bytes over a connected socket in one direction, timed behind the uncounted ones."""
    @property
    def pointer(self) -> int:
        """Where the prototype's buffer begins; 0 for everything else."""

@final
class Counters:
    """A group's counters; they stay when the group is closed."""

    def totals(self) -> list[tuple[str, int, int, float]]:
        """For each kind of operation: (name, calls that have ended, bytes, seconds)."""
    @property
    def in_flight(self) -> int:
        """The number of operations under way."""

@final
class Cancellation:
    """Ends a meeting of ranks from another thread."""

    def __new__(cls) -> Cancellation: ...
    def cancel(self) -> None:
        """Makes the meetings with this cancellation fail with `weft.Aborted`."""

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
        """Waits until everything that was issued in its groups has ended, as `Group.finish`."""
    def close(self) -> None:
        """Closes every connection."""

def flight_records() -> list[str]:
    """The flight records of this process's endpoints, as JSON in the layout of the files."""

def fail_meeting(store: Any, prefix: str, rank: int, size: int, reason: str, cancel: Cancellation) -> None:
    """Ends the meeting of a rank that cannot join it; the others get the reason."""

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
    ) -> TcpStore:
        """Connects, and serves if `serve` is set.

        If the host's name or address is not known for a second, `on_delay` is called with the
        reason; the attempts continue until `timeout`.
        """
    @property
    def listens_everywhere(self) -> bool:
        """Whether this process serves it at all its addresses, as `host` is not one of them."""
    def status(self, timeout: float, cancel: Cancellation) -> str:
        """The status of the job whose ranks meet here, as JSON."""
    def set(self, key: str, value: bytes) -> None:
        """Sets a key."""
    def get(self, key: str, timeout: float) -> bytes | None:
        """The value of a key; None if it is not set within `timeout` seconds."""

@final
class Explanation:
    """The algorithm and tiling of a call, and the reasons."""

    @property
    def algorithm(self) -> str:
        """The algorithm's name, with its parts."""
    @property
    def asked_tile_bytes(self) -> int | None:
        """The requested tile size in bytes; None for as large as fits."""
    @property
    def asked_tiles_in_flight(self) -> int | None:
        """The requested number of tiles under way; None for as many as possible."""
    @property
    def tile_bytes(self) -> int:
        """The part of the largest chunk that one tile takes, in bytes."""
    @property
    def tiles(self) -> int:
        """The number of tiles."""
    @property
    def tiles_in_flight(self) -> int:
        """How many of them may be under way at once."""
    @property
    def hash(self) -> int:
        """Identifies the plan."""
    @property
    def schedule(self) -> str | None:
        """All ranks' programs in text form, if it is a user schedule."""
    @property
    def why(self) -> list[str]:
        """The candidates, and the reasons for and against them."""

@final
class UserSchedule:
    """A user schedule of a group."""

    @property
    def name(self) -> str:
        """The name that calls use."""
    @property
    def collective(self) -> str:
        """The collective that it carries out."""
    @property
    def root(self) -> int | None:
        """The root that it is for; None without a root."""
    @property
    def symmetric(self) -> bool:
        """Whether it runs on symmetric memory only."""
    @property
    def reproducible(self) -> bool:
        """Whether it combines every element's contributions in one step, in the order of ranks."""
    @property
    def text(self) -> str:
        """All ranks' programs in text form."""

@final
class Operation:
    """A collective with its root, element type and reduction, for calls of one kind."""

    def __new__(cls, collective: str, dtype: str, itemsize: int, op: object | None = None, root: int = 0) -> Operation:
        """`dtype` names the elements' type, of `itemsize` bytes.

        Types that reductions do not support are moved as bytes. `op` is one of `operations`, or has
        a `factor`, as `weft.PremulSum` has.
        """

@final
class Request:
    """One call of a collective: its operation, counts, and the addresses of its memory."""

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
        """A number that no other group has, the same on all ranks."""
    @property
    def name(self) -> str:
        """The name of the group in errors."""
    def hosts(self) -> list[int]:
        """For every rank, the lowest rank that shares memory with it."""
    def domains(self) -> list[list[int]]:
        """Levels of domains inside hosts, innermost first.

        For every rank, the lowest rank of its domain.
        """
    def host_names(self) -> list[str]:
        """For every rank, the name of its host."""
    def transport(self, rank: int) -> str | None:
        """The transport to another rank: `shm`, `rdma`, `tcp` or `loopback`; None for itself."""
    def unshared(self) -> list[tuple[int, int, str, bool]]:
        """Pairs of ranks that run on one machine and share no memory.

        Rows of (rank that tried, the other rank, reason, whether they are apart on purpose, for
        instance in containers).
        """
    def cipher(self, rank: int) -> str | None:
        """The cipher between this rank and another: `aes-gcm` or `chacha20-poly1305`.

        None if they share memory, or nothing is encrypted.
        """
    def issue(self, request: Request, hold: object, background: bool, timeout: float | None = None, **how: Any) -> Work:
        """Starts a collective; `how` are the other keywords of `weft.api.collectives.CallKeywords`.

        `hold`, which owns the memory, is kept until it has ended. Without `background`, the caller
        waits immediately.
        """
    def run(self, request: Request, hold: object, timeout: float | None = None, **how: Any) -> None:
        """Carries out a collective; the arguments are those of `issue`."""
    def issue_in_place(
        self, operation: Operation, count: int, address: int, hold: object, timeout: float | None = None, **how: Any
    ) -> Work:
        """`issue`, in the background, of an operation in place on elements at an address."""
    def run_in_place(
        self, operation: Operation, count: int, address: int, hold: object, timeout: float | None = None, **how: Any
    ) -> None:
        """`run` of an operation in place on elements at an address."""
    def run_plain(self, collective: str, root: int, op: object, source: object | None, target: object | None) -> bool:
        """Carries out a collective on plain arrays; False if the arguments are not plain.

        Without `source` it works in place; also without `target`, on no memory.
        """
    def send_plain(self, x: object, to: object, tag: object) -> bool:
        """Sends `x` and returns True, if it is a plain array."""
    def receive_plain(self, x: object, source: object | None, tag: object) -> int | None:
        """Receives into `x` and returns the sender, if it is a plain array; else None."""
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
        """Starts sending bytes to a rank. Without `background`, the caller waits immediately."""
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
        """Starts receiving bytes from a rank, or from any.

        Without `background`, the caller waits immediately.
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
    def ranks_of(self, other: Group) -> list[int]:
        """The numbers that the ranks of another group have in this one."""
    def explain(self, collective: str, nbytes: int, dtype: str, symmetric: bool) -> Explanation:
        """The algorithm of a call and the reasons: `nbytes` of the whole message, root 0."""
    def choices(self, collective: str) -> list[tuple[int | None, str, str]]:
        """The algorithms of a collective by size: (up to bytes, algorithm, origin of choice)."""
    def pairs(self) -> dict[str, int]:
        """How many pairs of ranks each transport connects."""
    def on_failure(self, callback: Callable[[BaseException], object]) -> None:
        """Calls `callback` with the exception when the group breaks, on any thread."""
    def counters(self) -> Counters:
        """Counters of the group from now on."""
    def traffic(self) -> list[tuple[int, str, str, int, int, int]]:
        """Traffic of the links to other ranks, of all groups, if the network counts it.

        Rows of (endpoint, host, transport, bytes sent, bytes received, packets sent again).
        """
    def add_schedule(self, name: str, text: str) -> None:
        """Lets calls name these schedules, in text form, as their algorithm."""
    def schedules(self) -> list[UserSchedule]:
        """The user's own schedules that the group knows."""
    def symmetric(self, nbytes: int, signals: int = 0, name: str = "") -> Symmetric:
        """Memory that the ranks of this host reach directly, and all by one-sided operations."""
    def register(self, pointer: int, nbytes: int, hold: object) -> Registration:
        """Lets adapters read memory in place; `hold` keeps it alive."""
    def register_device(self, pointer: int, nbytes: int, file: int, offset: int, hold: object) -> Registration:
        """Lets adapters read memory of a device in place, by a file that is open meanwhile."""
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
        """Like `send`, from registered memory of a device; None, without effect, if no link can."""
    def reads_device(self, to: int, pointer: int, nbytes: int) -> bool:
        """Whether `send_from_device` would send now."""
    def trace_stages(self, tracing: bool) -> None:
        """Starts or stops recording the stages of tiles."""
    def take_stages(self) -> list[tuple[str, int, int, int, int, int]]:
        """Returns and clears the recorded stages.

        Rows of (stage, operation, tile, bytes, begin and end in ns of the monotonic clock).
        """
    def registration_refusal(self) -> str | None:
        """Why memory was copied instead of registered while it is sent, if some was."""
    @property
    def staged_bytes(self) -> int:
        """How many bytes were copied into the pool before they were sent."""
    @property
    def symmetric_operations(self) -> int:
        """How many operations ran on symmetric memory as such."""
    @property
    def steps_helped(self) -> int:
        """How many steps of other ranks this rank has executed."""
    def abort(self, reason: str) -> None:
        """Ends every pending operation on all ranks."""
    def fail(self, reason: str) -> None:
        """Breaks the group on all ranks. Operations that all of them have issued continue."""
    def finish(self) -> bool:
        """Waits until all issued operations have ended, except unmatched receives.

        Returns whether the group is intact.
        """
    def count_step(self) -> None:
        """Counts a step of training, for those who watch the job with `weft top`."""
    def close(self) -> None:
        """Leaves the group."""

@final
class Registration:
    """Memory that links read in place."""

    def deregister(self) -> None:
        """Ends the registration, if it has not ended yet."""
    def transports(self) -> list[str]:
        """The transports whose links read the memory in place only because of this."""

@final
class Work:
    """An operation under way."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits.

        Returns False if the operation is still under way after `timeout` seconds. Raises its error.
        """
    def is_done(self) -> bool:
        """Whether it has ended or failed."""
    def value(self) -> int:
        """The previous value of the cell of an atomic operation that has ended."""
    def source(self) -> int:
        """The sender of a receive that has ended."""

@final
class Symmetric:
    """Memory that the ranks of one host reach directly; NumPy takes it as an array of bytes."""

    @property
    def nbytes(self) -> int:
        """Its length."""
    @property
    def name(self) -> str:
        """Its name in errors."""
    @property
    def signals(self) -> tuple[int, int]:
        """How many signals it has, and their offset in each part in bytes."""
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
        """Starts writing bytes to a rank's part, and then changing a signal: (number, op, value).

        Without `background`, the caller waits immediately.
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
        """Like `put`, from registered memory of a device; None, without effect, if no link can."""
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
        """Starts reading bytes from a place in a rank's part."""
    def fetch_add(
        self, peer: int, offset: int, value: int, timeout: float | None = None, background: bool = False
    ) -> Work:
        """Starts adding to a cell, by its offset in bytes; the handle has its previous value."""
    def compare_swap(
        self, peer: int, offset: int, expected: int, new: int, timeout: float | None = None, background: bool = False
    ) -> Work:
        """Like `fetch_add`, but stores `new` if the cell holds `expected`."""
    def signal(
        self, peer: int, signal: tuple[int, str, int], timeout: float | None = None, background: bool = False
    ) -> Work:
        """Starts changing a signal of a rank."""
    def wait_signal(
        self, signal: int, compare: str, value: int, timeout: float | None = None, background: bool = False
    ) -> Work:
        """Starts waiting until a signal of this rank compares with `value` as `compare` says."""
    def signal_value(self, signal: int) -> int:
        """The value of a signal of this rank."""
    def fence(self) -> None:
        """Orders this rank's earlier writes to each rank before its later ones."""
    def quiet(self, timeout: float | None = None, background: bool = False) -> Work:
        """Starts waiting until all that this rank has written has arrived."""
    def at(self, peer: int) -> SymmetricPart | None:
        """A rank's part, data and signals, if it is mapped here."""
    def free(self) -> None:
        """Frees this rank's part; arrays in it stay readable here."""
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class SymmetricPart:
    """A rank's part of symmetric memory, as mapped here; NumPy takes it as an array of bytes."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class DlpackTensor:
    """The contents of a DLPack capsule, whose memory it keeps alive."""

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
        """In elements."""
    @property
    def read_only(self) -> bool:
        """Whether the memory must not be written, or the producer does not allow it."""
    @property
    def device_type(self) -> int:
        """DLPack's number for the device; 1 is the CPU."""
