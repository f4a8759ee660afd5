//! Connections that are made anew: a link outlives a connection that breaks while both processes
//! live. See [Note: Renewal] for the calls, and [Note: Kept bytes] for what is sent again.
//!
//! A thread of its own makes a broken connection anew, and ends with that, or ends the link: at
//! once when the peer's process has ended (nothing listens at its address) or has given up the
//! link, otherwise when the peer timeout has passed. The end that called for the link calls again;
//! the other one waits for that, and knocks in the meantime. Once a link is closed, only the peer
//! makes its connections anew, to get the goodbye.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::{EndpointId, LinkError};

use crate::broken::CLOSED;
use crate::carrier::{Break, Line};
use crate::connection::{ConnectionEnd, KnownLinks, Renewal, TcpConnection};
use crate::dialer::{ADDRESS_TIMEOUT, Call};
use crate::handshake::{LinkPart, Position, Purpose, RenewalVerdict, Session};
use crate::incoming::{ReceiveProgress, TcpIncoming};
use crate::lock::lock;
use crate::outgoing::TcpOutgoing;
use crate::patience::Patience;
use crate::socket::Socket;

/// How long an end waits for the other's call before it knocks.
const KNOCK_AFTER: Duration = Duration::from_millis(30);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(80);
/// The pause after a knock that was answered.
const KNOCKED_PAUSE: Duration = Duration::from_millis(300);
/// The process at an address has ended when nothing listens there this many times in succession. A
/// middle box that restarts may refuse once.
const REFUSALS: u32 = 2;
/// The pause after a refusal: survivors wait for this.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

/// An attempt takes this part of the peer timeout at most, if that is no less than the duration:
/// the kernel repeats a first packet that a cut line has lost after a second only, when the line
/// may have been whole for long.
const ATTEMPTS_MIN: u32 = 4;
const ATTEMPT_MIN: Duration = Duration::from_millis(400);

/// How long a peer may not answer whose system has closed the connection: mostly its process has
/// ended, and its host or container with it.
const CLOSED_PATIENCE: Duration = Duration::from_millis(600);

impl TcpConnection {
    /// Records that one of the connections broke, and starts to make it anew. False if it cannot
    /// be: then the link must end.
    pub(crate) fn interrupt(self: &Arc<Self>, number: usize, reason: Break) -> bool {
        if self.renewal.is_none() || self.over.load(Ordering::Acquire) {
            return false;
        }
        self.note_break(number, &mut lock(&self.carriers[number].line), reason);
        match self.check() {
            Ok(()) => self.start_renewing(number),
            // A closed link.
            Err(_) => true,
        }
    }

    /// Records why a connection is not used from now on, unless that was recorded already.
    pub(crate) fn note_break(&self, number: usize, line: &mut Line, reason: Break) {
        self.carriers[number].broken.store(true, Ordering::Release);
        line.broken.get_or_insert(reason);
    }

    /// False if no thread can be started.
    fn start_renewing(self: &Arc<Self>, number: usize) -> bool {
        self.start_renewing_after(number, |_, _| {})
    }

    /// Starts a thread that does something with a connection, and makes it anew if it is broken
    /// then. Nothing happens if such a thread is at work already. False if none can be started.
    pub(crate) fn start_renewing_after(
        self: &Arc<Self>,
        number: usize,
        first: impl FnOnce(&Self, &Renewal) + Send + 'static,
    ) -> bool {
        let mut line = lock(&self.carriers[number].line);
        if self.carriers[number].has_left() || std::mem::replace(&mut line.renewing, true) {
            return true;
        }
        let connection = self.clone();
        let builder = thread::Builder::new().name("weft-tcp-renew".into());
        let started = builder.spawn(move || {
            if let Some(renewal) = &connection.renewal {
                first(&connection, renewal);
                connection.renew(renewal, number);
            }
        });
        line.renewing = started.is_ok();
        started.is_ok()
    }

    /// Makes a connection anew that is broken, or ends the link.
    fn renew(&self, renewal: &Renewal, number: usize) {
        while self.is_to_be_renewed(number) {
            self.set_aside(number);
            // The watcher takes what has arrived.
            self.announce();
            if let Err(why) = self.attempt_until_whole(renewal, number) {
                self.end(ConnectionEnd::Gone(why));
            }
            self.announce();
        }
    }

