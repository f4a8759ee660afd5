//! The record layer of jobs with a secret: the Noise pattern `NNpsk0`, whose key is derived from
//! it.
//!
//! The handshake is a message of [`OPENING_BYTES`] from each end. An end without the secret can
//! neither make nor read them, and gets no answer. All later bytes are encrypted and authenticated,
//! in chunks: the length (2 bytes, little-endian), then this many bytes. The client's first chunk
//! is empty: it proves that the client did not merely replay a recorded opening.

use snow::{Builder, HandshakeState, TransportState};

use super::record_layer::{CHUNK_BYTES_MAX, PROTOCOL, RecordLayer};
use crate::secret::Secret;
use crate::store_tcp::protocol::{Malformed, StoreFailure};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// A public key and the proof, without content.
const OPENING_BYTES: usize = 48;
/// The overhead of an encrypted chunk.
const TAG_BYTES: usize = 16;

pub(super) struct NoiseRecords {
    state: NoiseState,
    /// Received bytes that are less than the opening or a chunk.
    partial: Vec<u8>,
    /// Whether the other end has proven that it knows the session's keys.
    proven: bool,
}

enum NoiseState {
    Handshake(Box<HandshakeState>),
    Session(Box<TransportState>),
    Failed,
}

impl NoiseRecords {
    /// The client's end, and its opening.
    pub(super) fn of_client(secret: &Secret, wire: &mut Vec<u8>) -> Self {
        let key = secret.key(PROTOCOL);
        let mut state = builder(&key).build_initiator().expect("all is given");
        wire.extend_from_slice(&opening(&mut state).expect("it is the client's turn"));
        Self::new(state)
    }

    pub(super) fn of_server(secret: &Secret) -> Self {
        let key = secret.key(PROTOCOL);
        Self::new(builder(&key).build_responder().expect("all is given"))
    }

    fn new(state: HandshakeState) -> Self {
        Self {
            state: NoiseState::Handshake(Box::new(state)),
            partial: Vec::new(),
            proven: false,
        }
    }

    /// Completes the handshake with the other end's opening, and answers.
    fn handshake(
        &mut self,
        mut state: HandshakeState,
        wire: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        // Neither end may send more before the other has answered: longer input fails.
        let received = std::mem::take(&mut self.partial);
        (state.read_message(&received, &mut [])).map_err(|_| Malformed)?;
        let is_client = state.is_initiator();
        if !is_client {
            wire.extend_from_slice(&opening(&mut state)?);
        }
        let session = state.into_transport_mode().map_err(|_| Malformed)?;
        self.state = NoiseState::Session(Box::new(session));
        if is_client {
            self.seal(&[], wire);
        }
        Ok(())
    }
}

fn builder(key: &[u8; 32]) -> Builder<'_> {
    let pattern = PATTERN.parse().expect("a pattern that snow knows");
    (Builder::new(pattern).prologue(PROTOCOL.as_bytes()))
        .and_then(|builder| builder.psk(0, key))
        .expect("each is given once")
}

/// An opening.
fn opening(state: &mut HandshakeState) -> Result<[u8; OPENING_BYTES], Malformed> {
    let mut opening = [0; OPENING_BYTES];
    let written = state.write_message(&[], &mut opening);
    match written {
        Ok(OPENING_BYTES) => Ok(opening),
        _ => Err(Malformed),
    }
}

impl RecordLayer for NoiseRecords {
    fn open(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), StoreFailure> {
        self.partial.extend_from_slice(received);
        let session = match &mut self.state {
            NoiseState::Session(session) => session,
            NoiseState::Handshake(_) if self.partial.len() < OPENING_BYTES => return Ok(()),
            state => {
                let NoiseState::Handshake(state) = std::mem::replace(state, NoiseState::Failed)
                else {
                    return Err(Malformed.into());
                };
                return self.handshake(*state, wire).map_err(|Malformed| stranger());
            }
        };
        let mut taken = 0;
        while let Some((length, rest)) = self.partial[taken..].split_first_chunk::<2>() {
            let length = u16::from_le_bytes(*length) as usize;
            if !(TAG_BYTES..=CHUNK_BYTES_MAX + TAG_BYTES).contains(&length) {
                return Err(Malformed.into());
            }
            let Some(chunk) = rest.get(..length) else {
                break;
            };
            let start = plain.len();
            plain.resize(start + length - TAG_BYTES, 0);
            let opened = session.read_message(chunk, &mut plain[start..]);
            opened.map_err(|_| Malformed)?;
            self.proven = true;
            taken += 2 + length;
        }
        self.partial.drain(..taken);
        Ok(())
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        let NoiseState::Session(session) = &mut self.state else {
            unreachable!("messages are sent once the channel is open");
        };
        let length = plain.len() + TAG_BYTES;
        wire.extend_from_slice(&(length as u16).to_le_bytes());
        let start = wire.len();
        wire.resize(start + length, 0);
        let written = session.write_message(plain, &mut wire[start..]);
        assert_eq!(written.ok(), Some(length), "a chunk is never too long");
    }

    fn is_open(&self) -> bool {
        matches!(self.state, NoiseState::Session(_))
    }

    fn is_proven(&self) -> bool {
        self.proven
    }

    fn held(&self) -> usize {
        self.partial.len()
    }
}

fn stranger() -> StoreFailure {
    StoreFailure::Stranger("does not have this job's secret".into())
}
