//! Parsers of bytes from peers or strangers, for fuzzing. Each accepts any bytes, and panics where
//! a guarantee is violated.
#![forbid(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};

use weft_transport::EndpointId;

use crate::address::TcpAddress;
use crate::encryption::Cipher;
use crate::frame::{Frame, HEADER_BYTES};
use crate::handshake::{HELLO_BYTES, Hello, KeyPair};
use crate::record_key::RecordKey;
use crate::records::{Opening, Sealing};

/// The header of a frame: every frame has one form, and no range exceeds the address space.
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

/// A caller's hello: without a member's key no valid one can be made.
pub fn hello(bytes: &[u8]) {
    let mut hello = [0; HELLO_BYTES];
    let len = bytes.len().min(HELLO_BYTES);
    hello[..len].copy_from_slice(&bytes[..len]);
    let keys = KeyPair::generate().expect("random numbers");
    assert!(Hello::read(&hello, &keys, EndpointId(1)).is_none());
}

/// Data that arrives over an encrypted connection. The input: how many of the sealed bytes arrive
/// (2 bytes), the length of the pieces that the peer has sealed (1), and the plain bytes that it
/// has sealed. Bytes that the peer did not send must not be returned.
pub fn records(bytes: &[u8]) {
    let Some(([low, high, piece], plain)) = bytes.split_first_chunk() else {
        return;
    };
    let key = || RecordKey::new(Cipher::ChaCha20Poly1305, &[7; 32]);
    let mut sealing = Sealing::new(key());
    let mut received = Vec::new();
    for piece in plain.chunks(usize::from(*piece).max(1)) {
        let sent = sealing.send(&[IoSlice::new(piece)], |sealed| {
            received.extend(sealed);
            Ok(sealed.len())
        });
        assert_eq!(sent.ok(), Some(piece.len()));
    }
    received.truncate(usize::from(u16::from_le_bytes([*low, *high])));
    received.extend(plain);
    let (mut opening, mut received) = (Opening::new(key()), received.as_slice());
    let mut given = Vec::new();
    loop {
        let mut place = [0; 100];
        let before = received.len();
        match opening.read(&mut [IoSliceMut::new(&mut place)], &mut received) {
            Ok(0) => break,
            Ok(bytes) => given.extend(&place[..bytes]),
            // The bytes that have arrived are used up.
            Err(_) if received.len() < before => {}
            Err(_) => break,
        }
    }
    assert!(plain.starts_with(&given));
}
