//! The first bytes of a connection: caller and listener prove their identities to each other.
//!
//! Every endpoint has a pair of keys. The public one is in its address, which the members of a job
//! exchange at the rendezvous; so an endpoint that proves to have the private key is that member,
//! and transmitted bytes are useless to a stranger. The handshake is Noise's IK:
//!
//! 1. The caller's *hello*, for the listener's key: the caller's key and identity, the connection's
//!    part of a link, and its cipher.
//! 2. The listener's *answer*, if that key belongs to a member with that identity. Strangers get
//!    none.
//! 3. The caller's *confirmation*. A recorded hello can be sent again, but a confirmation cannot be
//!    made for a new answer: the connection has no effect before it.
//! 4. The *verdict*, on a link's first connection: whether the link is established.
//!
//! All have a fixed length for their purpose; a listener reads nothing more from a caller that has
//! not reached that step.
//!
//! A link may have several connections. They are made by one call, whose hellos carry the same
//! number; the confirmation of the first connection names the others, which have been confirmed
//! before.
//!
//! [Note: Renewal] A connection of a link that broke is made anew by the end that made the link.
//! Its hello names the link, by the number of the call that made it, the connection, and the number
//! of the attempt, so that an attempt that comes late has no effect. The caller closes the former
//! socket, and its confirmation states how much it has received; the listener does the same in its
//! verdict. Each end then continues to send at the other's position. The other end does not call
//! for a connection; it *knocks*: a call that makes the maker of the link call, and finds out
//! whether its process is there.
//!
//! Whether a link is encrypted, and with which cipher, is not negotiated here: both ends know it
//! from each other's addresses ([`CipherOffer`](crate::encryption::CipherOffer)). The hello names
//! the cipher, and an end that expects another one aborts the handshake. The keys of the
//! connection's records are derived from the handshake's.
//!
//! Source: T. Perrin, The Noise Protocol Framework, revision 34, 2018, section 7.5.
#![forbid(unsafe_code)]

use snow::{Builder, HandshakeState, TransportState};
use weft_transport::{EndpointId, LinkError};

use crate::encryption::Cipher;
use crate::records::Records;

const MAGIC: [u8; 8] = *b"weft-tcp";
const VERSION: u32 = 6;
const NOISE: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
const KEY_BYTES: usize = 32;
/// The overhead of every encrypted part.
const TAG_BYTES: usize = 16;
const PREFIX_BYTES: usize = 12;
const PART_BYTES: usize = 32;

/// Magic and version, an ephemeral key, the caller's key, and the hello's contents.
pub(crate) const HELLO_BYTES: usize =
    PREFIX_BYTES + KEY_BYTES + (KEY_BYTES + TAG_BYTES) + (PART_BYTES + TAG_BYTES);
/// An ephemeral key, and proof of its owner.
pub(crate) const ANSWER_BYTES: usize = KEY_BYTES + TAG_BYTES;
pub(crate) const CONFIRMATION_BYTES: usize = 2 + TAG_BYTES;
pub(crate) const VERDICT_BYTES: usize = 1 + TAG_BYTES;
/// The confirmation of a renewal or a knock: two positions.
pub(crate) const POSITION_BYTES: usize = 16 + TAG_BYTES;
pub(crate) const RENEWAL_VERDICT_BYTES: usize = 9 + TAG_BYTES;
/// The most connections of one link.
pub(crate) const CONNECTIONS_MAX: usize = 16;

/// The key that identifies a member of the job.
pub(crate) type PublicKey = [u8; KEY_BYTES];

/// An endpoint's keys.
pub(crate) struct KeyPair {
    private: Vec<u8>,
    pub(crate) public: PublicKey,
}

/// A connection's part of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkPart {
    /// The random number of the call.
    pub(crate) call: u64,
    /// The number of the connection within the call.
    pub(crate) connection: u16,
    /// The cipher of all data after the handshake, if any.
    pub(crate) cipher: Option<Cipher>,
    pub(crate) purpose: Purpose,
    /// The number of the attempt to make this connection anew. A knock has that of the socket that
    /// broke.
    pub(crate) epoch: u32,
}

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To make a link.
    Make,
    /// To take the place of a link's broken connection.
    Renew,
    /// To inform the maker of a link that a connection broke.
    Knock,
}

