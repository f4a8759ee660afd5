//! What the recorder of an endpoint knows besides its ring: process, groups, failures.

use std::collections::BTreeMap;
use std::time::Duration;

/// In a user's directory, the directory of each job begins with this.
const JOB_PREFIX: &str = "job-";

/// What the recorder is told of a group.
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

/// Which process the records are of.
#[derive(Clone, Default, Debug)]
pub struct ProcessInfo {
    /// The host's name.
    pub host_name: String,
    /// The boot of the host's kernel, which tells hosts apart.
    pub boot_id: String,
    /// The process.
    pub pid: u32,
    /// The names of reductions, by what [`super::Entry::op`] says.
    pub op_names: &'static [&'static str],
}

/// A group, as the recorder knows it.
pub(super) struct KnownGroup {
    pub(super) info: GroupInfo,
    /// The names of plans, by collective and by what fingerprints carry.
    pub(super) plans: BTreeMap<(&'static str, u16), String>,
    pub(super) closed: bool,
}

/// A group's failure.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) group: u32,
    pub(super) at: u64,
    pub(super) why: String,
}

/// What records are of: a first group, and all that are made while a group is open. What a process
/// does after it has closed all of its groups is another job.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RecordedJob {
    /// The first group's identity.
    pub(super) id: u64,
    /// The rank's number in the world.
    pub(super) rank: u32,
    /// The first group's number.
    pub(super) first: u32,
}

impl RecordedJob {
    /// The name of its directory.
    pub(super) fn directory(&self) -> String {
        format!("{JOB_PREFIX}{:016x}", self.id)
    }
}

/// What is known besides the ring.
#[derive(Default)]
pub(super) struct RecorderState {
    pub(super) groups: BTreeMap<u32, KnownGroup>,
    pub(super) next_group: u32,
    pub(super) failures: Vec<Failure>,
    /// The last one.
    pub(super) job: Option<RecordedJob>,
}
