"""The command `weft bench`: measurement of a collective of weft and other libraries in turn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from weft.cli.command import Command
from weft.output import files
from weft.processes.local_ranks import RanksError
from weft.processes.ports import free_ports
from weft.quantities import show_bytes
from weft_lab import console, record
from weft_lab.bench import collectives, elements, launch, one_sided, peers, pipeline, rows, stages, table
from weft_lab.bench.coordinator import BenchCoordinator
from weft_lab.bench.peers.install import install
from weft_lab.bench.rows import BenchRow
from weft_lab.bench.spec import POOL, Spec
from weft_lab.cli import bench_options
from weft_lab.cli.busy import warn_if_busy

DESCRIPTION = """\
Starts its own ranks and measures a collective on them, or a round trip of a message: weft, other libraries and
floors, in turn.

A sample is the slowest rank's time of one call after a start barrier; before it, every rank rewrites its
whole input. One loop in Rust times all of them; weft is called through its Rust API, MPI through its C API.
At each size the libraries take turns in rounds, while all others sleep. The table shows the median of the rounds'
medians, and how far the most distant round differs from it. Every size is verified once, element by element: "#wrong"
is the number of wrong elements in the results of all ranks. Compare libraries within one run, not across runs: the
speed of a machine changes from one second to the next. Where others use its cores at the beginning, a warning says so.

Processor time is measured after the samples of a turn, over 0.1 s or more of back-to-back calls, without barriers and
without rewriting of inputs: the cost to a user, background threads included. "cpu ms" is the user and system time of
all threads of all ranks, per call. "busy ms" is how long the machine's cores were busy, per call: cores x window -
idle, regardless of the process that the kernel charges. The kernel counts it in steps of 10 ms, and it includes
everything else that runs on the machine: for reliable figures, leave the machine idle and give the windows 2 s in total
(--processor-seconds). --busy N runs N processes of arithmetic during every turn, pinned to no core; then nothing is
idle, and "busy ms" stays empty.

ping-pong is a message from rank 0 to rank 1 and one back, by blocking calls; its time is that of the round trip.
Ranks 2 and 3 do the same at the same time, and so on. A barrier moves no message, at any size.

Floors (--floors), on one host: times that no library can go below. `prototype` (2 ranks) is a minimal all-reduce: two
flags, and each rank adds its half of both buffers and writes the sum to both. `add`: as many vectors as ranks, added
by all cores, the sum written to each. `flags`: a round trip between two cores. `memcpy`: a copy of the message. With
--floors they are measured too, and "of floor" is the floor divided by the library's time. The floor is the prototype;
for other numbers of ranks, the sum of add and flags.

On emulated hosts, peers are started by their own launchers, with their settings for TCP, and every library has a line
of its own. Floors there: `tcp streams` (one rank per host) is a minimal all-reduce, one stream to every other rank, all
at the same time, adding what arrives; `tcp stream` is the rate B of one stream on the line, with buffers large enough
for its delay; `tcp poll` and `tcp block` are a byte to another host and one back, by sockets that are polled, or that
block. "of bound" is the time that the lines of H hosts need for the bytes of an all-reduce, divided by its time:
2 (H - 1) / H x message / B, plus the delay with --delay-ms.

--delay-ms starts a process for the hosts of every library, which takes processor time of its own; it is shown at the
end. See `weft hosts --help`.

--wire also measures weft with these wire formats, besides full precision. Such a result is right if its error is within
the stated bound of the format (docs/how-to/wire.md). Its rates, and "of bound", count the message at full precision.

The options of nccl-tests and the OSU benchmarks are understood: -b, -e and -f for the smallest and the largest message
and the factor between sizes, -m for MIN:MAX, -i and -x for the number of measured calls and of warm-up calls, -d for
the element type by its usual names. --place both measures all-reduce and reduce in place and out of place, as
nccl-tests do; peers are compared with weft in the same place.

put measures one-sided operations between two ranks, through the Python API: `put` with `quiet`, so until the data have
arrived; `put-signal`, half of a round trip of put_signal and wait_signal; and `get`. The data are verified after
every turn. A row's time is the mean of a turn's calls on rank 0, its median that of the turns.

