//! Plays large groups, each in a process of its own, and tells time and memory: `make simulate-large`.
//!
//! Arguments, to play one of them only: ranks, hosts, collective, algorithm, tiles.
use std::error::Error;
use std::process::Command;

use weft_algorithms::{Memory, Request, Selection, Sizes, Topology, select};
use weft_schedule::Collective;
use weft_simulate::{Host, Job, Link, Machine, PlayOptions, Source, closed_form, play};

/// The size of every message, in bytes.
const BYTES: u64 = 256 << 20;
/// What every case may take.
const SECONDS_MAX: f64 = 60.0;
const MIB_MAX: u64 = 8 << 10;

/// Ranks, hosts, collective, algorithm, tiles.
type Case = (u32, u32, &'static str, &'static str, u64);

#[rustfmt::skip]
const CASES: &[Case] = &[
    (100_000, 12_500, "all-reduce", "multi-rail(slice-reduce, ring)", 16),
    (100_000, 12_500, "all-reduce", "leaders(slice-reduce, ring)", 16),
    (16_384, 2_048, "all-reduce", "multi-rail(slice-reduce, halving-doubling)", 16),
    (10_000, 10_000, "all-reduce", "ring", 64),
    (10_000, 1_250, "all-reduce", "ring", 16),
    (10_000, 10_000, "all-reduce", "bidirectional-ring", 64),
    (10_000, 10_000, "all-reduce", "direct", 16),
    (10_000, 10_000, "all-reduce", "two-shot", 16),
    (10_000, 10_000, "all-reduce", "recursive-doubling", 16),
    (10_000, 10_000, "all-reduce", "halving-doubling", 16),
    (10_000, 10_000, "all-reduce", "halving-doubling-blocks", 16),
    (10_000, 10_000, "all-reduce", "double-tree", 64),
    (10_000, 10_000, "all-reduce", "binomial", 64),
    (10_000, 10_000, "all-reduce", "gather-to-root", 16),
    (10_000, 10_000, "all-reduce", "torus(100)", 16),
    (10_000, 10_000, "all-reduce", "parameter-server(4)", 16),
    (10_000, 1_250, "all-reduce", "parameter-server(4)", 16),
    (10_000, 10_000, "reduce-scatter", "ring", 16),
    (10_000, 10_000, "all-gather", "ring", 16),
    (10_000, 10_000, "all-gather", "bruck-radix-4", 16),
    (10_000, 10_000, "broadcast", "binomial", 64),
    (10_000, 10_000, "reduce", "direct", 16),
    (10_000, 10_000, "gather", "linear", 16),
    (10_000, 10_000, "scatter", "linear", 16),
    (10_000, 10_000, "all-to-all", "pairwise", 16),
    (10_000, 10_000, "barrier", "dissemination", 1),
];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [ranks, hosts, collective, algorithm, tiles] = arguments.as_slice() {
        return one(
            ranks.parse()?,
            hosts.parse()?,
            collective,
            algorithm,
            tiles.parse()?,
        );
    }
    let mut failed = false;
    for (ranks, hosts, collective, algorithm, tiles) in CASES {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([&ranks.to_string(), &hosts.to_string()]);
        command.args([collective, algorithm, tiles.to_string().as_str()]);
        failed |= !command.status()?.success();
    }
    if failed {
        return Err(format!("a case failed, or took over {SECONDS_MAX} s or {MIB_MAX} MiB").into());
    }
    Ok(())
}

fn one(
    ranks: u32,
    hosts: u32,
    collective: &str,
    algorithm: &str,
    tiles: u64,
) -> Result<(), Box<dyn Error>> {
    let selection = select(collective, algorithm)?;
    let collective = match collective {
        "all-reduce" => Collective::AllReduce,
        "reduce-scatter" => Collective::ReduceScatter,
        "all-gather" => Collective::AllGather,
        "broadcast" => Collective::Broadcast { root: 0 },
        "reduce" => Collective::Reduce { root: 0 },
        "gather" => Collective::Gather { root: 0 },
        "scatter" => Collective::Scatter { root: 0 },
        "all-to-all" => Collective::AllToAll,
        "barrier" => Collective::Barrier,
        other => return Err(format!("{other} is none of the cases").into()),
    };
    let machine = Machine::even(ranks, hosts, Host::default(), Link::default())?;
    let topology = machine.topology();
    let chunks = chunks(&selection, collective, &topology);
    let job = Job {
        limits: None,
        topology: Some(&topology),
        tile_bytes: Some(BYTES.div_ceil(4 * chunks * tiles) * 4),
        ..Job::new(Source::Selection(&selection), collective, BYTES, ranks)
    };
    let before = processor_s()?;
    let played = play(&machine, &job, &PlayOptions::default())?;
    let taken_s = processor_s()? - before;
    let peak_mib = peak_mib()?;
    println!(
        "{collective} {:<42} {ranks:7} ranks {hosts:6} hosts {:3} tiles: {:10.3} ms (closed form {:10.3} ms), {}, {} occurrences in {taken_s:.1} s, {peak_mib} MiB",
        selection.name(),
        played.tiles,
        played.seconds * 1e3,
        closed_form(&machine, &job)? * 1e3,
        played.mode,
        played.occurrences,
    );
    if taken_s > SECONDS_MAX || peak_mib > MIB_MAX {
        return Err(format!("over {SECONDS_MAX} s or {MIB_MAX} MiB").into());
    }
    Ok(())
}

fn chunks(selection: &Selection, collective: Collective, topology: &Topology) -> u64 {
    let request = Request {
        collective,
        ranks: topology.ranks(),
        rank: 0,
        memory: Memory::Ordinary,
        sizes: Sizes::Equal,
        topology,
        parts: &[],
    };
    u64::from(selection.build(&request).grid.chunks())
}

/// What this thread has had of a core so far, in seconds: how busy the machine is does not matter.
fn processor_s() -> Result<f64, Box<dyn Error>> {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ran = statistics.split(' ').next().ok_or("no time in schedstat")?;
    Ok(ran.parse::<f64>()? / 1e9)
}

/// The most memory that this process has had, in MiB.
fn peak_mib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("no VmHWM")?.trim().parse::<u64>()? / 1024)
}
