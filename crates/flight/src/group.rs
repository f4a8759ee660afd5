//! One group's way to the recorder, and the handle of a recorded operation.

use std::sync::Arc;

use super::known::GroupInfo;
use super::recorder::FlightRecorder;
use super::ring::{Entry, short_plan};

/// The recorder, as one group uses it.
#[derive(Clone)]
pub struct GroupFlight {
    recorder: Arc<FlightRecorder>,
    group: u32,
}

impl GroupFlight {
    /// Makes a group known.
    pub fn new(recorder: &Arc<FlightRecorder>, info: GroupInfo) -> Self {
        GroupFlight {
            group: recorder.add_group(info),
            recorder: recorder.clone(),
        }
    }

    /// Records an operation that is issued now; `begins`: and starts at the same moment.
    #[inline(always)]
    pub fn issue(&self, entry: &Entry, begins: bool) -> u64 {
        self.recorder.ring.issue(self.group, entry, begins)
    }

    /// Records an operation that begins and ends with its call.
    pub fn at_once(&self, entry: &Entry) {
        self.end(self.issue(entry, true));
    }

    /// Takes note that an operation has ended well.
    #[inline(always)]
    pub fn end(&self, number: u64) {
        self.recorder.ring.end(number, false);
    }

    /// Takes note that an operation begins; `plan`: by which plan, or 0 if that is known.
    pub fn begin(&self, number: u64, plan: u64) {
        self.recorder.ring.begin(number, short_plan(plan));
    }

    /// Takes note that weft itself calls an operation, before one that the user has called.
    pub fn mark_internal(&self, number: u64) {
        self.recorder.ring.mark_internal(number);
    }

    /// An operation's handle for its completion.
    pub fn recorded(&self, number: u64) -> Recorded {
        Recorded {
            recorder: self.recorder.clone(),
            number,
        }
    }

    /// Takes note of the name of a plan.
    pub fn name_plan(&self, collective: &'static str, plan: u64, name: &str) {
        self.recorder
            .name_plan(self.group, (collective, short_plan(plan)), name);
    }

    /// Takes note that the group has failed. Where records are written, if they are.
    pub fn failed(&self, why: &str) -> Option<String> {
        self.recorder.failed(self.group, why)
    }

    /// Takes note that nothing more is called in the group.
    pub fn close(&self) {
        self.recorder.close_group(self.group);
    }
}

/// A recorded operation under way.
pub struct Recorded {
    recorder: Arc<FlightRecorder>,
    number: u64,
}

impl Recorded {
    /// Takes note that it begins; `plan`: by which plan, or 0 if that is known.
    pub fn begin(&self, plan: u64) {
        self.recorder.ring.begin(self.number, short_plan(plan));
    }

    /// Takes note of whom a message came from, with which it begins.
    pub fn matched(&self, peer: u32) {
        self.recorder.ring.set_peer(self.number, peer);
        self.begin(0);
    }

    /// Takes note that it has ended.
    pub fn end(&self, failed: bool) {
        self.recorder.ring.end(self.number, failed);
    }
}