    /// If not, its thread ends.
    fn is_to_be_renewed(&self, number: usize) -> bool {
        let carrier = &self.carriers[number];
        let mut line = lock(&carrier.line);
        line.renewing =
            line.broken.is_some() && !carrier.has_left() && !self.over.load(Ordering::Acquire);
        line.renewing
    }

    /// Takes what has arrived on a broken connection, and closes its socket: what arrives from now
    /// on is sent again.
    pub(crate) fn set_aside(&self, number: usize) {
        let carrier = &self.carriers[number];
        let mut outgoing = lock(&carrier.outgoing);
        let mut incoming = lock(&carrier.incoming);
        let mut line = lock(&carrier.line);
        // The peer may have called meanwhile.
        if line.broken.is_some() {
            self.set_aside_locked(number, &mut outgoing, &mut incoming, &mut line);
        }
    }

    fn set_aside_locked(
        &self,
        number: usize,
        outgoing: &mut TcpOutgoing,
        incoming: &mut TcpIncoming,
        line: &mut Line,
    ) {
        outgoing.kept().interrupted = true;
        if std::mem::replace(&mut line.aside, true) {
            return;
        }
        let socket = &self.sockets[number];
        if self.check().is_ok() {
            self.take_rest(number, incoming);
        }
        line.count(socket.traffic());
        // Without a descriptor left, the broken socket stays until it is replaced. Nothing reads
        // it.
        let _ = socket.set_aside();
    }

