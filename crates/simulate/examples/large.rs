//! Time and memory of simulations of large groups, each in a process of its own:
//! `make simulate-large`.
//!
//! Every algorithm of every collective on 10,000 ranks, and every composed choice on 100,000. A
//! simulation that takes longer than it should is reported, but is no failure: it depends on the
//! machine.
//!
//! Arguments, to simulate one of them only: ranks, hosts, collective, algorithm, tiles.
use std::error::Error;
use std::process::Command;

use weft_algorithms::{
    MemoryClass, Parts, Reach, ScheduleRequest, Selection, Sizes, Topology, family, registry,
    select,
};
use weft_schedule::Collective;
use weft_simulate::{
    Host, Job, Machine, NetworkLink, ProgramSource, SimulationOptions, closed_form, simulate,
};

/// The size of every message, in bytes.
const BYTES: u64 = 256 << 20;
/// The limit of every case.
const SECONDS_MAX: f64 = 60.0;
const MIB_MAX: u64 = 8 << 10;
/// The default of `weft simulate`.
const WORK_MAX: u64 = 50_000_000;

const HEAD: &str = "| what | ranks | hosts | tiles | ms | closed form, ms | simulated | steps | occurrences | s | MiB |";

/// Flat algorithms: ranks, and hosts unless they need one host.
const FLAT: (u32, u32) = (10_000, 10_000);
/// Composed ones.
const COMPOSED: (u32, u32) = (100_000, 12_500);
const TILES: u64 = 16;

/// Ranks, hosts, collective, algorithm, tiles.
type LargeCase = (u32, u32, &'static str, String, u64);

/// Further choices: numbers of parts, several ranks a host, symmetry of another kind, more tiles.
#[rustfmt::skip]
const MORE: &[(u32, u32, &str, &str, u64)] = &[
    (10_000, 10_000, "all-reduce", "torus(100)", 16),
    (10_000, 10_000, "all-reduce", "parameter-server(4)", 16),
    (10_000, 10_000, "all-reduce", "parameter-server(100)", 4),
    (10_000, 1_250, "all-reduce", "parameter-server(4)", 16),
    (10_000, 1_250, "all-reduce", "ring", 16),
    (10_000, 1, "all-reduce", "ring", 16),
    (10_000, 10_000, "all-reduce", "ring", 64),
    (10_000, 10_000, "all-reduce", "double-tree", 64),
    (16_384, 2_048, "all-reduce", "multi-rail(slice-reduce, halving-doubling)", 16),
];

fn cases() -> Vec<LargeCase> {
    let flat = registry().filter(|a| matches!(a.requires.parts, Parts::None));
    let flat = flat.map(|algorithm| {
        let (ranks, hosts) = FLAT;
        let hosts = match algorithm.requires.mapped {
            Reach::All => 1,
            Reach::None | Reach::Unit => hosts,
        };
        let name = algorithm.name.to_owned();
        (ranks, hosts, algorithm.collective, name, TILES)
    });
    let (ranks, hosts) = COMPOSED;
    let host_of_rank: Vec<u32> = (0..ranks).map(|rank| rank / (ranks / hosts)).collect();
    let topology = Topology::hosts(&host_of_rank);
    let composed = ["all-reduce", "reduce", "broadcast"].into_iter();
    let composed = composed.flat_map(|collective| {
        let choices = family(collective, &topology).into_iter();
        let choices = choices.filter(|choice| {
            let parts = &choice.algorithm.requires.parts;
            !matches!(parts, Parts::None) && choice.requires_in(&topology).mapped < Reach::All
        });
        choices.map(move |choice| (ranks, hosts, collective, choice.name(), TILES))
    });
    let more = MORE.iter().map(|(ranks, hosts, collective, name, tiles)| {
        (*ranks, *hosts, *collective, (*name).to_owned(), *tiles)
    });
    flat.chain(more).chain(composed).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [ranks, hosts, collective, algorithm, tiles] = arguments.as_slice() {
        let (ranks, hosts, tiles) = (ranks.parse()?, hosts.parse()?, tiles.parse()?);
        return one(ranks, hosts, collective, algorithm, tiles);
    }
    println!("Up to {SECONDS_MAX} s and {MIB_MAX} MiB each; what takes more is marked.\n");
    println!("{HEAD}\n|---|---|---|---|---|---|---|---|---|---|---|");
    for (ranks, hosts, collective, algorithm, tiles) in cases() {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([&ranks.to_string(), &hosts.to_string()]);
        command.args([collective, &algorithm, tiles.to_string().as_str()]);
        if !command.status()?.success() {
            return Err(format!("{collective} {algorithm} on {ranks} ranks failed").into());
        }
    }
    Ok(())
}

/// Simulates one case and prints its row.
fn one(
    ranks: u32,
    hosts: u32,
    collective: &str,
    algorithm: &str,
    tiles: u64,
) -> Result<(), Box<dyn Error>> {
    let selection = select(collective, algorithm)?;
    let name = format!("{collective} {}", selection.name());
    let collective = Collective::named(collective, 0)
        .ok_or_else(|| format!("{collective} is none of the cases"))?;
    let machine = Machine::even(ranks, hosts, Host::default(), NetworkLink::default())?;
    let topology = machine.topology();
    let chunks = chunks(&selection, collective, &topology);
    let job = Job {
        limits: None,
        topology: Some(&topology),
        tile_bytes: Some(BYTES.div_ceil(4 * chunks * tiles) * 4),
        ..Job::new(
            ProgramSource::Selection(&selection),
            collective,
            BYTES,
            ranks,
        )
    };
    let before = processor_s()?;
    let options = SimulationOptions {
        work_max: Some(WORK_MAX),
        ..SimulationOptions::default()
    };
    let simulated = simulate(&machine, &job, &options);
    let taken_s = processor_s()? - before;
    let peak_mib = peak_mib()?;
    let over = match taken_s > SECONDS_MAX || peak_mib > MIB_MAX {
        true => " **over**",
        false => "",
    };
    let cost = format!("{taken_s:.1}{over} | {peak_mib}");
    match simulated {
        Ok(simulated) => println!(
            "| {name} | {ranks} | {hosts} | {} | {:.3} | {:.3} | {} | {} | {} | {cost} |",
            simulated.tiles,
            simulated.seconds * 1e3,
            closed_form(&machine, &job)? * 1e3,
            simulated.mode,
            simulated.work,
            simulated.events,
        ),
        Err(refusal) => {
            println!(
                "| {name} | {ranks} | {hosts} | {tiles} | refused: {refusal} | | | | | {cost} |"
            );
        }
    }
    Ok(())
}

fn chunks(selection: &Selection, collective: Collective, topology: &Topology) -> u64 {
    let request = ScheduleRequest {
        collective,
        ranks: topology.ranks(),
        rank: 0,
        memory: MemoryClass::Ordinary,
        sizes: Sizes::Equal,
        topology,
        parts: &[],
    };
    u64::from(selection.build(&request).grid.chunks())
}

/// The processor time of this thread, in seconds, which other processes do not affect.
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