--encrypt measures weft with these ciphers too (WEFT_ENCRYPT), as peers: their time as a multiple of weft's is the
cost of encryption.

--registration measures the methods by which RDMA adapters read ordinary memory, as peers of the first. `pool`,
which is always measured: data are copied into the pool before they are sent. `handle`: the arrays were registered
before (Group.register). `pipelined`: parts of them are registered while others are sent (WEFT_REGISTRATION).
`per-call`: each call registers all of them, sends, and deregisters them, one after the other.

--stages draws the steps of rank 0 with the tiles of one more call of the largest message, of weft or of the last method
of --registration: rows for registration, copies within memory, sends, reductions, waits for data, deregistration.
"""

EPILOG = """\
examples:
  weft bench all-reduce --ranks 2,4 --sizes 4:256M --memory ordinary,symmetric --peers gloo
  weft bench ping-pong --ranks 2 --sizes 4:1M --peers openmpi,intel-mpi
  weft bench allreduce -b 8 -e 1G -f 2 -d bfloat16 --place both
  weft bench allreduce -b 8 -e 64M --place both --peers openmpi,mpich
  weft bench allgather -m 1K:1M -i 200 -x 20 --csv
  weft bench all-reduce --ranks 2 --floors
  weft bench all-reduce --ranks 2,4 --peers gloo --record one-host.json
  weft bench --install-peers
  weft bench all-reduce --ranks 2 --memory ordinary,symmetric --peers openmpi,intel-mpi
  weft bench all-reduce --through torch --ranks 2,4 --sizes 4:64M --peers gloo
  weft bench pipeline-experiment --json out.json --plot out.png
  weft bench put --sizes 8,1K:1M --transport shm --json put.json
  weft bench all-reduce --ranks 2 --busy 1 --sizes 4:1M --peers openmpi,intel-mpi
  sudo weft bench all-reduce --hosts 4 --gbps 1 --sizes 1K:16M --json out.json --plot out.png
  sudo weft bench all-reduce --hosts 4 --gbps 1 --peers openmpi,mpich,intel-mpi,gloo --processor-seconds 2
  sudo weft bench all-reduce --hosts 4 --gbps 1 --delay-ms 20 --sizes 4:64M
  sudo weft bench all-reduce --hosts 4 --gbps 1 --wire bf16,fp8_e4m3 --sizes 64K:64M
  weft bench all-reduce --transport rdma --registration pool,handle,pipelined,per-call --sizes 1M:64M
  sudo weft bench all-reduce --hosts 4 --gbps 1 --encrypt aes-gcm,chacha20-poly1305 --sizes 4:64M
