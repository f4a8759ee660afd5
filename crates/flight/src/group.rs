//! A group's access to the recorder, and the handle of a recorded operation.

use std::sync::Arc;

use super::known::{GroupInfo, RecordedJob};
use super::recorder::FlightRecorder;
use super::ring::{Entry, short_plan};

/// The recorder, as one group uses it.
#[derive(Clone)]
pub struct GroupFlight {
    recorder: Arc<FlightRecorder>,
    group: u32,
}

impl GroupFlight {
    /// Registers a group with the recorder.
    pub fn new(recorder: &Arc<FlightRecorder>, info: GroupInfo) -> Self {
        GroupFlight {
            group: recorder.add_group(info),
            recorder: recorder.clone(),
        }
    }

    /// Records an operation that is issued now and, if `begins`, also begins now. Returns its
    /// number.
    #[inline(always)]
    pub fn issue(&self, entry: &Entry, begins: bool) -> u64 {
        self.recorder.ring.issue(self.group, entry, begins)
    }

    /// Records an operation that begins and ends with its call.
    pub fn immediate(&self, entry: &Entry) {
        self.end(self.issue(entry, true));
    }

    /// Records the successful end of an operation.
    #[inline(always)]
    pub fn end(&self, number: u64) {
        self.recorder.ring.end(number, false);
    }

    /// Records that an operation begins; `plan`: its plan, or 0 if already recorded.
    pub fn begin(&self, number: u64, plan: u64) {
        self.recorder.ring.begin(number, short_plan(plan));
    }

    /// Marks an operation that weft itself calls before one of the user's.
    pub fn mark_internal(&self, number: u64) {
        self.recorder.ring.mark_internal(number);
    }

    /// The handle of an operation, for its completion.
    pub fn recorded(&self, number: u64) -> Recorded {
        Recorded {
            recorder: self.recorder.clone(),
            number,
        }
    }

    /// Records the name of a plan.
    pub fn name_plan(&self, collective: &'static str, plan: u64, name: &str) {
        self.recorder
            .name_plan(self.group, (collective, short_plan(plan)), name);
    }

    /// Records the failure of the group. Returns the directory of the written records, if any.
    pub fn failed(&self, why: &str) -> Option<String> {
        self.recorder.failed(self.group, why)
    }

    /// Records that the group is closed. Returns the job if it was the last group of it.
    pub fn close(&self) -> Option<RecordedJob> {
        self.recorder.close_group(self.group)
    }
}

/// A recorded operation that has not ended.
pub struct Recorded {
    recorder: Arc<FlightRecorder>,
    number: u64,
}

impl Recorded {
    /// Records that it begins; `plan`: its plan, or 0 if already recorded.
    pub fn begin(&self, plan: u64) {
        self.recorder.ring.begin(self.number, short_plan(plan));
    }

    /// Records the sender of a message, and that its operation begins.
    pub fn matched(&self, peer: u32) {
        self.recorder.ring.set_peer(self.number, peer);
        self.begin(0);
    }

    /// Records that it has ended.
    pub fn end(&self, failed: bool) {
        self.recorder.ring.end(self.number, failed);
    }
}
