//! Models of rings: whole records in order, lap after lap, and none missed by a sleeping reader.

use super::{Arc, AtomicU64, ModelEndpoint, ON_FUTEX, Ordering, UnsafeCell, model, thread};
use crate::ring::{Circle, Reader, RingRead, WORD, Writer};

/// Room for one one-word record at a time, so that three records are more than a lap.
const WORDS: usize = 5;

/// A word of the circle, as a header and as bytes. Writing bytes leaves an invalid header behind.
struct Word {
    header: AtomicU64,
    bytes: UnsafeCell<u64>,
}

struct ModelMemory {
    words: [Word; WORDS],
    taken: AtomicU64,
    reader: Arc<ModelEndpoint>,
}

impl ModelMemory {
    fn new() -> Arc<ModelMemory> {
        Arc::new(ModelMemory {
            words: [(); WORDS].map(|()| Word {
                header: AtomicU64::new(0),
                bytes: UnsafeCell::new(0),
            }),
            taken: AtomicU64::new(0),
            reader: ModelEndpoint::new(),
        })
    }
}

impl Circle for ModelMemory {
    fn bytes(&self) -> u64 {
        WORDS as u64 * WORD
    }

    fn header(&self, place: u64) -> &AtomicU64 {
        &self.words[(place / WORD) as usize].header
    }

    fn taken(&self) -> &AtomicU64 {
        &self.taken
    }

    fn write(&self, place: u64, bytes: &[u8]) {
        let Ok(bytes) = bytes.try_into() else {
            return assert!(bytes.is_empty());
        };
        let word = &self.words[(place / WORD) as usize];
        word.header.store(u64::MAX - 1, Ordering::Relaxed);
        // SAFETY: the reader reads only after it saw the header, and loom checks that this holds.
        word.bytes
            .with_mut(|at| unsafe { *at = u64::from_ne_bytes(bytes) });
    }

    fn read(&self, place: u64, len: u64, into: &mut Vec<u8>) {
        if len > 0 {
            let word = &self.words[(place / WORD) as usize];
            // SAFETY: the writer returns here only after it saw that the bytes were taken, and loom
            // checks that this holds.
            let bytes = word.bytes.with(|at| unsafe { *at });
            into.extend_from_slice(&bytes.to_ne_bytes());
        }
    }
}

/// Writes a record, after waiting for the reader to make room.
fn write(memory: &ModelMemory, writer: &mut Writer, value: u64) {
    while !writer.write(memory, &[&value.to_ne_bytes()]).unwrap() {
        thread::yield_now();
    }
    memory.reader.ring();
}

/// Reads the next record, asleep until it arrives.
fn read(memory: &ModelMemory, reader: &mut Reader) -> Option<u64> {
    while !reader.has_any(memory) {
        memory.reader.sleep(ON_FUTEX, || reader.has_any(memory));
    }
    let mut bytes = Vec::new();
    match reader.read(memory, &mut bytes).unwrap() {
        RingRead::Record => Some(u64::from_ne_bytes(bytes.try_into().unwrap())),
        RingRead::Diversion => None,
        RingRead::Nothing => unreachable!("there was something"),
    }
}

#[test]
fn loom_a_sleeping_reader_misses_no_record() {
    model(|| {
        let memory = ModelMemory::new();
        let writing = Arc::clone(&memory);
        let writing = thread::spawn(move || {
            let mut writer = Writer::default();
            (1..=3).for_each(|value| write(&writing, &mut writer, value));
            writer.divert(&*writing);
            writing.reader.ring();
        });
        let mut reader = Reader::default();
        for value in 1..=3 {
            assert_eq!(read(&memory, &mut reader), Some(value));
        }
        assert_eq!(read(&memory, &mut reader), None);
        writing.join().unwrap();
    });
}

/// Two laps, by a writer that has checked for room before: the reader checks once and does not
/// sleep.
fn check_publishing(publish: impl Fn(&ModelMemory, u64, u64) + Copy + Send + Sync + 'static) {
    model(move || {
        let memory = ModelMemory::new();
        // Left by an earlier lap.
        memory.write(2 * WORD, &7_u64.to_ne_bytes());
        let writing = Arc::clone(&memory);
        let writing = thread::spawn(move || {
            writing.write(WORD, &1_u64.to_ne_bytes());
            publish(&writing, 0, 2 * WORD);
        });
        let (mut reader, mut bytes) = (Reader::default(), Vec::new());
        if reader.read(&*memory, &mut bytes).unwrap() == RingRead::Record {
            assert_eq!(bytes, 1_u64.to_ne_bytes());
            let next = reader.read(&*memory, &mut bytes);
            assert_eq!(next, Ok(RingRead::Nothing), "read bytes of an earlier lap");
        }
        writing.join().unwrap();
    });
}

#[test]
fn loom_accepts_the_correct_order() {
    check_publishing(|memory, this, next| {
        memory.header(next).store(0, Ordering::Relaxed);
        memory.header(this).store(WORD + 1, Ordering::Release);
    });
}

/// Shows that the models detect errors: a next header that is cleared too late is read with its old
/// value.
#[test]
#[should_panic(expected = "read bytes of an earlier lap")]
fn loom_finds_the_next_header_cleared_too_late() {
    check_publishing(|memory, this, next| {
        memory.header(this).store(WORD + 1, Ordering::Release);
        memory.header(next).store(0, Ordering::Relaxed);
    });
}

/// As above: a header that is stored without release is seen before the bytes.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_finds_a_header_stored_too_weakly() {
    check_publishing(|memory, this, next| {
        memory.header(next).store(0, Ordering::Relaxed);
        memory.header(this).store(WORD + 1, Ordering::Relaxed);
    });
}
