//! Layout of written records: that of PyTorch's flight recorder, version 2.10, as JSON.
//!
//! Additional data is under the key `weft`, in the file and in every entry. Times are those of the
//! system's clock. The file's `weft` has the difference to the monotonic clock, which all processes
//! of a host share. `weft trace` reads these files (`python/weft/tracing`).

use std::collections::BTreeMap;

use serde::Serialize;
use weft_kernels::DType;
use weft_schedule::Collective;
use weft_transport::Timeline;

use super::known::{KnownGroup, ProcessInfo, RecorderState};
use super::ring::{Kind, NO_RANK, OneSidedKind, Record};

/// The version of the layout that PyTorch's recorder writes.
const VERSION: &str = "2.10";

#[derive(Serialize)]
struct File<'a> {
    version: &'static str,
    pg_config: BTreeMap<String, GroupConfig<'a>>,
    pg_status: BTreeMap<String, GroupStatus>,
    entries: Vec<WrittenEntry>,
    weft: Process<'a>,
}

#[derive(Serialize)]
struct GroupConfig<'a> {
    name: String,
    desc: &'a str,
    /// A list in text form, as PyTorch's analyzer expects.
    ranks: String,
}

/// The last collectives that were issued, begun and ended; -1 if there is none.
#[derive(Serialize)]
struct GroupStatus {
    last_enqueued_collective: i64,
    last_started_collective: i64,
    last_completed_collective: i64,
}

#[derive(Serialize)]
struct WrittenEntry {
    record_id: u64,
    pg_id: u32,
    process_group: [String; 2],
    collective_seq_id: u64,
    p2p_seq_id: u64,
    op_id: u64,
    profiling_name: String,
    time_created_ns: u64,
    input_sizes: [[u64; 1]; 1],
    input_dtypes: [&'static str; 1],
    output_sizes: [[u64; 1]; 1],
    output_dtypes: [&'static str; 1],
    state: &'static str,
    time_discovered_started_ns: Option<u64>,
    time_discovered_completed_ns: Option<u64>,
    retired: bool,
    timeout_ms: u64,
    is_p2p: bool,
    frames: [u8; 0],
    weft: Details,
}

#[derive(Serialize)]
struct Details {
    /// The call's number of elements, or the bytes of a message. With counts per rank, the elements
    /// of the whole message as far as this rank knows them.
    count: u64,
    per_rank: bool,
    dtype: &'static str,
    op: Option<&'static str>,
    root: Option<u32>,
    peer: Option<u32>,
    tag: Option<u64>,
    /// The number of the symmetric buffer of a one-sided operation.
    buffer: Option<u64>,
    algorithm: Option<String>,
    /// The plan's hash in the record.
    plan: Option<String>,
    priority: i32,
    /// Called by weft itself, before an operation that needs an agreement of the ranks.
    internal: bool,
    failed: bool,
}

#[derive(Serialize)]
struct Process<'a> {
    job: String,
    rank: u32,
    host: &'a str,
    boot_id: &'a str,
    pid: u32,
    occasion: &'a str,
    /// The time of writing, on both clocks.
    realtime_ns: u64,
    monotonic_ns: u64,
    failures: Vec<Failed>,
    renewals: Vec<Renewed<'a>>,
}

/// A connection that broke and was made anew.
#[derive(Serialize)]
struct Renewed<'a> {
    time_ns: u64,
    what: &'a str,
}

#[derive(Serialize)]
struct Failed {
    process_group: String,
    time_ns: u64,
    error: String,
}