/// How much one end has received on a connection, and sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Everything up to here has arrived. An end that closes and drops what arrives states
    /// [`Position::ALL`].
    pub(crate) received: u64,
    /// Sent bytes are kept from here on.
    pub(crate) kept: u64,
}

impl Position {
    pub(crate) const ALL: u64 = u64::MAX;
}

/// The listener's decision about a renewal or a knock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RenewalVerdict {
    /// The connection takes the place of the former one. The listener has received this much.
    Resumed(u64),
    /// The link exists: its maker will call.
    Known,
    /// The listener has no such link any more, or it cannot be continued.
    Unknown,
}

/// The listener's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeVerdict {
    /// The link is established.
    Accept,
    /// The listener's own attempt to connect to the caller should win.
    Yield,
}

/// A caller's side, until the answer arrives.
pub(crate) struct CallerHandshake {
    state: HandshakeState,
    cipher: Option<Cipher>,
}

/// A hello that was made for this listener by an owner of this key.
pub(crate) struct Hello {
    state: HandshakeState,
    pub(crate) key: PublicKey,
    pub(crate) caller: EndpointId,
    pub(crate) part: LinkPart,
}

/// A handshake in which both sides have proven their identities.
pub(crate) struct Session {
    state: TransportState,
    /// The secrets from which the keys of the records are derived, the caller's and the listener's,
    /// and whether this is the caller.
    secrets: ([u8; KEY_BYTES], [u8; KEY_BYTES]),
    calls: bool,
    cipher: Option<Cipher>,
}

impl KeyPair {
    /// Makes a new pair.
    pub(crate) fn generate() -> Result<KeyPair, LinkError> {
        let pair = builder().generate_keypair().map_err(failed)?;
        let public = pair.public.try_into();
        Ok(KeyPair {
            private: pair.private,
            public: public.expect("a key has 32 bytes"),
        })
    }
}

impl CallerHandshake {
    /// Calls `listener`, whose key is known, and returns the hello to send.
    pub(crate) fn new(
        keys: &KeyPair,
        caller: EndpointId,
        (listener, key): (EndpointId, &PublicKey),
        part: LinkPart,
    ) -> Result<(CallerHandshake, [u8; HELLO_BYTES]), LinkError> {
        let prologue = prologue(listener);
        let mut state = builder()
            .local_private_key(&keys.private)
            .and_then(|builder| builder.remote_public_key(key))
            .and_then(|builder| builder.prologue(&prologue))
            .and_then(Builder::build_initiator)
            .map_err(failed)?;
        let mut hello = [0; HELLO_BYTES];
        hello[..PREFIX_BYTES].copy_from_slice(&prefix());
        let said = encode(caller, part);
        let written = state.write_message(&said, &mut hello[PREFIX_BYTES..]);
        debug_assert_eq!(written.ok(), Some(HELLO_BYTES - PREFIX_BYTES));
        let cipher = part.cipher;
        Ok((CallerHandshake { state, cipher }, hello))
    }

    /// None if the answer is not the listener's.
    pub(crate) fn answered(mut self, answer: &[u8; ANSWER_BYTES]) -> Option<Session> {
        self.state.read_message(answer, &mut []).ok()?;
        Session::new(self.state, true, self.cipher)
    }
}

impl Hello {
    /// Whether a hello of this version may begin with these bytes: other callers are dropped
    /// without reading on.
    pub(crate) fn may_begin(bytes: &[u8]) -> bool {
        bytes
            .iter()
            .zip(prefix())
            .all(|(byte, right)| *byte == right)
    }

    /// None if it was made for another listener, or is malformed.
    pub(crate) fn read(
        bytes: &[u8; HELLO_BYTES],
        keys: &KeyPair,
        listener: EndpointId,
    ) -> Option<Hello> {
        if bytes[..PREFIX_BYTES] != prefix() {
            return None;
        }
        let prologue = prologue(listener);
        let builder = builder().local_private_key(&keys.private).ok()?;
        let mut state = builder.prologue(&prologue).ok()?.build_responder().ok()?;
        let mut said = [0; PART_BYTES];
        state.read_message(&bytes[PREFIX_BYTES..], &mut said).ok()?;
        let key = state.get_remote_static()?.try_into().ok()?;
        let (caller, part) = decode(&said)?;
        let possible = usize::from(part.connection) < CONNECTIONS_MAX;
        possible.then_some(Hello {
            state,
            key,
            caller,
            part,
        })
    }

