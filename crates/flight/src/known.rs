//! State of a recorder besides its ring: process, groups and failures.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Prefix of the directory of a job in the user's directory.
const JOB_PREFIX: &str = "job-";

/// A group's description for the recorder.
#[derive(Clone, Debug)]
pub struct GroupInfo {
    /// The group's identity.
    pub id: u64,
    /// The group's name.
    pub name: String,
    /// This rank's number in the group.
    pub rank: u32,
    /// The ranks' numbers in the world.
    pub global_ranks: Vec<u32>,
    /// The timeout of the group's operations.
    pub timeout: Duration,
}

/// The process that the records belong to.
#[derive(Clone, Default, Debug)]
pub struct ProcessInfo {
    /// The host's name.
    pub host_name: String,
    /// The boot identifier of the host's kernel, which distinguishes hosts.
    pub boot_id: String,
    /// The process identifier.
    pub pid: u32,
    /// The names of reductions, by [`super::Entry::op`].
    pub op_names: &'static [&'static str],
}

/// The recorder's state of a group.
pub(super) struct KnownGroup {
    pub(super) info: GroupInfo,
    /// The names of plans, by collective and by [`super::short_plan`] of their hash.
    pub(super) plans: BTreeMap<(&'static str, u16), String>,
    pub(super) closed: bool,
    /// When it was made.
    pub(super) since: u64,
}

/// A group's failure.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) group: u32,
    pub(super) at: u64,
    pub(super) why: String,
}

/// A connection that broke and was made anew.
#[derive(Clone, Debug)]
pub(super) struct NotedRenewal {
    pub(super) at: u64,
    pub(super) what: String,
}

/// A job: a first group, and all that are made while a group is open. After a process has closed
/// all of its groups, the next group begins another job.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RecordedJob {
    /// The first group's identity.
    pub(super) id: u64,
    /// The rank's number in the world.
    pub(super) rank: u32,
    /// The first group's number.
    pub(super) first: u32,
}

impl RecordedJob {
    /// The name of the job's directory.
    pub(super) fn directory(&self) -> String {
        format!("{JOB_PREFIX}{:016x}", self.id)
    }
}

/// The state besides the ring.
#[derive(Default)]
pub(super) struct RecorderState {
    pub(super) groups: BTreeMap<u32, KnownGroup>,
    pub(super) next_group: u32,
    pub(super) failures: Vec<Failure>,
    /// The last ones.
    pub(super) renewals: VecDeque<NotedRenewal>,
    /// The last job.
    pub(super) job: Option<RecordedJob>,
}
