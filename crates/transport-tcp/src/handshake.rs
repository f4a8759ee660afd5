//! The first bytes of a connection: identities of caller and peer, and the proof of membership in
//! the job.
//!
//! The caller sends a hello of fixed length; the listener reads nothing more from anyone whose
//! hello is not right, and does not answer either.
//!
//! A link may have several connections. They are made by one call, whose hellos bear the same
//! number; that of the first connection names the others. To the first one the listener answers
//! with a verdict, once it has heard all of them.
#![forbid(unsafe_code)]

use weft_transport::EndpointId;

const MAGIC: [u8; 8] = *b"weft-tcp";
const VERSION: u32 = 3;

pub(crate) const HELLO_BYTES: usize = 88;
pub(crate) const REPLY_BYTES: usize = 12;
/// What one link can have.
pub(crate) const CONNECTIONS_MAX: usize = 16;

/// What a caller says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TcpHello {
    /// The listener's token: proves that the caller got the address from the rendezvous.
    pub(crate) token: [u8; 32],
    pub(crate) caller: EndpointId,
    pub(crate) listener: EndpointId,
    pub(crate) part: LinkPart,
}

/// What part of a link a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkPart {
    /// The call, by a number that is random.
    pub(crate) call: u64,
    /// Which of its connections.
    pub(crate) connection: u16,
    /// The first connection's hello says which others there are, as bits; others say 0.
    pub(crate) others: u16,
}

/// What a listener answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeVerdict {
    /// The connection is a link from now on.
    Accept,
    /// The listener's own attempt to connect to the caller shall win.
    Yield,
}

impl TcpHello {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..44].copy_from_slice(&self.token);
        bytes[44..60].copy_from_slice(&self.caller.0.to_le_bytes());
        bytes[60..76].copy_from_slice(&self.listener.0.to_le_bytes());
        bytes[76..84].copy_from_slice(&self.part.call.to_le_bytes());
        bytes[84..86].copy_from_slice(&self.part.connection.to_le_bytes());
        bytes[86..].copy_from_slice(&self.part.others.to_le_bytes());
        bytes
    }

    /// Whether a hello of this version may begin like this: whoever says something else need not be
    /// heard out.
    pub(crate) fn may_begin(bytes: &[u8]) -> bool {
        let mut begin = [0; 12];
        begin[..8].copy_from_slice(&MAGIC);
        begin[8..].copy_from_slice(&VERSION.to_le_bytes());
        bytes
            .iter()
            .zip(begin)
            .all(|(byte, expected)| *byte == expected)
    }

    /// The caller, and what it offers, if this is a hello to `listener` with its token.
    pub(crate) fn caller(
        bytes: &[u8; HELLO_BYTES],
        token: &[u8; 32],
        listener: EndpointId,
    ) -> Option<(EndpointId, LinkPart)> {
        let mut caller = [0; 16];
        caller.copy_from_slice(&bytes[44..60]);
        let caller = EndpointId(u128::from_le_bytes(caller));
        let mut call = [0; 8];
        call.copy_from_slice(&bytes[76..84]);
        let part = LinkPart {
            call: u64::from_le_bytes(call),
            connection: u16::from_le_bytes([bytes[84], bytes[85]]),
            others: u16::from_le_bytes([bytes[86], bytes[87]]),
        };
        let expected = TcpHello {
            token: *token,
            caller,
            listener,
            part,
        };
        let right = same(bytes, &expected.encode()) && part.is_possible();
        right.then_some((caller, part))
    }
}

impl LinkPart {
    /// The connections that the link has besides the first.
    pub(crate) fn others(self) -> impl Iterator<Item = u16> {
        (1..CONNECTIONS_MAX as u16).filter(move |number| self.others & 1 << number != 0)
    }

    fn is_possible(self) -> bool {
        match self.connection {
            0 => self.others & 1 == 0,
            number => self.others == 0 && usize::from(number) < CONNECTIONS_MAX,
        }
    }
}

impl HandshakeVerdict {
    pub(crate) fn encode(self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let code: u32 = match self {
            HandshakeVerdict::Accept => 1,
            HandshakeVerdict::Yield => 2,
        };
        bytes[8..].copy_from_slice(&code.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; REPLY_BYTES]) -> Option<Self> {
        [HandshakeVerdict::Accept, HandshakeVerdict::Yield]
            .into_iter()
            .find(|verdict| verdict.encode() == *bytes)
    }
}

/// Compares in a time that does not tell where the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.iter()
        .zip(b)
        .fold(0, |difference, (a, b)| difference | (a ^ b))
        == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_hello_has_a_caller() {
        let [caller, listener] = [1, 2].map(EndpointId);
        let token = [7; 32];
        let part = LinkPart {
            call: 77,
            connection: 0,
            others: 0b1010,
        };
        let hello = TcpHello {
            token,
            caller,
            listener,
            part,
        };
        assert_eq!(part.others().collect::<Vec<_>>(), [1, 3]);
        let bytes = hello.encode();
        let understood = TcpHello::caller(&bytes, &token, listener);
        assert_eq!(understood, Some((caller, part)));
        assert_eq!(TcpHello::caller(&bytes, &token, caller), None);
        assert!((0..=HELLO_BYTES).all(|heard| TcpHello::may_begin(&bytes[..heard])));
        assert!(!TcpHello::may_begin(b"GET"));
        assert_eq!(TcpHello::caller(&bytes, &[8; 32], listener), None);
        for at in (0..44).chain(60..76) {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(
                TcpHello::caller(&wrong, &token, listener),
                None,
                "byte {at}"
            );
        }
    }

    #[test]
    fn impossible_parts_are_refused() {
        let check = |connection, others, possible| {
            let part = LinkPart {
                call: 1,
                connection,
                others,
            };
            assert_eq!(part.is_possible(), possible, "{part:?}");
        };
        check(0, 0, true);
        check(0, 0b110, true);
        check(0, 0b1, false);
        check(3, 0, true);
        check(3, 0b10, false);
        check(CONNECTIONS_MAX as u16, 0, false);
    }

    #[test]
    fn verdicts_survive_the_wire() {
        for verdict in [HandshakeVerdict::Accept, HandshakeVerdict::Yield] {
            assert_eq!(HandshakeVerdict::decode(&verdict.encode()), Some(verdict));
        }
        assert_eq!(HandshakeVerdict::decode(&[0; REPLY_BYTES]), None);
    }
}
