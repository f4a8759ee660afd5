//! How the two ends of a store connection make sure of each other, and how they talk afterwards.
//!
//! The client begins with a message of [`OPENING_BYTES`], the server answers with another; neither
//! reads anything else before. With a secret these are the two messages of the Noise pattern
//! `NNpsk0`, whose key is derived from the secret: an end that does not have it can neither make
//! nor read them, and gets no answer. What follows is encrypted and authenticated, in chunks: the
//! length (2 bytes, little-endian), then so many bytes. The client's first chunk is empty: it shows
//! that the client did not merely repeat an opening that it has seen. Without a secret the
//! openings are constants, and what follows is plain.
//!
//! Nothing here reads or writes a socket.

use snow::{Builder, HandshakeState, TransportState};

use super::protocol::Nonsense;
use crate::bootstrap::secret::Secret;

const PROTOCOL: &str = "weft store 2";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// A public key and the proof, empty of content.
pub(super) const OPENING_BYTES: usize = 48;
pub(super) type Opening = [u8; OPENING_BYTES];
/// What encryption adds to a chunk.
const TAG_BYTES: usize = 16;
/// The most bytes of the conversation in one chunk.
pub(super) const CHUNK_BYTES_MAX: usize = 32 << 10;

/// The key of store connections.
pub(super) fn key(secret: &Secret) -> [u8; 32] {
    secret.key(PROTOCOL)
}

/// An opening without a secret.
fn plain_opening() -> Opening {
    let mut opening = [0; OPENING_BYTES];
    opening[..PROTOCOL.len()].copy_from_slice(PROTOCOL.as_bytes());
    opening
}

fn builder(key: &[u8; 32]) -> Builder<'_> {
    let pattern = PATTERN.parse().expect("a pattern that snow knows");
    (Builder::new(pattern).prologue(PROTOCOL.as_bytes()))
        .and_then(|builder| builder.psk(0, key))
        .expect("each is given once")
}

/// A client that has made its opening and waits for the server's.
pub(super) enum Knock {
    Plain,
    Sealed(Box<HandshakeState>),
}

impl Knock {
    /// The client's opening.
    pub(super) fn new(key: Option<&[u8; 32]>) -> (Self, Opening) {
        let Some(key) = key else {
            return (Knock::Plain, plain_opening());
        };
        let mut state = builder(key).build_initiator().expect("all is given");
        let mut opening = [0; OPENING_BYTES];
        let written = state.write_message(&[], &mut opening);
        assert_eq!(written.ok(), Some(OPENING_BYTES));
        (Knock::Sealed(Box::new(state)), opening)
    }

    /// The channel, if that is the opening of a server with the same secret, and what the client
    /// says first through it.
    pub(super) fn answered(self, opening: &Opening) -> Result<(Channel, Vec<u8>), Nonsense> {
        match self {
            Knock::Plain if *opening == plain_opening() => Ok((Channel::new(None), Vec::new())),
            Knock::Plain => Err(Nonsense),
            Knock::Sealed(mut state) => {
                state.read_message(opening, &mut []).map_err(|_| Nonsense)?;
                let mut channel = Channel::new(state.into_transport_mode().ok());
                let mut first = Vec::new();
                channel.seal(&[], &mut first);
                Ok((channel, first))
            }
        }
    }
}

/// The server's answer to a client's opening, if it has the same secret.
pub(super) fn answer(
    opening: &Opening,
    key: Option<&[u8; 32]>,
) -> Result<(Channel, Opening), Nonsense> {
    let Some(key) = key else {
        let plain = plain_opening();
        return match *opening == plain {
            true => Ok((Channel::new(None), plain)),
            false => Err(Nonsense),
        };
    };
    let mut state = builder(key).build_responder().expect("all is given");
    state.read_message(opening, &mut []).map_err(|_| Nonsense)?;
    let mut answer = [0; OPENING_BYTES];
    (state.write_message(&[], &mut answer)).map_err(|_| Nonsense)?;
    Ok((Channel::new(state.into_transport_mode().ok()), answer))
}

/// Turns a conversation into bytes on the wire, and back.
pub(super) struct Channel {
    session: Option<Box<TransportState>>,
    /// Came in, and is less than a chunk.
    partial: Vec<u8>,
    /// Of the conversation, and not taken yet.
    plain: Vec<u8>,
    /// Whether the other end has shown that it knows the session's keys.
    proven: bool,
}

impl Channel {
    fn new(session: Option<TransportState>) -> Self {
        Self {
            proven: session.is_none(),
            session: session.map(Box::new),
            partial: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Whether the other end has shown that it has the secret, where there is one.
    pub(super) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Bytes that are kept until a message is complete.
    pub(super) fn held(&self) -> usize {
        self.partial.len() + self.plain.len()
    }

    /// Appends a part of the conversation, at most [`CHUNK_BYTES_MAX`], as it goes over the wire.
    pub(super) fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        let Some(session) = &mut self.session else {
            wire.extend_from_slice(plain);
            return;
        };
        let length = plain.len() + TAG_BYTES;
        wire.extend_from_slice(&(length as u16).to_le_bytes());
        let start = wire.len();
        wire.resize(start + length, 0);
        let written = session.write_message(plain, &mut wire[start..]);
        assert_eq!(written.ok(), Some(length), "a chunk is never too long");
    }

    /// Takes what came over the wire.
    pub(super) fn feed(&mut self, wire: &[u8]) -> Result<(), Nonsense> {
        let Some(session) = &mut self.session else {
            self.plain.extend_from_slice(wire);
            return Ok(());
        };
        self.partial.extend_from_slice(wire);
        let mut taken = 0;
        while let Some((length, rest)) = self.partial[taken..].split_first_chunk::<2>() {
            let length = u16::from_le_bytes(*length) as usize;
            if !(TAG_BYTES..=CHUNK_BYTES_MAX + TAG_BYTES).contains(&length) {
                return Err(Nonsense);
            }
            let Some(chunk) = rest.get(..length) else {
                break;
            };
            let start = self.plain.len();
            self.plain.resize(start + length - TAG_BYTES, 0);
            let opened = session.read_message(chunk, &mut self.plain[start..]);
            opened.map_err(|_| Nonsense)?;
            self.proven = true;
            taken += 2 + length;
        }
        self.partial.drain(..taken);
        Ok(())
    }

    /// Whether a message is complete, or too long for what can come.
    pub(super) fn has_body(&self) -> bool {
        match self.plain.split_first_chunk::<4>() {
            Some((length, rest)) => {
                let length = u32::from_le_bytes(*length) as usize;
                rest.len() >= length || length > super::protocol::SET_BYTES_MAX
            }
            None => false,
        }
    }

    /// The next message's body, once all of it has come; an error if it is longer than allowed.
    pub(super) fn next_body(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, Nonsense> {
        let Some((length, rest)) = self.plain.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > bytes_max {
            return Err(Nonsense);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let after = self.plain.split_off(4 + length);
        let mut message = std::mem::replace(&mut self.plain, after);
        message.drain(..4);
        Ok(Some(message))
    }
}