/// The content of a file.
pub(super) fn json(
    records: &[Record],
    known: &RecorderState,
    process: &ProcessInfo,
    timeline: &Timeline,
    occasion: &str,
) -> String {
    let job = known.job.unwrap_or_default();
    let of_job: BTreeMap<u32, &KnownGroup> = (known.groups.range(job.first..))
        .map(|(number, group)| (*number, group))
        .collect();
    let mut messages = BTreeMap::new();
    let entries = records.iter().filter_map(|record| {
        let group = of_job.get(&record.group)?;
        let message = messages.entry(record.group).or_insert(0);
        *message += u64::from(!record.entry.kind.is_collective());
        Some(entry(record, group, process, timeline, *message))
    });
    let entries = entries.collect();
    let in_use = |number: u32| records.iter().any(|record| record.group == number);
    let groups: Vec<(u32, &KnownGroup)> = (of_job.iter())
        .map(|(number, group)| (*number, *group))
        .filter(|(number, group)| !group.closed || in_use(*number))
        .collect();
    let file = File {
        version: VERSION,
        pg_config: (groups.iter().map(|(_, group)| config(group))).collect(),
        pg_status: (groups.iter())
            .map(|(number, group)| (unique(group), status(*number, records)))
            .collect(),
        entries,
        weft: Process {
            job: format!("{:016x}", job.id),
            rank: job.rank,
            host: &process.host_name,
            boot_id: &process.boot_id,
            pid: process.pid,
            occasion,
            realtime_ns: timeline.realtime_ns(timeline.end()),
            monotonic_ns: timeline.monotonic_ns(timeline.end()),
            failures: (known.failures.iter())
                .map(|failure| Failed {
                    process_group: known
                        .groups
                        .get(&failure.group)
                        .map(unique)
                        .unwrap_or_default(),
                    time_ns: timeline.realtime_ns(failure.at),
                    error: failure.why.clone(),
                })
                .collect(),
            renewals: (known.renewals.iter())
                .map(|renewal| Renewed {
                    time_ns: timeline.realtime_ns(renewal.at),
                    what: &renewal.what,
                })
                .collect(),
        },
    };
    serde_json::to_string(&file).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
}

/// A name that is unique among the job's groups.
fn unique(group: &KnownGroup) -> String {
    format!("{}@{:016x}", group.info.name, group.info.id)
}

fn config(group: &KnownGroup) -> (String, GroupConfig<'_>) {
    let config = GroupConfig {
        name: unique(group),
        desc: &group.info.name,
        ranks: format!("{:?}", group.info.global_ranks),
    };
    (unique(group), config)
}

fn status(number: u32, records: &[Record]) -> GroupStatus {
    let last = |such: fn(&Record) -> bool| {
        let collectives = records
            .iter()
            .filter(|record| record.group == number && record.entry.kind.is_collective());
        let sequences = collectives.filter(|record| such(record));
        let last = sequences.map(|record| record.entry.sequence as i64).max();
        last.unwrap_or(-1)
    };
    GroupStatus {
        last_enqueued_collective: last(|_| true),
        last_started_collective: last(|record| record.begun != 0),
        last_completed_collective: last(|record| record.ended != 0 && !record.failed),
    }
}

fn entry(
    record: &Record,
    group: &KnownGroup,
    process: &ProcessInfo,
    timeline: &Timeline,
    message: u64,
) -> WrittenEntry {
    let what = &record.entry;
    let is_p2p = !what.kind.is_collective();
    let completed = record.ended != 0 && !record.failed;
    let at = |ticks: u64| (ticks != 0).then(|| timeline.realtime_ns(ticks));
    let [input, output] = sizes(record, group);
    let dtype = dtype(record);
    WrittenEntry {
        record_id: record.number,
        pg_id: record.group,
        process_group: [unique(group), group.info.name.clone()],
        collective_seq_id: if is_p2p { 0 } else { what.sequence },
        p2p_seq_id: if is_p2p { message } else { 0 },
        op_id: record.number,
        profiling_name: format!("weft:{}", operation(record, group)),
        time_created_ns: timeline.realtime_ns(record.issued),
        input_sizes: [[input]],
        input_dtypes: [torch_name(dtype)],
        output_sizes: [[output]],
        output_dtypes: [torch_name(dtype)],
        state: match (completed, record.begun) {
            (true, _) => "completed",
            (false, 0) => "scheduled",
            (false, _) => "started",
        },
        time_discovered_started_ns: at(record.begun),
        time_discovered_completed_ns: at(record.ended).filter(|_| completed),
        retired: completed,
        timeout_ms: group.info.timeout.as_millis() as u64,
        is_p2p,
        frames: [],
        weft: details(record, group, process, dtype),
    }
}