    /// The answer to send, and the session that follows.
    pub(crate) fn answer(mut self) -> Option<(Session, [u8; ANSWER_BYTES])> {
        let mut answer = [0; ANSWER_BYTES];
        self.state.write_message(&[], &mut answer).ok()?;
        let session = Session::new(self.state, false, self.part.cipher)?;
        Some((session, answer))
    }
}

impl Session {
    fn new(mut state: HandshakeState, calls: bool, cipher: Option<Cipher>) -> Option<Session> {
        Some(Session {
            secrets: state.dangerously_get_raw_split(),
            state: state.into_transport_mode().ok()?,
            calls,
            cipher,
        })
    }

    /// The encryption of all data after the handshake on this connection, if any.
    pub(crate) fn records(&self) -> Option<Records> {
        let (caller, listener) = (&self.secrets.0, &self.secrets.1);
        let (outgoing, incoming) = match self.calls {
            true => (caller, listener),
            false => (listener, caller),
        };
        let records = |cipher| Records::new(cipher, outgoing, incoming);
        self.cipher.map(records)
    }

    /// The caller's confirmation. That of the first connection lists the link's other connections
    /// as bits; the others' are 0.
    pub(crate) fn confirm(&mut self, others: u16) -> [u8; CONFIRMATION_BYTES] {
        self.seal(&others.to_le_bytes())
    }

    /// The other connections that a confirmation lists; None if it is invalid.
    pub(crate) fn confirmed(
        &mut self,
        connection: u16,
        bytes: &[u8; CONFIRMATION_BYTES],
    ) -> Option<u16> {
        let others = u16::from_le_bytes(self.open(bytes)?);
        let possible = match connection {
            0 => others & 1 == 0,
            _ => others == 0,
        };
        possible.then_some(others)
    }

    pub(crate) fn verdict(&mut self, verdict: HandshakeVerdict) -> [u8; VERDICT_BYTES] {
        self.seal(&[verdict.code()])
    }

    pub(crate) fn read_verdict(&mut self, bytes: &[u8; VERDICT_BYTES]) -> Option<HandshakeVerdict> {
        let [code] = self.open(bytes)?;
        let mut verdicts = [HandshakeVerdict::Accept, HandshakeVerdict::Yield].into_iter();
        verdicts.find(|verdict| verdict.code() == code)
    }

    /// The caller's confirmation of a renewal.
    pub(crate) fn report(&mut self, position: Position) -> [u8; POSITION_BYTES] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&position.received.to_le_bytes());
        bytes[8..].copy_from_slice(&position.kept.to_le_bytes());
        self.seal(&bytes)
    }

    /// The position that a confirmation reports; None if it is invalid.
    pub(crate) fn reported(&mut self, bytes: &[u8; POSITION_BYTES]) -> Option<Position> {
        let bytes = u128::from_le_bytes(self.open(bytes)?);
        Some(Position {
            received: bytes as u64,
            kept: (bytes >> 64) as u64,
        })
    }

    pub(crate) fn renewal_verdict(
        &mut self,
        verdict: RenewalVerdict,
    ) -> [u8; RENEWAL_VERDICT_BYTES] {
        let (code, received) = match verdict {
            RenewalVerdict::Resumed(received) => (1, received),
            RenewalVerdict::Known => (2, 0),
            RenewalVerdict::Unknown => (3, 0),
        };
        let mut bytes = [code; 9];
        bytes[1..].copy_from_slice(&u64::to_le_bytes(received));
        self.seal(&bytes)
    }

    pub(crate) fn read_renewal_verdict(
        &mut self,
        bytes: &[u8; RENEWAL_VERDICT_BYTES],
    ) -> Option<RenewalVerdict> {
        let [code, received @ ..] = self.open::<9>(bytes)?;
        match (code, u64::from_le_bytes(received)) {
            (1, received) => Some(RenewalVerdict::Resumed(received)),
            (2, 0) => Some(RenewalVerdict::Known),
            (3, 0) => Some(RenewalVerdict::Unknown),
            _ => None,
        }
    }

    fn seal<const SEALED: usize>(&mut self, bytes: &[u8]) -> [u8; SEALED] {
        let mut sealed = [0; SEALED];
        let written = self.state.write_message(bytes, &mut sealed);
        assert_eq!(
            written.ok(),
            Some(SEALED),
            "there is room for bytes and tag"
        );
        sealed
    }

    fn open<const BYTES: usize>(&mut self, sealed: &[u8]) -> Option<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        let read = self.state.read_message(sealed, &mut bytes).ok()?;
        (read == BYTES).then_some(bytes)
    }
}

