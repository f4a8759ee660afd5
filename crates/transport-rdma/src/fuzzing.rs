//! Parsers of the peer's data on a link, for fuzzing. Each accepts any bytes, and panics where a
//! guarantee is violated.
#![forbid(unsafe_code)]

use crate::control::LinkControl;
use crate::frame::RingFrame;
use crate::keys::Keys;

/// A frame of a ring: every frame has one form.
pub fn frame(bytes: &[u8]) {
    if let Some(frame) = RingFrame::decode(bytes) {
        assert_eq!(frame.encode(), bytes);
    }
}

/// A control message of a link: encoding it again gives the same bytes, and each part of a range
/// with keys is found completely.
pub fn control(bytes: &[u8]) {
    let Some(message) = LinkControl::decode(bytes) else {
        return;
    };
    assert_eq!(
        LinkControl::decode(&message.encode()).as_ref(),
        Some(&message)
    );
    let LinkControl::Keys {
        region,
        range,
        memory,
    } = message
    else {
        return;
    };
    let (rails, len) = (memory.len(), range.end - range.start);
    let half = range.start + len / 2;
    let mut keys = Keys::default();
    keys.insert(region, range.clone(), memory);
    for part in [range.clone(), range.start..half, half..range.end] {
        for rail in 0..rails {
            let found = keys.parts(region, part.clone(), rail);
            let found: u64 = found.iter().flatten().map(|(_, bytes)| bytes).sum();
            assert_eq!(found, part.end - part.start);
        }
    }
    if range.end < u64::MAX && len > 0 {
        assert_eq!(keys.parts(region, range.start..range.end + 1, 0), None);
    }
}
