//! Shifts of silent connections: to another network and back, or to a new one over the same.
//!
//! [Note: Shifts] A connection is left alone until the peer has proven over another network that it
//! is there: if nothing answers, TCP goes on, and the peer timeout counts. Then the connection is
//! made anew there, as after a reset. Its old socket is closed only with that: the peer must learn
//! of the new one first, as the end of a connection without a goodbye mostly means a process's end.
//! An end that has not made the link knocks over another network, and changes nothing by itself. A
//! knock that comes over another network than the connection's makes the maker leave that one, too.
//! Connections of other links follow ([Note: Lost ways]).
//!
//! [Note: Forgotten connections] A translator of addresses or a firewall that has forgotten a
//! connection drops its packets, and passes those of new ones. So where no other network answers,
//! a new connection over the same network is tried. That the peer answers there says nothing yet:
//! all packets may have been lost until just now. It does if the kernel then repeats something on
//! the old connection, and again nothing answers. An idle one is probed at intervals of up to a
//! fifth of the peer timeout: it gets something to repeat. What is not kept cannot be sent again:
//! then the old connection is left alone.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::fork::Descriptor;
use weft_transport::{LinkError, PerProcess};

use crate::carrier::Break;
use crate::class::Class;
use crate::connection::{ConnectionEnd, Renewal, TcpConnection};
use crate::dialer::{ADDRESS_TIMEOUT, Call};
use crate::frame::Frame;
use crate::handshake::LinkPart;
use crate::lock::lock;
use crate::losses::{self, Concern, Ends};
use crate::patience::Patience;
use crate::renewal::Attempt;
use crate::ways::{STAGGER, Way, connect_any};

/// How long the search for a network that answers may take. Then it begins again.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait until the kernel repeats something. A listener waits longer for a caller.
const REPEAT_TIMEOUT: Duration = Duration::from_millis(1500);
const REPEAT_POLL: Duration = Duration::from_millis(10);
/// The time for an answer to that, beside two round trips.
const ANSWERED: Duration = Duration::from_millis(30);

/// The searches of a process that are under way: each has a thread.
static SEARCHES: PerProcess<AtomicUsize> = PerProcess::new(Default::default);
const SEARCHES_MAX: usize = 64;

/// The right to search. When a host vanishes, all links to its ranks fall silent.
struct SearchPlace;

impl SearchPlace {
    fn take() -> Option<SearchPlace> {
        let place = |taken: usize| (taken < SEARCHES_MAX).then(|| taken + 1);
        let taken = (SEARCHES.get()).fetch_update(Ordering::Relaxed, Ordering::Relaxed, place);
        taken.is_ok().then(|| SearchPlace)
    }
}

