//! Calls to a peer's listener: for a link, and for a connection of a link in place of a broken one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_transport::{EndpointId, LinkError};

use crate::address::TcpAddress;
use crate::handshake::{
    ANSWER_BYTES, CallerHandshake, KeyPair, LinkPart, Position, RENEWAL_VERDICT_BYTES,
    RenewalVerdict, Session,
};
use crate::socket::{self, Socket, SocketOptions};

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

/// The time that a call may take.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) deadline: Instant,
    pub(crate) cancel: &'a AtomicBool,
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

    /// A further connection, over the network whose turn it is.
    pub(crate) fn connect_further(
        &self,
        number: usize,
        peer: &TcpAddress,
        patience: Patience<'_>,
    ) -> Result<Socket, LinkError> {
        let nowhere = || LinkError::Refused("the peer has no address".into());
        let target = peer
            .in_network(number % peer.networks())
            .ok_or_else(nowhere)?;
        let source = match self.address.networks() {
            1 => None,
            networks => self.address.in_network(number % networks),
        };
        let source = source.map(|address| address.ip());
        let source = source.filter(|ip| ip.is_ipv4() == target.is_ipv4());
        self.connect(source, target, patience)
    }

    fn connect(
        &self,
        source: Option<IpAddr>,
        target: SocketAddr,
        Patience { deadline, cancel }: Patience<'_>,
    ) -> Result<Socket, LinkError> {
        let stream = socket::connect_from(source, target, deadline, cancel)?;
        Ok(Socket::new(stream, self.options)?)
    }

    /// Calls the peer about a connection of a link that broke: reports the position of this end,
    /// and returns its answer and the new connection. Tries each of the peer's addresses, first
    /// that of the connection's own network.
    pub(crate) fn call_again(
        &self,
        (peer, address): (EndpointId, &TcpAddress),
        part: LinkPart,
        position: Position,
        patience: Patience<'_>,
    ) -> Result<(RenewalVerdict, Socket), LinkError> {
        let number = usize::from(part.connection);
        let until = Patience {
            deadline: patience.deadline.min(Instant::now() + ADDRESS_TIMEOUT),
            ..patience
        };
        let mut connected = match number {
            0 => Err(LinkError::Refused("the peer has no address".into())),
            _ => self.connect_further(number, address, until),
        };
        for target in address.sockets() {
            if connected.is_ok() {
                break;
            }
            connected = self.connect(None, target, until);
        }
        let socket = connected?;
        let mut session = self.prove(&socket, (peer, address), part, until)?;
        say(&socket, &session.report(position))?;
        let mut verdict = [0; RENEWAL_VERDICT_BYTES];
        socket.receive_exactly(&mut verdict, until.deadline, until.cancel)?;
        match session.read_renewal_verdict(&verdict) {
            Some(verdict) => Ok((verdict, socket.seal(session.records()))),
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
