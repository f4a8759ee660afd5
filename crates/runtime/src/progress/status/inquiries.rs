//! Inquiries of the last seconds: see [Note: Inquiries].

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use weft_channel::RankStatus;
use weft_transport::EndpointId;

/// Inquiries that are remembered: more at once are not answered.
pub(super) const INQUIRIES_MAX: usize = 256;
/// How long one is remembered.
const REMEMBERED: Duration = Duration::from_secs(2);

/// The time between two reports of a process.
const PAUSE: Duration = Duration::from_secs(60);

/// An inquiry that was received.
struct Inquiry {
    number: u64,
    since: Instant,
    origin: Origin,
}

/// Where statuses go.
pub(super) enum Origin {
    /// To the peer that has asked.
    Peer(EndpointId),
    /// To this rank's own asker.
    Here(Sender<RankStatus>),
}

/// The inquiries of the last seconds.
#[derive(Default)]
pub(crate) struct Inquiries(VecDeque<Inquiry>);

impl Inquiries {
    /// Remembers an inquiry; false if it is known, or there are too many.
    pub(super) fn add(&mut self, number: u64, origin: Origin) -> bool {
        let now = Instant::now();
        let over = |inquiry: &Inquiry| now - inquiry.since >= REMEMBERED;
        while self.0.front().is_some_and(over) {
            self.0.pop_front();
        }
        let known = self.0.iter().any(|inquiry| inquiry.number == number);
        if known || self.0.len() == INQUIRIES_MAX {
            return false;
        }
        self.0.push_back(Inquiry {
            number,
            since: now,
            origin,
        });
        true
    }

    pub(super) fn origin(&self, number: u64) -> Option<&Origin> {
        let mut inquiries = self.0.iter();
        let inquiry = inquiries.find(|inquiry| inquiry.number == number)?;
        Some(&inquiry.origin)
    }
}

/// The reports that ranks of this process's groups have begun by themselves.
#[derive(Default)]
pub(in crate::progress) struct Watchdog {
    /// When a rank last began one.
    last: Option<Instant>,
}

impl Watchdog {
    /// Takes note that a rank reports: the others need not.
    pub(super) fn note(&mut self, now: Instant) {
        self.last = Some(now);
    }

    pub(super) fn rests(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now - last < PAUSE)
    }
}
