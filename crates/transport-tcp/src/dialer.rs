//! Calls to a peer's listener: for a link, and for a connection of a link in place of a broken one.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use weft_transport::fork::Descriptor;
use weft_transport::{EndpointId, LinkError};

use crate::address::TcpAddress;
use crate::handshake::{
    ANSWER_BYTES, CallerHandshake, KeyPair, LinkPart, Position, RENEWAL_VERDICT_BYTES,
    RenewalVerdict, Session,
};
use crate::patience::Patience;
use crate::socket::{Socket, SocketOptions};
use crate::ways::{STAGGER, Way, connect_any};

/// How long to try one of several addresses of a peer before the next.
pub(crate) const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// The identity of an endpoint, with which it calls others.
pub(crate) struct Dialer {
    pub(crate) id: EndpointId,
    pub(crate) keys: Arc<KeyPair>,
    pub(crate) options: SocketOptions,
    /// Its own addresses.
    pub(crate) address: TcpAddress,
}

/// A connection to a peer that has proven its identity, about a connection of a link.
pub(crate) struct Call {
    socket: Socket,
    session: Session,
}

impl Dialer {
    /// Proves this endpoint's identity to the peer, and verifies the peer's.
    pub(crate) fn prove(
        &self,
        socket: &Socket,
        (peer, address): (EndpointId, &TcpAddress),
        part: LinkPart,
        patience: Patience<'_>,
    ) -> Result<Session, LinkError> {
        let (call, hello) = CallerHandshake::new(&self.keys, self.id, (peer, &address.key), part)?;
        say(socket, &hello)?;
        let mut answer = [0; ANSWER_BYTES];
        let received = socket.receive_exactly(&mut answer, patience.deadline, patience.cancel);
        received.map_err(|error| match error {
            LinkError::Refused(why) => LinkError::Refused(format!(
                "{why}: it is not the endpoint of this address, or does not know this one as a member"
            )),
            other => other,
        })?;
        let session = call.answered(&answer);
        session.ok_or_else(|| {
            LinkError::Refused("the listener's key does not match the peer's public key".into())
        })
    }

    /// A further connection, over the network whose turn it is. If that does not answer, it may
    /// be `elsewhere` until it does.
    pub(crate) fn connect_further(
        &self,
        number: usize,
        peer: &TcpAddress,
        elsewhere: bool,
        patience: Patience<'_>,
    ) -> Result<Socket, LinkError> {
        let mut ways = Way::all(number, &self.address, peer);
        if !elsewhere {
            ways.truncate(1);
        }
        let stream = connect_any(&ways, ADDRESS_TIMEOUT, patience)?;
        Ok(Socket::new(stream, self.options)?)
    }

    /// Calls the peer about a connection of a link, over the first of some ways that works.
    pub(crate) fn call(
        &self,
        to: (EndpointId, &TcpAddress),
        part: LinkPart,
        ways: &[Way],
        patience: Patience<'_>,
    ) -> Result<Call, LinkError> {
        // A peer that refuses at one address is there: silent ways need no more time.
        let stream = connect_any(ways, STAGGER, patience)?;
        self.call_over(stream, to, part, patience)
    }

    /// Calls the peer about a connection of a link, over this stream.
    pub(crate) fn call_over(
        &self,
        stream: Descriptor<TcpStream>,
        to: (EndpointId, &TcpAddress),
        part: LinkPart,
        patience: Patience<'_>,
    ) -> Result<Call, LinkError> {
        let socket = Socket::new(stream, self.options)?;
        let session = self.prove(&socket, to, part, patience)?;
        Ok(Call { socket, session })
    }
}

impl Call {
    /// The peer's address, for messages.
    pub(crate) fn host(&self) -> String {
        let ends = self.socket.ends();
        ends.map_or_else(|| "another address".into(), |(_, peer)| peer.to_string())
    }

    /// Reports the position of this end, and returns the peer's answer and the new connection.
    pub(crate) fn report(
        mut self,
        position: Position,
        Patience { deadline, cancel }: Patience<'_>,
    ) -> Result<(RenewalVerdict, Socket), LinkError> {
        say(&self.socket, &self.session.report(position))?;
        let mut verdict = [0; RENEWAL_VERDICT_BYTES];
        (self.socket).receive_exactly(&mut verdict, deadline, cancel)?;
        match self.session.read_renewal_verdict(&verdict) {
            Some(verdict) => Ok((verdict, self.socket.seal(self.session.records()))),
            None => Err(LinkError::Refused(
                "the answer after the handshake is not the peer's".into(),
            )),
        }
    }
}

/// Sends a part of a handshake. The first few bytes on a connection always fit.
pub(crate) fn say(socket: &Socket, bytes: &[u8]) -> Result<(), LinkError> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    match socket.send(&[io::IoSlice::new(bytes)]) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Err(error) if !matches!(error.kind(), BrokenPipe | ConnectionReset) => Err(error.into()),
        _ => Err(LinkError::Refused(
            "the peer closed the connection during the handshake".into(),
        )),
    }
}
