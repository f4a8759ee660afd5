//! The last calls to a peer that is about to count as lost.
//!
//! The kernel repeats what a cut line has lost, or probes an idle connection, at intervals of a
//! second and more. So a line may be whole again before the peer timeout has passed, and the
//! connection still silent. Shortly before, the peer is called anew: if it answers, the connection
//! gets the time until the kernel's next try.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crate::connection::TcpConnection;
use crate::socket::{Connecting, probe_interval};
use crate::ways::Way;

/// How long before the loss of a peer it is called.
pub(crate) const BEFORE: Duration = Duration::from_millis(750);
/// The time for an answer to the kernel's next try.
const ANSWERED: Duration = Duration::from_millis(100);

/// Those of a link.
#[derive(Default)]
pub(crate) struct LastCalls {
    under_way: Vec<Connecting>,
    /// When the peer first answered.
    answered: Option<Instant>,
}

impl LastCalls {
    /// Takes note of an answer, and calls once more without one: the first packet of a call may be
    /// lost, and the kernel repeats it after a second only.
    pub(crate) fn call(&mut self, link: &TcpConnection, now: Instant) {
        for call in std::mem::take(&mut self.under_way) {
            match call.is_over() {
                false => self.under_way.push(call),
                true if call.finish().is_ok() => _ = self.answered.get_or_insert(now),
                true => {}
            }
        }
        if let (None, Some(way)) = (self.answered, silent_way(link)) {
            self.under_way
                .extend(Connecting::start(way.source, way.target));
        }
    }

    /// Whether the peer has answered, and the kernel has not tried for certain since.
    pub(crate) fn give_time(&self, peer_timeout: Duration, now: Instant) -> bool {
        let time = probe_interval(peer_timeout) + ANSWERED;
        self.answered.is_some_and(|answered| now - answered < time)
    }
}

/// The way of the connection that has been silent for longest, if it can be called.
fn silent_way(link: &TcpConnection) -> Option<Way> {
    let numbered = link.sockets.iter().enumerate();
    let silent = numbered.filter_map(|(number, socket)| Some((socket.silence()?, number)));
    let (_, number) = silent.max()?;
    let (ways, ends) = (link.ways.get(number)?, link.sockets[number].ends()?);
    let own = ways.iter().find(|way| way.is_between(ends));
    own.or(ways.first()).copied()
}
