"""Declarations of settings.

`Options` declares every setting once: the name of the argument of `weft.init`, from which that of
the environment variable follows, its type, default and documentation. `SETTINGS`, the options of
`Group.new_group` and docs/reference/configuration.md are made from it. `weft.config` reads them.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from weft import _weft, parsing
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.profiles import Profile
    from weft.schedule.schedule import Schedule

__all__ = [
    "CIPHERS",
    "LOG_LEVELS",
    "PREFIX",
    "SETTINGS",
    "TRANSPORTS",
    "WIRE_FORMATS",
    "EndpointOptions",
    "GroupOptions",
    "Options",
    "Setting",
]

TRANSPORTS = ("auto", "shm", "rdma", "tcp", "loopback")
REGISTRATIONS = ("pool", "pipelined")
RESUMPTIONS = ("auto", "always", "never")
CIPHERS = tuple(sorted(_weft.ciphers()))
WIRE_FORMATS = tuple(_weft.wire_formats())
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
PREFIX = "WEFT_"


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting: its source, meaning and default."""

    default: Any
    allowed: str
    doc: str
    parse: Callable[[str], Any]
    check: Callable[[Any], bool]
    default_text: str = ""
    hidden: bool = False
    """Whether its values are never shown."""
    compared: str = ""
    """The place where ranks with different values are rejected, if they are: in the `meeting`, as
    text; in the `native` layer, by what follows from the value; by the job's `identity`; or in the
    `handshake` with the store.
    """
    name: str = ""
    """Of the option that it describes."""

    @property
    def environment(self) -> str:
        """The name of its environment variable."""
        return PREFIX + self.name.upper()

    def read(self, text: str) -> Any:
        """Parses the text of the environment variable."""
        try:
            value = self.parse(text.strip())
        except (ValueError, OverflowError):
            value = None
        if value is None or not self.check(value):
            raise ConfigError(f"{self.environment}{self._shown(text)} is not allowed: expected {self.allowed}")
        return value

    def accept(self, value: Any) -> Any:
        """Checks the value of the argument; text is parsed as in the environment."""
        if isinstance(value, str) and self.parse is not str:
            return self.read(value)
        try:
            good = self.check(value)
        except (TypeError, ValueError, AttributeError):
            good = False
        if not good:
            raise ConfigError(f"{self.name}{self._shown(value)} is not allowed: expected {self.allowed}")
        return value

    def _shown(self, value: Any) -> str:
        return "" if self.hidden else f"={value!r}"


