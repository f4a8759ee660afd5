//! Readers of what the peer of a link sends, for fuzzing. Each takes any bytes, and panics where a
//! promise does not hold.
#![forbid(unsafe_code)]

use crate::frame::Frame;
use crate::keys::Keys;
use crate::news::News;

/// A frame of a ring: every one has one form.
pub fn frame(bytes: &[u8]) {
    if let Some(frame) = Frame::decode(bytes) {
        assert_eq!(frame.encode(), bytes);
    }
}

/// What the peer tells over the connection of a link: it says the same again, and each part of a
/// range that it gave keys of is found, whole.
pub fn news(bytes: &[u8]) {
    let Some(news) = News::decode(bytes) else {
        return;
    };
    assert_eq!(News::decode(&news.encode()).as_ref(), Some(&news));
    let News::Keys {
        region,
        range,
        memory,
    } = news
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
