//! The first bytes of a connection: identities of caller and peer, and the proof of membership in
//! the job.
//!
//! The caller sends a hello of fixed length; the listener reads nothing more from anyone whose
//! hello is not right, and does not answer either. To a right one it answers with a verdict.
#![forbid(unsafe_code)]

use weft_transport::EndpointId;

const MAGIC: [u8; 8] = *b"weft-tcp";
const VERSION: u32 = 2;

pub(crate) const HELLO_BYTES: usize = 76;
pub(crate) const REPLY_BYTES: usize = 12;

/// What a caller says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TcpHello {
    /// The listener's token: proves that the caller got the address from the rendezvous.
    pub(crate) token: [u8; 32],
    pub(crate) caller: EndpointId,
    pub(crate) listener: EndpointId,
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

    /// The caller, if this is a hello to `listener` with its token.
    pub(crate) fn caller(
        bytes: &[u8; HELLO_BYTES],
        token: &[u8; 32],
        listener: EndpointId,
    ) -> Option<EndpointId> {
        let mut caller = [0; 16];
        caller.copy_from_slice(&bytes[44..60]);
        let caller = EndpointId(u128::from_le_bytes(caller));
        let expected = TcpHello {
            token: *token,
            caller,
            listener,
        };
        same(bytes, &expected.encode()).then_some(caller)
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
        let hello = TcpHello {
            token,
            caller,
            listener,
        };
        let bytes = hello.encode();
        assert_eq!(TcpHello::caller(&bytes, &token, listener), Some(caller));
        assert_eq!(TcpHello::caller(&bytes, &token, caller), None);
        assert!((0..=HELLO_BYTES).all(|heard| TcpHello::may_begin(&bytes[..heard])));
        assert!(!TcpHello::may_begin(b"GET"));
        assert_eq!(TcpHello::caller(&bytes, &[8; 32], listener), None);
        for at in (0..44).chain(60..HELLO_BYTES) {
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
    fn verdicts_survive_the_wire() {
        for verdict in [HandshakeVerdict::Accept, HandshakeVerdict::Yield] {
            assert_eq!(HandshakeVerdict::decode(&verdict.encode()), Some(verdict));
        }
        assert_eq!(HandshakeVerdict::decode(&[0; REPLY_BYTES]), None);
    }
}