impl Purpose {
    const ALL: [Purpose; 3] = [Purpose::Make, Purpose::Renew, Purpose::Knock];

    fn code(self) -> u8 {
        match self {
            Purpose::Make => 0,
            Purpose::Renew => 1,
            Purpose::Knock => 2,
        }
    }

    /// The length of the caller's confirmation.
    pub(crate) fn confirmation_bytes(self) -> usize {
        match self {
            Purpose::Make => CONFIRMATION_BYTES,
            Purpose::Renew | Purpose::Knock => POSITION_BYTES,
        }
    }
}

impl HandshakeVerdict {
    fn code(self) -> u8 {
        match self {
            HandshakeVerdict::Accept => 1,
            HandshakeVerdict::Yield => 2,
        }
    }
}

/// The connections of a link besides the first.
pub(crate) fn others(bits: u16) -> impl Iterator<Item = u16> {
    (1..CONNECTIONS_MAX as u16).filter(move |number| bits & 1 << number != 0)
}

fn builder<'a>() -> Builder<'a> {
    Builder::new(NOISE.parse().expect("a protocol that snow knows"))
}

fn prefix() -> [u8; PREFIX_BYTES] {
    let mut bytes = [0; PREFIX_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The data that both sides must agree on besides the keys.
fn prologue(listener: EndpointId) -> Vec<u8> {
    [&prefix()[..], &listener.0.to_le_bytes()].concat()
}

fn encode(caller: EndpointId, part: LinkPart) -> [u8; PART_BYTES] {
    let mut bytes = [0; PART_BYTES];
    bytes[..16].copy_from_slice(&caller.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&part.call.to_le_bytes());
    bytes[24..26].copy_from_slice(&part.connection.to_le_bytes());
    bytes[26] = part.cipher.map_or(0, Cipher::code);
    bytes[27] = part.purpose.code();
    bytes[28..].copy_from_slice(&part.epoch.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; PART_BYTES]) -> Option<(EndpointId, LinkPart)> {
    let number = |from: usize, to: usize| {
        let mut number = [0; 16];
        number[..to - from].copy_from_slice(&bytes[from..to]);
        u128::from_le_bytes(number)
    };
    let part = LinkPart {
        call: number(16, 24) as u64,
        connection: number(24, 26) as u16,
        cipher: match bytes[26] {
            0 => None,
            code => Some(Cipher::of_code(code)?),
        },
        purpose: (Purpose::ALL.into_iter()).find(|purpose| purpose.code() == bytes[27])?,
        epoch: number(28, 32) as u32,
    };
    Some((EndpointId(number(0, 16)), part))
}

fn failed(error: snow::Error) -> LinkError {
    LinkError::Setup(format!("the proof of identity cannot be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: EndpointId = EndpointId(1);
    const LISTENER: EndpointId = EndpointId(2);
    const PART: LinkPart = LinkPart {
        call: 77,
        connection: 3,
        cipher: Some(Cipher::ChaCha20Poly1305),
        purpose: Purpose::Renew,
        epoch: 5,
    };

    fn keys() -> KeyPair {
        KeyPair::generate().unwrap()
    }

    fn call(keys: &KeyPair, key: &PublicKey) -> (CallerHandshake, [u8; HELLO_BYTES]) {
        CallerHandshake::new(keys, CALLER, (LISTENER, key), PART).unwrap()
    }

    #[test]
    fn both_ends_learn_the_others_identity() {
        let [a, b] = [keys(), keys()];
        let (call, hello) = call(&a, &b.public);
        assert!((0..=HELLO_BYTES).all(|bytes| Hello::may_begin(&hello[..bytes])));
        assert!(!Hello::may_begin(b"GET"));
        let received = Hello::read(&hello, &b, LISTENER).unwrap();
        assert_eq!(
            (received.key, received.caller, received.part),
            (a.public, CALLER, PART)
        );
        let (mut there, answer) = received.answer().unwrap();
        let mut here = call.answered(&answer).unwrap();
        assert_eq!(there.confirmed(3, &here.confirm(0)), Some(0));
        for verdict in [HandshakeVerdict::Accept, HandshakeVerdict::Yield] {
            assert_eq!(here.read_verdict(&there.verdict(verdict)), Some(verdict));
        }
    }

    #[test]
    fn ends_exchange_their_positions() {
        let [a, b] = [keys(), keys()];
        let (call, hello) = call(&a, &b.public);
        let received = Hello::read(&hello, &b, LISTENER).unwrap();
        let (mut there, answer) = received.answer().unwrap();
        let mut here = call.answered(&answer).unwrap();
        let position = Position {
            received: 1 << 40,
            kept: u64::MAX,
        };
        assert_eq!(there.reported(&here.report(position)), Some(position));
        for verdict in [
            RenewalVerdict::Resumed(1 << 50),
            RenewalVerdict::Known,
            RenewalVerdict::Unknown,
        ] {
            let sealed = there.renewal_verdict(verdict);
            assert_eq!(here.read_renewal_verdict(&sealed), Some(verdict));
        }
    }

    #[test]
    fn only_a_valid_hello_is_read() {
        let [a, b] = [keys(), keys()];
        let (_, hello) = call(&a, &b.public);
        assert!(
            Hello::read(&hello, &b, CALLER).is_none(),
            "another listener"
        );
        assert!(Hello::read(&hello, &a, LISTENER).is_none(), "another key");
        for at in 0..HELLO_BYTES {
            let mut wrong = hello;
            wrong[at] ^= 1;
            assert!(Hello::read(&wrong, &b, LISTENER).is_none(), "byte {at}");
        }
        let part = LinkPart {
            connection: CONNECTIONS_MAX as u16,
            ..PART
        };
        let (_, hello) = CallerHandshake::new(&a, CALLER, (LISTENER, &b.public), part).unwrap();
        assert!(
            Hello::read(&hello, &b, LISTENER).is_none(),
            "an impossible connection"
        );
    }

    #[test]
    fn only_the_listener_can_answer() {
        let [a, b, other] = [keys(), keys(), keys()];
        let (call_b, hello) = call(&a, &b.public);
        let (_, to_other) = call(&a, &other.public);
        let received = Hello::read(&to_other, &other, LISTENER).unwrap();
        let (_, wrong) = received.answer().unwrap();
        assert!(call_b.answered(&wrong).is_none());
        // A recorded answer is invalid for any other call.
        let (_, recorded) = Hello::read(&hello, &b, LISTENER).unwrap().answer().unwrap();
        assert!(call(&a, &b.public).0.answered(&recorded).is_none());
    }

    #[test]
    fn a_recorded_conversation_confirms_nothing() {
        let [a, b] = [keys(), keys()];
        let (call, hello) = call(&a, &b.public);
        let (_, answer) = Hello::read(&hello, &b, LISTENER).unwrap().answer().unwrap();
        let confirmation = call.answered(&answer).unwrap().confirm(0);
        let (mut again, _) = Hello::read(&hello, &b, LISTENER).unwrap().answer().unwrap();
        assert_eq!(again.confirmed(3, &confirmation), None);
    }

    #[test]
    fn a_link_names_possible_connections() {
        let check = |connection, others, possible: bool| {
            let [a, b] = [keys(), keys()];
            let (call, hello) = call(&a, &b.public);
            let (mut there, answer) = Hello::read(&hello, &b, LISTENER).unwrap().answer().unwrap();
            let confirmation = call.answered(&answer).unwrap().confirm(others);
            let confirmed = there.confirmed(connection, &confirmation);
            assert_eq!(
                confirmed,
                possible.then_some(others),
                "{connection} {others}"
            );
        };
        check(0, 0, true);
        check(0, 0b110, true);
        check(0, 0b1, false);
        check(3, 0, true);
        check(3, 0b10, false);
        assert_eq!(others(0b1010).collect::<Vec<_>>(), [1, 3]);
    }
}