class EndpointOptions(TypedDict, total=False):
    """Options of a process's endpoint: its memory pool and its connections."""

    transport: Annotated[
        str | None,
        Setting(
            default="auto",
            allowed="one of " + ", ".join(TRANSPORTS),
            doc="How ranks are connected. `auto`: shared memory between ranks that can really share it; between "
            "the others RDMA if every rank has a device that it can use (docs/how-to/rdma.md), otherwise "
            "TCP. `shm`, `rdma`, `tcp`: nothing else. `loopback`: between threads of one "
            "process, for tests. The same on every rank.",
            compared="meeting",
            parse=str,
            check=lambda value: value in TRANSPORTS,
        ),
    ]
    interface: Annotated[
        str | None,
        Setting(
            default=None,
            allowed="the name of a network interface, an address of this host, a network such as 10.0.0.0/8, up to 4 "
            "of these with commas between, or all",
            doc="Which network interface TCP uses: a name (`eth1`), an address of this host, or a network "
            "in CIDR form. With several (`eth0,eth1`) each link has a connection over every one, and "
            "large messages take whichever has room: the first, second ... interface of a rank is "
            "connected with that of another. `all`: every interface that is up and not virtual.",
            parse=str,
            check=lambda value: value is None or (isinstance(value, str) and value != ""),
            default_text="the one that routes to the rendezvous address",
        ),
    ]
    tcp_congestion: Annotated[
        str,
        Setting(
            default="auto",
            allowed="auto, host, or the name of a TCP congestion control that this host has, such as cubic or bbr",
            doc="The congestion control of the TCP connections over which this process's data travel: "
            "`cubic`, `bbr`, or another that `weft doctor` lists; `host` for what the host has. `auto` is "
            "`reno` if a round trip takes less than 1 ms and the host has BBR or CUBIC, which take the "
            "pauses between bursts for the line's rate; otherwise the host's default. It decides how "
            "fast this process sends, so set it on every rank.",
            parse=str,
            check=lambda value: isinstance(value, str) and value != "",
        ),
    ]
    tcp_connections: Annotated[
        int | None,
        Setting(
            default=None,
            allowed="a whole number from 1 to 16",
            doc="TCP connections to every other rank. Large messages use the one with the least queued; "
            "small ones use the first. Of two ranks the one that connects decides.",
            parse=int,
            check=lambda value: value is None or parsing.is_number(value, 1, 16),
            default_text="one; with several interfaces one over each; four over each where a round trip takes "
            "more than 2 ms",
        ),
    ]
    tcp_resume: Annotated[
        str | None,
        Setting(
            default="auto",
            allowed="one of " + ", ".join(RESUMPTIONS),
            doc="Whether a TCP connection that breaks while both ranks live is made anew, with nothing lost, for up to "
            "`WEFT_PEER_TIMEOUT`. What was sent is kept for that until the other rank has it. `auto`: as far as this "
            "takes no more than 2 % of a core, which is at any rate on lines of up to 1 Gbit/s; on faster ones a "
            "connection that breaks while much is sent may still end its groups. Links over several interfaces keep "
            "everything, so that the loss of one does no harm. `always`: everything, which takes up to a third more "
            "processor time at full speed. `never`: nothing; a connection that breaks ends the groups over it. See "
            "docs/how-to/operations.md. The same on every rank.",
            compared="meeting",
            parse=str,
            check=lambda value: value in RESUMPTIONS,
        ),
    ]
    rdma_devices: Annotated[
        str | None,
        Setting(
            default=None,
            allowed="names of RDMA devices or their ports such as mlx5_0 or mlx5_0:1,mlx5_1:1, all, or none",
            doc="The ports of RDMA devices (RoCE v2, InfiniBand) that this process uses, as `weft doctor` lists them: "
            "`mlx5_0` or `mlx5_0:1`. With several (`mlx5_0,mlx5_1`) each link has a queue pair over every one, and "
            "large messages take whichever is free: the first, second ... port of a rank is connected with that of "
            "another. `all`: every port that is active. `none`: no RDMA. See docs/how-to/rdma.md.",
            parse=str,
            check=lambda value: value is None or (isinstance(value, str) and value != ""),
            default_text="the first port that is active",
        ),
    ]
    rdma_gid_index: Annotated[
        int | None,
        Setting(
            default=None,
            allowed="a whole number from 0 to 255",
            doc="The number of the address (GID) of RDMA ports, as `weft doctor` shows it.",
            parse=int,
            check=lambda value: value is None or parsing.is_number(value, 0, 255),
            default_text="of RoCE the first of version 2, if possible of an IPv4 address; of InfiniBand the first",
        ),
    ]
    rdma_traffic_class: Annotated[
        int | None,
        Setting(
            default=None,
            allowed="a whole number from 0 to 255",
            doc="The traffic class of packets over RDMA: the byte in their header whose upper six bits are the DSCP. "
            "Its upper three bits are the service level. The operator of a RoCE network without loss knows its value.",
            parse=int,
            check=lambda value: value is None or parsing.is_number(value, 0, 255),
            default_text="0",
        ),
    ]
    registration: Annotated[
        str | None,
        Setting(
            default="pool",
            allowed="one of " + ", ".join(REGISTRATIONS),
            doc="What RDMA does with arrays that are neither symmetric nor registered by `Group.register`. `pool`: "
            "they are copied into the pool, which adapters know, before they are sent. `pipelined`: collectives of "
            "large ones register them part by part, while other parts are sent, reduced and received. It applies to "
            "this process alone, and has no effect over shared memory and TCP. See docs/how-to/rdma.md.",
            parse=str,
            check=lambda value: value in REGISTRATIONS,
        ),
    ]
    encrypt: Annotated[
        bool | str | None,
        Setting(
            default=False,
            allowed="1, 0, " + " or ".join(CIPHERS),
            doc="Whether all data between ranks that share no memory are encrypted and authenticated: an attacker who "
            "reads the network learns nothing, and one who changes, drops or repeats bytes of a connection ends it. "
            "`1`: each link has the faster cipher of those that both machines have instructions for, `aes-gcm` "
            "(AES-256-GCM) or `chacha20-poly1305`; a name: all links have that one. The keys are those that the ranks "
            "exchange when they meet, so it does not protect from an attacker who can write to the store: use "
            "`WEFT_SECRET` or certificates (`WEFT_TLS_CERT`), or a store that strangers do not reach. Shared memory is "
            "not affected; RDMA, whose adapters encrypt nothing, is not used. "
            "The same on every rank.",
            compared="native",
            parse=lambda text: parsing.parse_encryption(text, CIPHERS),
            check=lambda value: isinstance(value, bool) or value in CIPHERS,
            default_text="0",
        ),
    ]
    require_shared_memory: Annotated[
        bool | None,
        Setting(
            default=False,
            allowed="1 or 0",
            doc="Whether ranks of one machine must share memory. `1`: where two of them cannot (a limit of memory or "
            "descriptors, separate containers or network namespaces), the meeting fails on every rank with the "
            "reason, if any rank demands it. `0`: they use TCP, which is slower; rank 0 warns (`RuntimeWarning`) "
            "unless they are kept apart on purpose, and `Group.describe` shows it.",
            parse=parsing.parse_flag,
            check=lambda value: isinstance(value, bool),
            default_text="0",
        ),
    ]
    pool_bytes: Annotated[
        int | str | None,
        Setting(
            default=1 << 30,
            allowed="a number of bytes from 1M to 64T, such as 268435456, 256M or 1G",
            doc="Upper bound of the memory pool of this process, which all its groups share. Memory is "
            "taken from the system only as groups need it.",
            parse=parsing.parse_bytes,
            check=lambda value: parsing.is_number(value, 1 << 20, parsing.POOL_BYTES_MAX),
            default_text="1G",
        ),
    ]
    peer_timeout: Annotated[
        float | None,
        Setting(
            default=10.0,
            allowed="a number of seconds from 1 to 86400",
            doc="Seconds after which a host that does not answer is given up (`weft.PeerLost`). "
            "The death of a process is noticed immediately, regardless of this value.",
            parse=float,
            check=lambda value: parsing.is_number(value, 1.0, 86400.0),
        ),
    ]
    flight_dir: Annotated[
        "str | os.PathLike[str] | None",
        Setting(
            default="auto",
            allowed="a directory, auto or none",
            doc="The directory in which each process writes its flight record, the last 1,024 operations, when a group "
            "fails: every job makes a directory `weft-flight-...` in it, which only this user can read. The error "
            "names it, and `weft trace` reads it. `auto`: the system's directory "
            "for temporary files. `none`: nothing is written. See docs/how-to/tracing.md.",
            parse=str,
            check=lambda value: bool(os.fspath(value)),
        ),
    ]
    flight_signal: Annotated[
        str | None,
        Setting(
            default=None,
            allowed="the name of a signal that can be caught, such as SIGUSR1",
            doc="The signal at which this process writes its flight record as well: `SIGUSR1`. A "
            "handler that was set before is called, too; one that the program sets later takes its "
            "place.",
            parse=str,
            check=lambda value: value is None or parsing.is_signal(value),
            default_text="none: weft handles no signal",
        ),
    ]