impl Drop for SearchPlace {
    fn drop(&mut self) {
        SEARCHES.get().fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a connection leaves its network.
#[derive(Clone, Copy)]
pub(crate) enum Reason {
    /// The kernel has repeated something, and nothing has arrived for this long.
    Silent(Duration),
    /// Another link has lost the network, and nothing has arrived for this long.
    Lost { quiet: Duration, concern: Concern },
    /// The peer asks for it.
    Asked,
}

impl Reason {
    fn silence(self) -> Duration {
        match self {
            Reason::Silent(silence) | Reason::Lost { quiet: silence, .. } => silence,
            Reason::Asked => Duration::ZERO,
        }
    }

    /// Whether its present network must be called first.
    fn is_to_be_proven(self) -> bool {
        matches!(
            self,
            Reason::Lost {
                concern: Concern::Address,
                ..
            }
        )
    }

    fn text(self) -> String {
        let seconds = self.silence().as_secs_f64();
        match self {
            Reason::Silent(_) => format!("was silent for {seconds:.1} s"),
            Reason::Lost { .. } => {
                format!("was lost by another link, and quiet for {seconds:.1} s")
            }
            Reason::Asked => "was silent at its end".into(),
        }
    }
}

impl TcpConnection {
    /// Starts to shift a connection away from its network. False if that is not possible now.
    pub(crate) fn shift_away(self: &Arc<Self>, number: usize, reason: Reason) -> bool {
        // If it does not succeed, it is tried again.
        let Some(place) = SearchPlace::take() else {
            return false;
        };
        self.start_renewing_after(number, move |link, renewal| {
            let _ = link.leave(renewal, number, reason);
            drop(place);
        })
    }

    /// Starts to shift a connection away from its network, as the peer asks for over another one.
    pub(crate) fn shift_as_asked(self: &Arc<Self>, number: usize) {
        self.start_renewing_after(number, move |link, renewal| {
            if link.leave(renewal, number, Reason::Asked).is_err() {
                let why = "its end of the connection broke".into();
                let mut line = lock(&link.carriers[number].line);
                link.note_break(number, &mut line, Break::now(why));
            }
        });
    }

    /// Starts to shift a connection to its own network, over which this stream goes.
    pub(crate) fn shift_home(self: &Arc<Self>, number: usize, stream: Descriptor<TcpStream>) {
        self.start_renewing_after(number, move |link, renewal| {
            let _ = link.go_home(renewal, number, stream);
        });
    }

    /// Records that a connection leaves its network, as the peer has called for it over another
    /// one, from this address to that. A return to its own is no loss.
    pub(crate) fn note_leaving(&self, number: usize, to: Option<Ends>) {
        let (Some(from), Some(to)) = (self.sockets[number].ends(), to) else {
            return;
        };
        let returns = |own: &Way| own.is_between(to);
        if from != to && !self.ways[number].first().is_some_and(returns) {
            losses::record(from);
        }
    }

    /// Shifts a connection to another network, if the peer answers there, and the reason to leave
    /// its present one still holds.
    fn leave(&self, renewal: &Renewal, number: usize, reason: Reason) -> Result<(), LinkError> {
        let since = Instant::now() - reason.silence();
        let Some(ends) = self.sockets[number].ends() else {
            return Ok(());
        };
        if reason.is_to_be_proven() && self.answers_between(number, ends) {
            return Ok(());
        }
        let elsewhere = |way: &&Way| renewal.has_rails() && !way.is_between(ends);
        let ways: Vec<Way> = self.ways[number]
            .iter()
            .filter(elsewhere)
            .copied()
            .collect();
        let part = self.next_part(renewal, number);
        let to = (renewal.peer, &renewal.address);
        let patience = self.patience(SEARCH_TIMEOUT);
        let call = match renewal.dialer.call(to, part, &ways, patience) {
            Err(LinkError::Cancelled) => return Ok(()),
            Err(_) if matches!(reason, Reason::Silent(_)) => {
                match self.call_beside(renewal, part)? {
                    Some(call) => call,
                    None => return Ok(()),
                }
            }
            found => found?,
        };
        if !self.still_holds(number, reason) {
            return Ok(());
        }
        let answers = match call.host() {
            host if host == ends.1.to_string() => "it answers on a new connection".into(),
            host => {
                losses::record(ends);
                format!("{host} answers")
            }
        };
        if !renewal.calls {
            return self.knock(renewal, part, call);
        }
        let why = format!("{} {}, while {answers}", ends.1, reason.text());
        self.exchange(renewal, part, call, Break { why, since })
    }

    fn still_holds(&self, number: usize, reason: Reason) -> bool {
        let socket = &self.sockets[number];
        match reason {
            Reason::Silent(_) => socket.stall().is_some(),
            Reason::Lost { quiet, .. } => socket.quiet().is_some_and(|now| now >= quiet),
            Reason::Asked => true,
        }
    }

    /// Whether the peer's host answers a new connection between the ends of one.
    fn answers_between(&self, number: usize, ends: Ends) -> bool {
        let present = self.ways[number].iter().find(|way| way.is_between(ends));
        let call = |way: &Way| connect_any(&[*way], STAGGER, self.patience(STAGGER));
        // Nothing may listen any more. A way that is not known cannot be called.
        present.is_none_or(|way| matches!(call(way), Ok(_) | Err(LinkError::Absent(_))))
    }

    /// Calls over any network, the connection's own as well, if that shows that the connection has
    /// been forgotten on the way. See [Note: Forgotten connections].
    fn call_beside(&self, renewal: &Renewal, part: LinkPart) -> Result<Option<Call>, LinkError> {
        let number = usize::from(part.connection);
        if !self.is_whole(number) {
            return Ok(None);
        }
        let to = (renewal.peer, &renewal.address);
        let patience = self.patience(SEARCH_TIMEOUT);
        let call = (renewal.dialer).call(to, part, &self.ways[number], patience)?;
        let Some(before) = self.sockets[number].stall() else {
            return Ok(None);
        };
        if before.is_idle {
            self.send_something(number);
        }
        let deadline = Instant::now() + REPEAT_TIMEOUT;
        let mut repeated = None;
        while Instant::now() < deadline && !self.over.load(Ordering::Acquire) {
            thread::sleep(REPEAT_POLL);
            let Some(now) = self.sockets[number].stall() else {
                return Ok(None);
            };
            if now.tries != before.tries {
                let since = repeated.get_or_insert_with(Instant::now);
                if since.elapsed() >= ANSWERED + 2 * now.round_trip {
                    return Ok(Some(call).filter(|_| self.is_whole(number)));
                }
            }
        }
        Ok(None)
    }

    /// Sends a frame without effect.
    fn send_something(&self, number: usize) {
        let mut outgoing = lock(&self.carriers[number].outgoing);
        let mut send = |slices: &[IoSlice<'_>]| self.sockets[number].send(slices);
        let queued = outgoing.frame(Class::Ordinary, &Frame::NOTHING, &[], &mut send);
        // If it cannot be sent, the connection's end is noticed when it is read.
        let _ = queued.and_then(|()| outgoing.flush(&mut send));
    }

    /// Whether everything that the peer may lack can be sent again.
    fn is_whole(&self, number: usize) -> bool {
        let mut outgoing = lock(&self.carriers[number].outgoing);
        let kept = outgoing.kept();
        kept.start() == kept.confirmed()
    }

    fn go_home(
        &self,
        renewal: &Renewal,
        number: usize,
        stream: Descriptor<TcpStream>,
    ) -> Result<(), LinkError> {
        let since = Instant::now();
        let part = self.next_part(renewal, number);
        let to = (renewal.peer, &renewal.address);
        let patience = self.patience(SEARCH_TIMEOUT);
        let call = renewal.dialer.call_over(stream, to, part, patience)?;
        let why = format!("{} answers again", call.host());
        self.exchange(renewal, part, call, Break { why, since })
    }

    fn patience(&self, time: Duration) -> Patience<'_> {
        Patience {
            deadline: Instant::now() + time,
            cancel: &self.over,
        }
    }

    /// Makes the other end call. The peer is there; it may have given up the link.
    fn knock(&self, renewal: &Renewal, part: LinkPart, call: Call) -> Result<(), LinkError> {
        let answer = self.conclude(renewal, part, call, self.patience(SEARCH_TIMEOUT))?;
        if matches!(answer, Attempt::Unknown) {
            let why = "its network was silent, and it has given up the link";
            self.end(ConnectionEnd::Gone(why.into()));
        }
        Ok(())
    }

    /// Continues on the connection of a call. If that does not succeed, the connection counts as
    /// broken.
    fn exchange(
        &self,
        renewal: &Renewal,
        part: LinkPart,
        call: Call,
        reason: Break,
    ) -> Result<(), LinkError> {
        let number = usize::from(part.connection);
        let carrier = &self.carriers[number];
        let mut outgoing = lock(&carrier.outgoing);
        let incoming = lock(&carrier.incoming);
        self.note_break(number, &mut lock(&carrier.line), reason);
        outgoing.kept().interrupted = true;
        drop((incoming, outgoing));
        let patience = self.patience(ADDRESS_TIMEOUT);
        let concluded = self.conclude(renewal, part, call, patience);
        // The link's watcher sends what has waited.
        self.announce();
        concluded.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_given_back() {
        // Other tests of the process have none for long.
        let places: Vec<_> = (0..2 * SEARCHES_MAX)
            .map_while(|_| SearchPlace::take())
            .collect();
        assert!(!places.is_empty() && places.len() <= SEARCHES_MAX);
        drop(places);
        assert!(SearchPlace::take().is_some());
    }
}
