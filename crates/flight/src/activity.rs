//! The present of an endpoint, read from its records: what is under way, and how far groups are.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
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
    /// The time since one was last called or ended, or a group was made.
    pub quiet: Duration,
    /// Open groups, those with the latest calls first.
    pub groups: Vec<GroupActivity>,
    /// The oldest operation that has not ended: of collectives, if there is one.
    pub current: Option<RecordedOperation>,
}

/// How far an endpoint has come with the collectives of a group.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    let calls = records.iter().map(|record| record.issued.max(record.ended));
    let last = calls.chain(open.values().map(|group| group.since)).max();
    let under_way = records
        .iter()
        .filter_map(|record| Some((record, *open.get(&record.group)?)))
        .filter(|(record, _)| record.ended == 0)
        .min_by_key(|(record, _)| (!record.entry.kind.is_collective(), record.number));
    let mut reached: BTreeMap<u32, Reached> = BTreeMap::new();
    for record in records {
        reached.entry(record.group).or_default().note(record);
    }
    let mut groups: Vec<(u64, GroupActivity)> = (open.iter())
        .map(|(number, group)| {
            let reached = reached.remove(number).unwrap_or_default();
            (reached.latest, reached.activity(group))
        })
        .collect();
    groups.sort_by_key(|(latest, _)| std::cmp::Reverse(*latest));
    Activity {
        operations,
        quiet: last.map_or(Duration::ZERO, age),
        groups: groups.into_iter().map(|(_, group)| group).collect(),
        current: under_way.map(|(record, group)| RecordedOperation {
            group: group.info.id,
            sequence: (record.entry.kind.is_collective()).then_some(record.entry.sequence),
            text: text(record, group),
            age: age(record.issued),
        }),
    }
}

/// The records of one group, summed up.
#[derive(Default)]
struct Reached {
    /// The number of the latest record and 1; 0 without records.
    latest: u64,
    /// Of collectives, the highest sequence, and the lowest of those that have not ended.
    called: Option<u64>,
    first_open: Option<u64>,
}

impl Reached {
    fn note(&mut self, record: &Record) {
        self.latest = self.latest.max(record.number + 1);
        if !record.entry.kind.is_collective() {
            return;
        }
        let sequence = record.entry.sequence;
        self.called = self.called.max(Some(sequence));
        if record.ended == 0 {
            let first = self
                .first_open
                .map_or(sequence, |first| first.min(sequence));
            self.first_open = Some(first);
        }
    }

    fn activity(&self, group: &KnownGroup) -> GroupActivity {
        GroupActivity {
            id: group.info.id,
            name: group.info.name.clone(),
            called: self.called,
            completed: match self.first_open {
                None => self.called,
                Some(first) => first.checked_sub(1),
            },
        }
    }
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
pub fn readable(bytes: u64) -> String {
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