class GroupOptions(TypedDict, total=False):
    """Options of a group: of `weft.init` and `Group.new_group`.

    The defaults of `Group.new_group` are the options of the group that it is called on.
    """

    timeout: Annotated[
        float | None,
        Setting(
            default=300.0,
            allowed="a number of seconds above 0, up to 1e9",
            doc="Seconds after which an operation, or the meeting of the ranks, fails with "
            "`weft.Timeout`. Every call can set its own.",
            parse=float,
            check=lambda value: parsing.is_number(value, 0.0, parsing.SECONDS_MAX) and value > 0,
        ),
    ]
    algorithm: Annotated[
        Mapping[str, str] | str | None,
        Setting(
            default={},
            allowed="collective=algorithm pairs such as all-reduce=ring,broadcast=binomial, or a dict of them",
            doc="The only algorithm for a collective, by its name with its parts, such as "
            "`multi-rail(slice-reduce, ring)`: `weft plan --list` shows the names. A call's own "
            "`algorithm` goes before it. The same on every rank.",
            compared="native",
            parse=parsing.parse_algorithms,
            check=parsing.are_algorithms,
            default_text="none: what the profile says, else what is built in",
        ),
    ]
    schedules: Annotated[
        Mapping[str, "Schedule | str | os.PathLike[str]"] | str | None,
        Setting(
            default={},
            allowed="name=file pairs such as chain=chain.txt,star=star.txt, or a dict of files or "
            "weft.schedule.Schedule",
            doc="User schedules, in text form, by the names that calls, `algorithm` and profiles "
            "may give them. They are verified when the ranks meet, and are for that number of ranks. "
            "The same on every rank.",
            compared="native",
            parse=parsing.parse_schedules,
            check=parsing.are_schedules,
            default_text="none",
        ),
    ]
    reproducible: Annotated[
        bool | None,
        Setting(
            default=False,
            allowed="1 or 0",
            doc="Whether the bits of sums must be the same for every algorithm, tile size and placement "
            "of the ranks: each element's contributions are added in the order of ranks and rounded "
            "once. Only algorithms that can do so are used. The same on every rank.",
            compared="native",
            parse=parsing.parse_flag,
            check=lambda value: isinstance(value, bool),
            default_text="0",
        ),
    ]
    wire: Annotated[
        str | None,
        Setting(
            default="full",
            allowed="one of " + ", ".join(WIRE_FORMATS),
            doc="How sums and averages of `float32` travel between ranks that share no memory: as they "
            "are (`full`), or rounded to a shorter format and added as `float32` (docs/how-to/wire.md). What "
            "is only moved travels as it is. A call's own `wire` goes before it. Not with "
            "`reproducible`. The same on every rank.",
            compared="native",
            parse=str,
            check=lambda value: value in WIRE_FORMATS,
        ),
    ]
    profile: Annotated[
        "Profile | str | os.PathLike[str] | None",
        Setting(
            default="auto",
            allowed="auto, none, or the path of a profile",
            doc="The source of the choice of algorithms. `auto`: the profile that `weft tune` has stored for ranks "
            "placed like these on such hardware, if there is one. `none`: the built-in choice. A path: "
            "that profile, which must be for ranks placed like these. What rank 0 reads holds for all "
            "ranks.",
            parse=str,
            check=parsing.is_profile,
        ),
    ]
    topology: Annotated[
        Sequence[Sequence[int]] | None,
        Setting(
            default=[],
            allowed="for each level the unit of every rank, such as 0,0,1,1/0,0,0,0 or [[0, 0, 1, 1], [0, 0, 0, 0]]",
            doc="Which ranks are close to each other, where that is more than which of them share memory: "
            "levels of units, innermost first (NUMA nodes, hosts, racks), each within one of the next "
            "level. The same on every rank.",
            compared="native",
            parse=parsing.parse_levels,
            check=parsing.are_levels,
            default_text="one level, whose units are the ranks that share memory, and inside them WEFT_DOMAINS",
        ),
    ]
    domains: Annotated[
        Sequence[Sequence[int]] | str | None,
        Setting(
            default="auto",
            allowed="auto, none, or for each level the domain of every rank, such as 0,0,1,1 or [[0, 0, 1, 1]]",
            doc="Which ranks of a host share a part of it, such as a last-level cache or a NUMA node. "
            "`auto`: what the operating system reports, where every rank of a host is bound to cores "
            "of one part; ranks that may run anywhere are in no domain. `none`: hosts are not "
            "divided. Numbers: levels of domains, innermost first; they count within each host. "
            "Algorithms with a component for domains, such as `multi-rail(slice-reduce, "
            "slice-reduce)` on one host, can then be used; others are not affected. Without meaning "
            "where `topology` is set. The same on every rank.",
            compared="native",
            parse=parsing.parse_domains,
            check=lambda value: value == "auto" or (not isinstance(value, str) and parsing.are_levels(value)),
        ),
    ]