"""


def _run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.install_peers:
            asked = [peer for peer in peers.PEERS if not arguments.peers or peer.name in arguments.peers]
            install(asked, lambda line: print(line, flush=True))
        if arguments.collective is None:
            return 0
        warn_if_busy("bench")
        runs = {pipeline.NAME: _experiment, one_sided.NAME: _one_sided}
        found = runs.get(arguments.collective, _measure)(arguments)
    except RanksError as error:
        print(f"weft bench: {error}", file=sys.stderr)
        return 1
    # Piped output has only the rows.
    about = sys.stderr if arguments.csv else sys.stdout
    if arguments.json:
        rows.write(arguments.json, found)
        print(f"rows: {arguments.json}", file=about)
    if arguments.record:
        record.write(arguments.record, ["weft", *sys.argv[1:]], found)
        print(f"record, to send: {arguments.record}", file=about)
    if arguments.plot:
        from weft_lab.bench import plot

        draw = pipeline.draw if arguments.collective == pipeline.NAME else plot.draw
        draw(arguments.plot, found)
        print(f"picture: {arguments.plot}", file=about)
    if arguments.stages:
        print(f"stages: {arguments.stages}", file=about)
    return 0 if all(row.verified for row in found) else 1


def _measure(arguments: argparse.Namespace) -> list[BenchRow]:
    found: list[BenchRow] = []
    for ranks in arguments.ranks or [max(2, arguments.hosts)]:
        with launch.shared_directory() as directory:
            spec = _spec(arguments, ranks, directory)
            if not arguments.csv:
                console.show("", table.title(spec), table.row_table(spec))
            with console.progress(table.title(spec), len(spec.sizes) * spec.rounds) as progress:

                def show(same_size: Sequence[BenchRow], spec: Spec = spec) -> None:
                    if arguments.csv:
                        print(rows.csv_lines(same_size, header=not found), end="", flush=True)
                    else:
                        console.show(table.row_table(spec, same_size))
                    found.extend(same_size)

                def draw_stages(coordinator: BenchCoordinator, spec: Spec = spec) -> None:
                    if arguments.stages:
                        name, spans = coordinator.stages()
                        heading = (
                            f"{name}: {spec.collective} of {show_bytes(spec.sizes[-1])}, {spec.ranks} ranks, rank 0"
                        )
                        files.write(arguments.stages, stages.picture(heading, spans))

                launch.measure(spec, show, progress.advance, draw_stages)
    return found


def _experiment(arguments: argparse.Namespace) -> list[BenchRow]:
    found: list[BenchRow] = []
    for ranks in arguments.ranks or [pipeline.RANKS]:
        for size in bench_options.sizes(arguments) if arguments.sizes else [pipeline.BYTES]:
            with launch.shared_directory() as directory:
                runs = arguments.rounds or pipeline.RUNS
                asked = pipeline.PEERS if arguments.peers is None else arguments.peers
                spec = pipeline.spec(directory, size=size, ranks=ranks, runs=runs, peers=asked)
                with console.progress(f"{pipeline.NAME}, {ranks} ranks", runs) as progress:
                    rows_of_size = pipeline.measure(spec, progress.advance)
            if arguments.csv:
                print(rows.csv_lines(rows_of_size, header=not found), end="", flush=True)
            else:
                console.show(*pipeline.table(rows_of_size))
            found += rows_of_size
    return found


def _one_sided(arguments: argparse.Namespace) -> list[BenchRow]:
    spec = one_sided.OneSidedSpec(
        sizes=bench_options.sizes(arguments),
        transport=arguments.transport,
        hosts=arguments.hosts,
        gbps=arguments.gbps,
        delay_ms=arguments.delay_ms,
        seconds=arguments.seconds,
        iterations=arguments.iterations,
        warmup=arguments.warmup,
        rounds=_rounds(arguments),
    )
    found = one_sided.measure(spec)
    if arguments.csv:
        print(rows.csv_lines(found, header=True), end="", flush=True)
    else:
        console.show(*one_sided.table(found))
    return found


def _spec(arguments: argparse.Namespace, ranks: int, directory: str) -> Spec:
    ports = launch.emulated_ports if arguments.hosts > 1 else free_ports
    collective, element = collectives.find(arguments.collective), elements.find(arguments.dtype)
    # Blocks are equal: for sizes that the ranks cannot share equally, the rest is left out.
    counts = {collective.elements(size // element.itemsize, ranks) for size in bench_options.sizes(arguments)}
    return Spec(
        collective=arguments.collective,
        dtype=arguments.dtype,
        sizes=[count * element.itemsize for count in sorted(counts)],
        ranks=ranks,
        hosts=arguments.hosts,
        gbps=arguments.gbps,
        through=arguments.through,
        transport=arguments.transport,
        memories=arguments.memory or ["ordinary"],
        peers=arguments.peers or [],
        seconds=arguments.seconds,
        rounds=_rounds(arguments),
        floors=arguments.floors and arguments.through == "library",
        ports=ports(2),
        directory=directory,
        processor_seconds=arguments.processor_seconds,
        neighbours=arguments.busy,
        delay_ms=arguments.delay_ms,
        wires=arguments.wire or [],
        ciphers=arguments.encrypt or [],
        registrations=[way for way in arguments.registration or [] if way != POOL],
        places=bench_options.PLACES[arguments.place],
        iterations=arguments.iterations,
        warmup=arguments.warmup,
    )


def _rounds(arguments: argparse.Namespace) -> int:
    """This many, but no more than there are calls to measure."""
    rounds: int = arguments.rounds or bench_options.ROUNDS
    return rounds if arguments.iterations is None else min(rounds, arguments.iterations)


COMMAND = Command(
    name="bench",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=bench_options.add_arguments,
    check=bench_options.check,
    run=_run,
)
