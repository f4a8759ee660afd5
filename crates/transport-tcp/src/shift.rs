//! Shifts of connections between networks: away from one that has fallen silent, and back.
//!
//! [Note: Shifts] A connection is left alone until the peer has proven over another network that it
//! is there: if nothing answers, TCP goes on, and the peer timeout counts. Then the connection is
//! made anew there, as after a reset. Its old socket is closed only with that: the peer must learn
//! of the new one first, as the end of a connection without a goodbye mostly means a process's end.
//! An end that has not made the link knocks over another network, and changes nothing by itself. A
//! knock that comes over another network than the connection's makes the maker leave that one, too.
#![forbid(unsafe_code)]

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_transport::LinkError;
use weft_transport::fork::Descriptor;

use crate::carrier::Break;
use crate::connection::{ConnectionEnd, Renewal, TcpConnection};
use crate::dialer::{ADDRESS_TIMEOUT, Call};
use crate::handshake::LinkPart;
use crate::lock::lock;
use crate::patience::Patience;
use crate::renewal::Attempt;
use crate::ways::Way;

/// How long the search for a network that answers may take. Then it begins again.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(1);

impl TcpConnection {
    /// Starts to shift a connection away from its network, which has been silent for this long.
    pub(crate) fn shift_away(self: &Arc<Self>, number: usize, silence: Duration) {
        // If it does not succeed, it is tried again.
        self.start_renewing_after(number, move |link, renewal| {
            let _ = link.leave(renewal, number, Some(silence));
        });
    }

    /// Starts to shift a connection away from its network, as the peer asks for over another one.
    pub(crate) fn shift_as_asked(self: &Arc<Self>, number: usize) {
        self.start_renewing_after(number, move |link, renewal| {
            if link.leave(renewal, number, None).is_err() {
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

    /// Shifts a connection to another network, if the peer answers there. If that is because of the
    /// silence of its present one, this may have ended meanwhile.
    fn leave(
        &self,
        renewal: &Renewal,
        number: usize,
        silence: Option<Duration>,
    ) -> Result<(), LinkError> {
        let since = Instant::now() - silence.unwrap_or_default();
        let Some(ends) = self.sockets[number].ends() else {
            return Ok(());
        };
        let ways = self.ways[number].iter().filter(|way| !way.is_between(ends));
        let ways: Vec<Way> = ways.copied().collect();
        let part = self.next_part(renewal, number);
        let to = (renewal.peer, &renewal.address);
        let patience = self.patience(SEARCH_TIMEOUT);
        let call = renewal.dialer.call(to, part, &ways, patience)?;
        if silence.is_some() && self.sockets[number].stall().is_none() {
            return Ok(());
        }
        if !renewal.calls {
            return self.knock(renewal, part, call);
        }
        let silent = match silence {
            Some(silence) => format!("was silent for {:.1} s", silence.as_secs_f64()),
            None => "was silent at its end".into(),
        };
        let why = format!("{} {silent}, while {} answers", ends.1, call.host());
        self.exchange(renewal, part, call, Break { why, since })
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