class Options(EndpointOptions, GroupOptions, total=False):
    """All options of `weft.init`."""

    probe: Annotated[
        bool | None,
        Setting(
            default=False,
            allowed="1 or 0",
            doc="Whether a group without a profile measures its latency and rate when it is made, for at "
            "most 50 ms, and chooses its algorithms by that. What rank 0 finds holds for all ranks, "
            "but differs from run to run. The same on every rank.",
            compared="meeting",
            parse=parsing.parse_flag,
            check=lambda value: isinstance(value, bool),
            default_text="0",
        ),
    ]
    cuda_driver: Annotated[
        str | os.PathLike[str] | None,
        Setting(
            default="libcuda.so.1",
            allowed="the name or path of a shared library",
            doc="The library of the CUDA driver, loaded when an operation on a tensor of a GPU is first called: see "
            "docs/how-to/cuda.md.",
            parse=str,
            check=lambda value: bool(os.fspath(value)),
        ),
    ]
    device_tile: Annotated[
        int | str | None,
        Setting(
            default=4 << 20,
            allowed="a number of bytes from 64K to 1G, such as 4M",
            doc="The part of a tensor of a GPU that one copy to the host moves. Each group that reduces such tensors "
            "has host memory for 8 of them in each process. The same on every rank.",
            compared="meeting",
            parse=parsing.parse_bytes,
            check=lambda value: parsing.is_number(value, 64 << 10, 1 << 30),
            default_text="4M",
        ),
    ]
    job_id: Annotated[
        str | None,
        Setting(
            default=None,
            allowed="a text of 1 to 256 characters",
            doc="The name of this job, so that ranks of different jobs that meet at one address by mistake reject "
            "each other. Any text that no other job has. It is compared between ranks that have it, and does not keep "
            "out an attacker: use `WEFT_SECRET` for that. The same on every rank.",
            compared="identity",
            parse=str,
            check=lambda value: value is None or (isinstance(value, str) and 1 <= len(value) <= 256),
            default_text="the launcher's name of the job: the run id of torchrun unless that is `none`, the job of "
            "Slurm, Open MPI or PMI",
        ),
    ]
    lobby: Annotated[
        str | None,
        Setting(
            default=None,
            allowed="addresses as host:port, with commas between; a host without a port has that of the next one",
            doc="Where `weft.torch.Recovery` takes in processes that are started later (docs/how-to/elastic.md): an "
            "address of each host, or of some, or a name of all of them; also as Slurm writes hosts, "
            "`node[01-16],login1:29580`. The same on every process; `weft.init` does not use it.",
            parse=str,
            check=lambda value: value is None or (isinstance(value, str) and ":" in value),
        ),
    ]
    secret: Annotated[
        str | parsing.Secret | None,
        Setting(
            default=None,
            allowed="a text of 16 to 4096 bytes that nobody can guess",
            doc="The job's secret: a random text, a new one for each job, that only its ranks have. "
            "Any process that has it can join the job. With it, the ranks' meeting over `MASTER_ADDR` is authenticated "
            "and encrypted; without it (and `WEFT_SECRET_FILE`) the ranks meet at loopback addresses only: see "
            "`WEFT_INSECURE`. To make one: `export WEFT_SECRET=$(openssl rand -hex 32)`, which the launcher passes on "
            "to the ranks. It is in no message, log or error. Without meaning where torch's store is used. Not with "
            "`WEFT_TLS_CERT`. The same on every rank.",
            compared="handshake",
            parse=parsing.parse_secret,
            check=lambda value: isinstance(value, parsing.Secret),
            default_text="none",
            hidden=True,
        ),
    ]
    secret_file: Annotated[
        str | os.PathLike[str] | None,
        Setting(
            default=None,
            allowed="the path of a file that only its owner can read",
            doc="A file with the job's secret, if `WEFT_SECRET` is not set. A file that others than its owner "
            "can read is refused.",
            parse=str,
            check=lambda value: bool(os.fspath(value)),
            default_text="none",
        ),
    ]
    tls_cert: Annotated[
        str | os.PathLike[str] | None,
        Setting(
            default=None,
            allowed="the path of a file",
            doc="Replaces a secret in jobs whose ranks have certificates of a CA: the PEM file of this process's "
            "certificate, followed by those between it and the CA's. With it, `WEFT_TLS_KEY` and `WEFT_TLS_CA`, the "
            "ranks' meeting over `MASTER_ADDR` uses TLS 1.3, and both ends of each connection prove certificates. Rank "
            "0's must be for the name or address in `MASTER_ADDR` (subjectAltName). The files are read when the ranks "
            "meet. Without meaning where torch's store is used. On every rank, or on none: see "
            "[certificates](../how-to/operations.md#certificates).",
            parse=str,
            check=lambda value: bool(os.fspath(value)),
            default_text="none",
        ),
    ]
    tls_key: Annotated[
        str | os.PathLike[str] | None,
        Setting(
            default=None,
            allowed="the path of a file that only its owner can read",
            doc="The PEM file of the private key of `WEFT_TLS_CERT`, without a passphrase. A file that others than its "
            "owner can read is refused.",
            parse=str,
            check=lambda value: bool(os.fspath(value)),
            default_text="none",
        ),
    ]
    tls_ca: Annotated[
        str | os.PathLike[str] | None,
        Setting(
            default=None,
            allowed="the path of a file",
            doc="The PEM file of the CAs that sign the certificates of the job's ranks. Any process with a certificate "
            "of one of them can join the job: use a CA only for the job, or for those who may join it.",
            parse=str,
            check=lambda value: bool(os.fspath(value)),
            default_text="none",
        ),
    ]
    insecure: Annotated[
        bool | None,
        Setting(
            default=False,
            allowed="1 or 0",
            doc="Whether ranks without a secret or certificates may meet over a network. Any process that reaches "
            "`MASTER_ADDR` can then join the job, read and change it: only for networks that no stranger reaches.",
            parse=parsing.parse_flag,
            check=lambda value: isinstance(value, bool),
            default_text="0",
        ),
    ]
    log: Annotated[
        str | None,
        Setting(
            default=None,
            allowed="one of " + ", ".join(LOG_LEVELS),
            doc="The level from which weft's log is written to stderr, with time and rank. `info`: the "
            "choices for each group and the reasons, in one line. `error`: failures only. Without it, the "
            "logger `weft` is set up by the program, like any other logger of Python's `logging`.",
            parse=str.lower,
            check=lambda value: value in LOG_LEVELS,
            default_text="none: nothing is written",
        ),
    ]
    metrics: Annotated[
        str | os.PathLike[str] | None,
        Setting(
            default=None,
            allowed=":port, address:port, or the path of a file that ends in .prom",
            doc="Where this process publishes counters for Prometheus: see docs/how-to/operations.md. "
            "`:9400`: at http://127.0.0.1:9400/metrics, where 9400 stands for the port plus the local "
            "rank, so that every process of a host has its own; at another address if one is named, "
            "such as `0.0.0.0:9400`. A file such as `/run/weft/weft.prom`: in "
            "`/run/weft/weft-rank0.prom`, by the rank, every 10 s and at the end. Without it, nothing "
            "is counted.",
            parse=parsing.parse_metrics,
            check=parsing.is_metrics,
            default_text="none",
        ),
    ]


SETTINGS = tuple(
    dataclasses.replace(option.__metadata__[0], name=name) for name, option in Options.__annotations__.items()
)