    /// Receives what has arrived on a connection that broke, which may end with a goodbye.
    fn take_rest(&self, number: usize, incoming: &mut TcpIncoming) {
        let carrier = &self.carriers[number];
        let mut reader = self.sockets[number].reader();
        loop {
            match incoming.step(&mut reader) {
                Ok(ReceiveProgress::Drained(0)) | Err(LinkError::Io(_)) => break,
                Ok(_) => {}
                Err(LinkError::Left) => {
                    carrier.left.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => {
                    self.end(error.into());
                    break;
                }
            }
        }
        carrier.note_received(incoming);
        if std::mem::take(&mut incoming.signalled) {
            self.doorbell.ring();
        }
    }

    /// Calls, or knocks, until the connection is whole or the link over. An error is the reason to
    /// end the link.
    fn attempt_until_whole(&self, renewal: &Renewal, number: usize) -> Result<(), String> {
        let carrier = &self.carriers[number];
        let Some(Break { why, since }) = lock(&carrier.line).broken.clone() else {
            return Ok(());
        };
        let peer_timeout = renewal.dialer.options.peer_timeout;
        let patience = match why == CLOSED {
            true => peer_timeout.min(CLOSED_PATIENCE),
            false => peer_timeout,
        };
        let deadline = since + patience;
        let (mut refusals, mut last) = (0, String::from("the peer did not call"));
        let mut pause = if renewal.calls {
            Duration::ZERO
        } else {
            KNOCK_AFTER
        };
        loop {
            if self.is_settled_within(number, pause) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "{why}; it was not made anew within {:.1} s: {last}",
                    patience.as_secs_f64()
                ));
            }
            pause = PAUSE;
            match self.attempt(renewal, number, deadline) {
                Ok(Attempt::Over) => return Ok(()),
                Ok(Attempt::Known) => (refusals, pause) = (0, KNOCKED_PAUSE),
                Ok(Attempt::Unknown) => return Err(format!("{why}, and it has given up the link")),
                Ok(Attempt::Lost) => {
                    return Err(format!("{why}, and what was sent last is not kept"));
                }
                Err(LinkError::Absent(_)) => {
                    refusals += 1;
                    if refusals == REFUSALS {
                        return Err(why);
                    }
                    pause = REFUSED_PAUSE;
                }
                Err(error) => (refusals, last) = (0, error.to_string()),
            }
        }
    }

    /// Waits for a moment; true if nothing is left to do then: the connection is whole, the peer
    /// has left, or the link is over.
    fn is_settled_within(&self, number: usize, time: Duration) -> bool {
        let carrier = &self.carriers[number];
        let settled = |line: &mut Line| {
            line.broken.is_none() || carrier.has_left() || self.over.load(Ordering::Acquire)
        };
        let line = lock(&carrier.line);
        let waited = (carrier.repaired).wait_timeout_while(line, time, |line| !settled(line));
        let (mut line, _) = waited.unwrap_or_else(PoisonError::into_inner);
        settled(&mut line)
    }

    /// One call, or knock.
    fn attempt(
        &self,
        renewal: &Renewal,
        number: usize,
        deadline: Instant,
    ) -> Result<Attempt, LinkError> {
        let patience = Patience {
            deadline,
            cancel: &self.over,
        };
        let share = renewal.dialer.options.peer_timeout / ATTEMPTS_MIN;
        let patience = patience.at_most(share.clamp(ATTEMPT_MIN, ADDRESS_TIMEOUT));
        let part = self.next_part(renewal, number);
        let to = (renewal.peer, &renewal.address);
        let call = (renewal.dialer).call(to, part, &self.ways[number], patience)?;
        self.conclude(renewal, part, call, patience)
    }

    /// The subject of the next call, or knock.
    pub(crate) fn next_part(&self, renewal: &Renewal, number: usize) -> LinkPart {
        let mut line = lock(&self.carriers[number].line);
        let (purpose, epoch) = match renewal.calls {
            true => {
                line.called = line.called.max(line.epoch) + 1;
                (Purpose::Renew, line.called)
            }
            false => (Purpose::Knock, line.epoch),
        };
        LinkPart {
            call: renewal.call,
            connection: number as u16,
            cipher: renewal.cipher,
            purpose,
            epoch,
        }
    }

    /// Reports this end's position to the peer, and does what its answer says.
    pub(crate) fn conclude(
        &self,
        renewal: &Renewal,
        part: LinkPart,
        call: Call,
        patience: Patience<'_>,
    ) -> Result<Attempt, LinkError> {
        let number = usize::from(part.connection);
        let (verdict, socket) = call.report(self.position(number), patience)?;
        match verdict {
            RenewalVerdict::Known => Ok(Attempt::Known),
            RenewalVerdict::Unknown => Ok(Attempt::Unknown),
            RenewalVerdict::Resumed(received) if renewal.calls => {
                self.install(number, part.epoch, received, socket)
            }
            RenewalVerdict::Resumed(_) => Ok(Attempt::Unknown),
        }
    }

    /// This end's position on a connection that is not used.
    fn position(&self, number: usize) -> Position {
        let carrier = &self.carriers[number];
        let mut outgoing = lock(&carrier.outgoing);
        let incoming = lock(&carrier.incoming);
        Position {
            received: self.received(&incoming),
            kept: outgoing.kept().start(),
        }
    }

    fn received(&self, incoming: &TcpIncoming) -> u64 {
        match self.check() {
            Ok(()) => incoming.read_position(),
            // A closed link drops what arrives.
            Err(_) => Position::ALL,
        }
    }

    /// Continues on the connection that this end has called for.
    fn install(
        &self,
        number: usize,
        epoch: u32,
        received: u64,
        socket: Socket,
    ) -> Result<Attempt, LinkError> {
        let carrier = &self.carriers[number];
        let mut outgoing = lock(&carrier.outgoing);
        let incoming = lock(&carrier.incoming);
        let mut line = lock(&carrier.line);
        if self.over.load(Ordering::Acquire) {
            return Ok(Attempt::Over);
        }
        if !outgoing.kept().resume(received) {
            return Ok(Attempt::Lost);
        }
        let healed = self.put_in_place(number, epoch, socket, &mut line)?;
        drop((line, incoming, outgoing));
        self.report(healed);
        Ok(Attempt::Over)
    }

    fn report(&self, healed: Option<Break>) {
        let events = |renewal: &Renewal| renewal.events.as_ref()?.upgrade();
        if let (Some(Break { why, since }), Some(renewal)) = (healed, &self.renewal)
            && let Some(events) = events(renewal)
        {
            events.renewed(renewal.peer, since.elapsed(), &why);
        }
    }

    /// Replaces a broken socket. Returns how it had broken.
    fn put_in_place(
        &self,
        number: usize,
        epoch: u32,
        socket: Socket,
        line: &mut Line,
    ) -> io::Result<Option<Break>> {
        let carrier = &self.carriers[number];
        socket.share_unsent(self.sockets.len())?;
        if !line.aside {
            line.count(self.sockets[number].traffic());
        }
        self.sockets[number].replace(socket)?;
        if let Some(watched) = &self.watched {
            carrier.writing.store(false, Ordering::Relaxed);
            watched.watch(self.sockets[number].descriptor())?;
        }
        line.epoch = epoch;
        line.aside = false;
        line.renewals += 1;
        carrier.broken.store(false, Ordering::Release);
        Ok(line.broken.take())
    }

    /// Accepts the peer's call for a connection in place of a broken one, or refuses it.
    pub(crate) fn accept(
        self: &Arc<Self>,
        part: LinkPart,
        theirs: Position,
        mut session: Session,
        socket: Socket,
    ) {
        let number = usize::from(part.connection);
        let Some(carrier) = self.carriers.get(number) else {
            return;
        };
        let mut outgoing = lock(&carrier.outgoing);
        let mut incoming = lock(&carrier.incoming);
        let mut line = lock(&carrier.line);
        if part.epoch <= line.epoch {
            return;
        }
        self.note_leaving(number, socket.ends());
        let over = socket.ends().map(|(_, peer)| format!(" from {peer}"));
        let why = "the peer called for a new connection".to_owned() + &over.unwrap_or_default();
        self.note_break(number, &mut line, Break::now(why));
        self.set_aside_locked(number, &mut outgoing, &mut incoming, &mut line);
        let received = self.received(&incoming);
        let possible = !self.over.load(Ordering::Acquire)
            && theirs.kept <= received
            && outgoing.kept().resume(theirs.received);
        let verdict = match possible {
            true => RenewalVerdict::Resumed(received),
            false => RenewalVerdict::Unknown,
        };
        let mut healed = Err(io::ErrorKind::BrokenPipe.into());
        if say_verdict(&socket, &mut session, verdict) && possible {
            let socket = socket.seal(session.records());
            healed = self.put_in_place(number, part.epoch, socket, &mut line);
        }
        // Otherwise until the next call.
        outgoing.kept().interrupted = healed.is_err();
        let why = line.broken.as_ref().map(|broken| broken.why.clone());
        drop((line, incoming, outgoing));
        match healed {
            Ok(healed) => self.report(healed),
            Err(_) if possible => {
                self.interrupt(number, Break::now("the connection broke".into()));
            }
            Err(_) => {
                let why = why.unwrap_or_default();
                let lost = format!("{why}, and what was sent last is not kept");
                self.end(ConnectionEnd::Gone(lost));
            }
        }
        self.announce();
    }

    /// The peer says that a connection broke, which this end has to make anew. The knock came over
    /// a connection between these addresses.
    fn knocked(self: &Arc<Self>, number: usize, epoch: u32, over: Option<(IpAddr, IpAddr)>) {
        let Some(carrier) = self.carriers.get(number) else {
            return;
        };
        let mut line = lock(&carrier.line);
        if line.epoch != epoch {
            return;
        }
        let elsewhere = over.is_some() && over != self.sockets[number].ends();
        if elsewhere && self.renewal.as_ref().is_some_and(Renewal::has_rails) {
            drop(line);
            return self.shift_as_asked(number);
        }
        let why = "the connection to it broke at its end".into();
        self.note_break(number, &mut line, Break::now(why));
        drop(line);
        // Without a thread, the peer knocks again.
        self.start_renewing(number);
    }
}

