//! The ring's two ends on memory that the other side may overwrite with anything, for fuzzing.

use crate::ring::words::RingWords;
use crate::ring::{Circle, Reader, WORD, Writer};
use crate::sync::Ordering;

/// Small, so that records wrap around often.
const RING_BYTES: u64 = 256;

/// Reads and writes while the other side stores arbitrary values. A step has 10 bytes: the action,
/// a word of the ring, and the value to store there.
///
/// # Panics
/// If an end reaches beyond the ring, or returns a record longer than the ring.
pub fn ring(bytes: &[u8]) {
    let memory = RingWords::new(RING_BYTES);
    let (mut reader, mut writer) = (Reader::default(), Writer::default());
    let mut record = Vec::new();
    for step in bytes.as_chunks::<10>().0 {
        let [action, at, value @ ..] = *step;
        let value = u64::from_le_bytes(value);
        let place = u64::from(at) * WORD % RING_BYTES;
        memory.header(place).store(value, Ordering::Relaxed);
        let sound = match action % 4 {
            0 => {
                memory.taken.store(value, Ordering::Relaxed);
                Ok(())
            }
            1 => writer
                .write(&memory, &[&bytes[..bytes.len().min(at.into())]])
                .map(|_| ()),
            _ => reader.read(&memory, &mut record).map(|_| ()),
        };
        assert!(record.len() as u64 <= RING_BYTES);
        if sound.is_err() {
            return;
        }
    }
}
