//! The verdict that ranks print by themselves once they have waited for long.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use weft_channel::RankStatus;

use super::super::group_state::GroupState;
use super::super::state::ProgressState;
use super::report::{collect, members};
use super::verdict::{SilentRank, verdict};

/// A wait is reported after this part of the operation's timeout.
const PART_OF_TIMEOUT: u32 = 10;
/// And never earlier.
const WAIT_MIN: Duration = Duration::from_secs(2);
/// Ranks begin one after the other, so that the first one's inquiry keeps the others quiet.
const STAGGER: Duration = Duration::from_millis(20);
const STAGGERED_MAX: u32 = 50;

impl ProgressState {
    /// Reports an operation that has taken long for its timeout.
    pub(in crate::progress) fn report_long_waits(&mut self, now: Instant) {
        if self.watchdog.rests(now) {
            return;
        }
        let Some(group) = self.groups.values().find(|group| waits_long(group, now)) else {
            return;
        };
        let (id, members) = (group.id, members(group));
        let (sender, receiver) = channel();
        if self.begin_inquiry(id, sender, true).is_ok() {
            // Standard error may block, and a thread that cannot be started reports nothing.
            let thread = thread::Builder::new().name("weft-report".into());
            let _ = thread.spawn(move || print(&receiver, &members));
        }
    }
}

/// Whether a collective of a group has waited for long, so that this rank reports it.
fn waits_long(group: &GroupState, now: Instant) -> bool {
    let oldest = group.executor.operations.front();
    oldest.is_some_and(|operation| {
        let left = operation.due.deadline.saturating_duration_since(now);
        let elapsed = operation.due.allowed.saturating_sub(left);
        let stagger = STAGGER * group.connections.rank.min(STAGGERED_MAX);
        elapsed >= (operation.due.allowed / PART_OF_TIMEOUT).max(WAIT_MIN) + stagger
    })
}

fn print(receiver: &Receiver<RankStatus>, members: &[SilentRank]) {
    let (ranks, silent) = collect(receiver, members, &[]);
    let found = verdict(&ranks, &silent);
    // A standard error that cannot be written to, as a broken pipe, ends nothing.
    let _ = writeln!(io::stderr(), "weft: {} (weft top shows more)", found.text());
}