/// The result of a call or a knock.
pub(crate) enum Attempt {
    /// The connection is whole, or the link over.
    Over,
    /// The peer will call.
    Known,
    /// The peer has no such link any more.
    Unknown,
    /// Something that the peer lacks is not kept.
    Lost,
}

impl KnownLinks {
    /// Handles a call or a knock for a link. The peer has proven its identity.
    pub(crate) fn answer(
        &self,
        peer: EndpointId,
        part: LinkPart,
        theirs: Position,
        mut session: Session,
        socket: Socket,
    ) {
        let found = self.find((peer, part.call));
        let found = found.filter(|link| !link.over.load(Ordering::Acquire));
        let made_here =
            |link: &Arc<TcpConnection>| (link.renewal.as_ref()).is_some_and(|r| r.calls);
        match (found, part.purpose) {
            (Some(link), Purpose::Renew) if !made_here(&link) => {
                link.accept(part, theirs, session, socket);
            }
            (Some(link), Purpose::Knock) if made_here(&link) => {
                say_verdict(&socket, &mut session, RenewalVerdict::Known);
                link.knocked(part.connection.into(), part.epoch, socket.ends());
            }
            _ => drop(say_verdict(&socket, &mut session, RenewalVerdict::Unknown)),
        }
    }
}

/// Sends a verdict; false if that fails. The first few bytes on a connection always fit.
fn say_verdict(socket: &Socket, session: &mut Session, verdict: RenewalVerdict) -> bool {
    let verdict = session.renewal_verdict(verdict);
    let sent = socket.send(&[io::IoSlice::new(&verdict)]);
    sent.is_ok_and(|sent| sent == verdict.len())
}
