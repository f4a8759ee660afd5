//! The ring's two ends against any memory, for fuzzing: what the other side stores is its affair.

use crate::ring::words::Words;
use crate::ring::{Circle, Reader, WORD, Writer};
use crate::sync::Ordering;

/// So small that records wrap around often.
const RING_BYTES: u64 = 256;

/// Reads and writes, between which the other side stores what it likes: 10 bytes are a step, namely
/// what to do, a word of the ring, and what is stored there.
///
/// # Panics
/// If an end reaches beyond the ring, or hands out a record that is longer.
pub fn ring(bytes: &[u8]) {
    let memory = Words::new(RING_BYTES);
    let (mut reader, mut writer) = (Reader::default(), Writer::default());
    let mut record = Vec::new();
    for step in bytes.as_chunks::<10>().0 {
        let [what, at, value @ ..] = *step;
        let value = u64::from_le_bytes(value);
        let place = u64::from(at) * WORD % RING_BYTES;
        memory.header(place).store(value, Ordering::Relaxed);
        let sound = match what % 4 {
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
