//! The present of an endpoint, read from its records: what is under way, and how far groups are.

use std::collections::BTreeMap;
use std::time::Duration;

use weft_transport::Timeline;

use super::known::{KnownGroup, RecorderState};
use super::layout;
use super::recorder::FlightRecorder;
use super::ring::Record;

/// The present operations of an endpoint.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Activity {
    /// Operations that it has called.
    pub operations: u64,
    /// The time since one was last called or ended.
    pub quiet: Duration,
    /// Open groups, those with the latest calls first.
    pub groups: Vec<GroupActivity>,
    /// The oldest operation that has not ended: of collectives, if there is one.
    pub current: Option<RecordedOperation>,
}

/// How far an endpoint has come with the collectives of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupActivity {
    /// The group's identity.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The last that was called.
    pub called: Option<u64>,
    /// The last of those that ended without an earlier one being under way.
    pub completed: Option<u64>,
}

/// An operation that has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedOperation {
    /// The identity of its group.
    pub group: u64,
    /// Its number, if it is a collective.
    pub sequence: Option<u64>,
    /// "all_reduce of 4 MiB".
    pub text: String,
    /// The time since the call.
    pub age: Duration,
}

impl FlightRecorder {
    /// Returns the endpoint's present operations, as far as its records go back.
    pub fn activity(&self) -> Activity {
        let records = self.ring.records();
        let timeline = self.timeline();
        self.with_known(|known| activity(&records, self.ring.issued(), known, &timeline))
    }
}

fn activity(
    records: &[Record],
    operations: u64,
    known: &RecorderState,
    timeline: &Timeline,
) -> Activity {
    let open: BTreeMap<u32, &KnownGroup> = (known.groups.iter())
        .filter(|(_, group)| !group.closed)
        .map(|(number, group)| (*number, group))
        .collect();
    let age = |ticks| {
        let now = timeline.monotonic_ns(timeline.end());
        Duration::from_nanos(now.saturating_sub(timeline.monotonic_ns(ticks)))
    };
    let last = records.iter().map(|record| record.issued.max(record.ended));
    let under_way = records
        .iter()
        .filter_map(|record| Some((record, *open.get(&record.group)?)))
        .filter(|(record, _)| record.ended == 0)
        .min_by_key(|(record, _)| (!record.entry.kind.is_collective(), record.number));
    let mut groups: Vec<(u64, GroupActivity)> = (open.iter())
        .map(|(number, group)| of_group(*number, group, records))
        .collect();
    groups.sort_by_key(|(latest, _)| std::cmp::Reverse(*latest));
    Activity {
        operations,
        quiet: last.max().map_or(Duration::ZERO, age),
        groups: groups.into_iter().map(|(_, group)| group).collect(),
        current: under_way.map(|(record, group)| RecordedOperation {
            group: group.info.id,
            sequence: (record.entry.kind.is_collective()).then_some(record.entry.sequence),
            text: text(record, group),
            age: age(record.issued),
        }),
    }
}

/// A group's activity, and the number of its latest record.
fn of_group(number: u32, group: &KnownGroup, records: &[Record]) -> (u64, GroupActivity) {
    let of_group = || records.iter().filter(|record| record.group == number);
    let collectives = || of_group().filter(|record| record.entry.kind.is_collective());
    let called = collectives().map(|record| record.entry.sequence).max();
    let open = collectives().filter(|record| record.ended == 0);
    let first_open = open.map(|record| record.entry.sequence).min();
    let completed = match first_open {
        None => called,
        Some(first) => first.checked_sub(1),
    };
    let latest = of_group().map(|record| record.number + 1).max();
    let activity = GroupActivity {
        id: group.info.id,
        name: group.info.name.clone(),
        called,
        completed,
    };
    (latest.unwrap_or(0), activity)
}

fn text(record: &Record, group: &KnownGroup) -> String {
    let name = layout::operation(record, group);
    let itemsize = layout::dtype(record).size() as u64;
    match record.entry.count.saturating_mul(itemsize) {
        0 => name,
        bytes => format!("{name} of {}", readable(bytes)),
    }
}

/// "4 MiB", "1.5 KiB", "12 bytes".
fn readable(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = UNITS.into_iter().find(|(_, shift)| bytes >> shift != 0);
    let Some((unit, shift)) = unit else {
        return format!("{bytes} bytes");
    };
    let tenths = (bytes * 10) >> shift;
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        rest => format!("{}.{rest} {unit}", tenths / 10),
    }
}
