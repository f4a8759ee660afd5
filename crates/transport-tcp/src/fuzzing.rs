//! Readers of what peers, or strangers, send, for fuzzing. Each takes any bytes, and panics where a
//! promise does not hold.
#![forbid(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};

use weft_transport::EndpointId;

use crate::address::TcpAddress;
use crate::encryption::Cipher;
use crate::frame::{Frame, HEADER_BYTES};
use crate::handshake::{HELLO_BYTES, Hello, KeyPair};
use crate::record_key::RecordKey;
use crate::records::{Opening, Sealing};

/// The header of a frame: every one has one form, and no range is beyond all memory.
pub fn frame(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return;
    };
    if let Ok(frame) = Frame::decode(header) {
        assert_eq!(&frame.encode(), header);
    }
}

/// An address from the store.
pub fn address(bytes: &[u8]) {
    if let Ok(address) = TcpAddress::decode(bytes) {
        assert_eq!(address.encode(), bytes);
        assert!(address.networks() <= usize::from(u8::MAX) + 1);
    }
}

/// A caller's hello: nobody can make one for a key that nobody knows.
pub fn hello(bytes: &[u8]) {
    let mut hello = [0; HELLO_BYTES];
    let len = bytes.len().min(HELLO_BYTES);
    hello[..len].copy_from_slice(&bytes[..len]);
    let keys = KeyPair::generate().expect("random numbers");
    assert!(Hello::read(&hello, &keys, EndpointId(1)).is_none());
}

/// What comes over an encrypted connection. The input: how many of the bytes that the peer has
/// sealed come (2 bytes), in pieces of what length it has sealed them (1), and what it has sealed,
/// which comes behind in the plain. Nothing is given out that the peer did not send.
pub fn records(bytes: &[u8]) {
    let Some(([low, high, piece], plain)) = bytes.split_first_chunk() else {
        return;
    };
    let key = || RecordKey::new(Cipher::ChaCha20Poly1305, &[7; 32]);
    let mut sealing = Sealing::new(key());
    let mut came = Vec::new();
    for piece in plain.chunks(usize::from(*piece).max(1)) {
        let sent = sealing.send(&[IoSlice::new(piece)], |sealed| {
            came.extend(sealed);
            Ok(sealed.len())
        });
        assert_eq!(sent.ok(), Some(piece.len()));
    }
    came.truncate(usize::from(u16::from_le_bytes([*low, *high])));
    came.extend(plain);
    let (mut opening, mut came) = (Opening::new(key()), came.as_slice());
    let mut given = Vec::new();
    loop {
        let mut place = [0; 100];
        let before = came.len();
        match opening.read(&mut [IoSliceMut::new(&mut place)], &mut came) {
            Ok(0) => break,
            Ok(bytes) => given.extend(&place[..bytes]),
            // So much has come for now.
            Err(_) if came.len() < before => {}
            Err(_) => break,
        }
    }
    assert!(plain.starts_with(&given));
}