/// The type of an operation's elements.
pub(super) fn dtype(record: &Record) -> DType {
    let found = DType::ALL.get(usize::from(record.entry.dtype));
    found.copied().unwrap_or(DType::U8)
}

fn details(record: &Record, group: &KnownGroup, process: &ProcessInfo, dtype: DType) -> Details {
    let what = &record.entry;
    let is_p2p = !what.kind.is_collective();
    let rank = Some(what.rank).filter(|rank| *rank != NO_RANK);
    let collective = collective(what.kind);
    let plan = || group.plans.get(&(collective?, what.plan)).cloned();
    let reduces =
        Collective::named(collective.unwrap_or_default(), 0).is_some_and(Collective::reduces);
    Details {
        count: what.count,
        per_rank: what.kind.is_per_rank(),
        dtype: dtype.name(),
        op: (process.op_names.get(usize::from(what.op)).copied()).filter(|_| reduces),
        root: rank.filter(|_| !is_p2p),
        peer: rank.filter(|_| is_p2p),
        tag: what.kind.is_message().then_some(what.sequence),
        buffer: what.kind.as_one_sided().map(|_| what.sequence),
        algorithm: plan(),
        plan: (what.plan != 0).then(|| format!("{:04x}", what.plan)),
        priority: what.priority,
        internal: what.kind.is_internal(),
        failed: record.failed,
    }
}

/// weft's name of the collective.
fn collective(kind: Kind) -> Option<&'static str> {
    Collective::NAMES.get(usize::from(kind.base().0)).copied()
}

/// The operation's name in PyTorch's form, "all_reduce" or "send 0->1", also for one-sided ones.
pub(super) fn operation(record: &Record, group: &KnownGroup) -> String {
    let (me, peer) = (group.info.rank, record.entry.rank);
    if let Some(kind) = record.entry.kind.as_one_sided() {
        let name = kind.name().replace('-', "_");
        return match kind {
            OneSidedKind::Get => format!("{name} {me}<-{peer}"),
            OneSidedKind::WaitSignal => format!("{name} {me}<-?"),
            OneSidedKind::Quiet => name,
            _ => format!("{name} {me}->{peer}"),
        };
    }
    match record.entry.kind.base() {
        Kind::SEND => format!("send {me}->{peer}"),
        Kind::RECEIVE if peer == NO_RANK => format!("recv {me}<-?"),
        Kind::RECEIVE => format!("recv {me}<-{peer}"),
        kind => {
            let name = collective(kind).unwrap_or("?").replace('-', "_");
            match (name.as_str(), record.entry.kind.is_per_rank()) {
                ("all_gather" | "reduce_scatter", true) => name + "_v",
                _ => name,
            }
        }
    }
}

/// The elements of this rank's input and output. With counts per rank, those of the whole message
/// if all ranks know it, otherwise 0: the analyzer reports sizes that differ as mismatches.
fn sizes(record: &Record, group: &KnownGroup) -> [u64; 2] {
    let count = record.entry.count;
    let all = count.saturating_mul(group.info.global_ranks.len() as u64);
    let at_root = |elements| match record.entry.rank == group.info.rank {
        true => elements,
        false => 0,
    };
    match (
        collective(record.entry.kind),
        record.entry.kind.is_per_rank(),
    ) {
        (Some("all-gather" | "reduce-scatter"), true) => [count, count],
        (Some(_), true) => [0, 0],
        (Some("all-gather"), _) => [count, all],
        (Some("reduce-scatter"), _) => [all, count],
        (Some("all-to-all"), _) => [all, all],
        (Some("gather"), _) => [count, at_root(all)],
        (Some("scatter"), _) => [at_root(all), count],
        _ => [count, count],
    }
}

/// The type's name in PyTorch's recorder.
fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "Double",
        DType::F32 => "Float",
        DType::F16 => "Half",
        DType::Bf16 => "BFloat16",
        DType::I64 => "Long",
        DType::I32 => "Int",
        DType::I16 => "Short",
        DType::I8 => "Char",
        DType::U64 => "UInt64",
        DType::U32 => "UInt32",
        DType::U16 => "UInt16",
        DType::U8 => "Byte",
        DType::Bool => "Bool",
    }
}
