use std::collections::VecDeque;

use proptest::prelude::*;

use super::words::RingWords;
use super::*;

#[derive(Clone, Debug)]
enum RingStep {
    /// A record of pieces of these lengths.
    Write(Vec<usize>),
    Divert,
    Read,
}

fn step() -> impl Strategy<Value = RingStep> {
    prop_oneof![
        4 => prop::collection::vec(0_usize..40, 0..4).prop_map(RingStep::Write),
        1 => Just(RingStep::Divert),
        4 => Just(RingStep::Read),
    ]
}

proptest! {
    /// Compares it with a queue: records arrive in order; a record is accepted if there is room for
    /// it; and a diversion always is.
    #[test]
    fn a_ring_is_a_queue(words in 5_u64..40, steps in prop::collection::vec(step(), 0..400)) {
        let ring = RingWords::new(words * WORD);
        let (mut writer, mut reader) = (Writer::default(), Reader::default());
        // None is a diversion, behind which the writer waits for half of the ring, as connections
        // do.
        let mut queue: VecDeque<Option<Vec<u8>>> = VecDeque::new();
        let (mut diverted, mut buffer, mut next) = (false, Vec::new(), 0_u8);
        for step in steps {
            diverted = diverted && !writer.has_room(&ring, ring.bytes() / 2).unwrap();
            match step {
                RingStep::Write(lens) if !diverted => {
                    let pieces: Vec<Vec<u8>> = lens
                        .iter()
                        .map(|len| (0..*len).map(|_| { next = next.wrapping_add(7); next }).collect())
                        .collect();
                    let borrowed: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
                    let whole = pieces.concat();
                    let used: u64 = queue.iter().map(|q| record_or_diversion(q.as_ref())).sum();
                    let fits = used + record(whole.len() as u64) + RESERVE <= ring.bytes();
                    prop_assert_eq!(writer.write(&ring, &borrowed), Ok(fits));
                    if fits {
                        queue.push_back(Some(whole));
                    }
                }
                RingStep::Divert if !diverted => {
                    writer.divert(&ring);
                    queue.push_back(None);
                    diverted = true;
                }
                RingStep::Write(_) | RingStep::Divert => {}
                RingStep::Read => {
                    prop_assert_eq!(reader.has_any(&ring), !queue.is_empty());
                    let found = reader.read(&ring, &mut buffer).unwrap();
                    match queue.pop_front() {
                        None => prop_assert_eq!(found, RingRead::Nothing),
                        Some(None) => prop_assert_eq!(found, RingRead::Diversion),
                        Some(Some(bytes)) => {
                            prop_assert_eq!(found, RingRead::Record);
                            prop_assert_eq!(&buffer, &bytes);
                        }
                    }
                }
            }
        }
    }
}

fn record_or_diversion(queued: Option<&Vec<u8>>) -> u64 {
    queued.map_or(WORD, |bytes| record(bytes.len() as u64))
}

#[test]
fn an_impossible_length_is_an_error() {
    let ring = RingWords::new(64);
    for header in [longest(&ring) + 2, 1 << 40, DIVERSION - 1] {
        ring.header(0).store(header, Ordering::Relaxed);
        let error = Reader::default().read(&ring, &mut Vec::new()).unwrap_err();
        let message = format!("a record of {} bytes", header - 1);
        assert!(error.contains(&message), "{error}");
    }
    // The longest possible record.
    ring.header(0).store(longest(&ring) + 1, Ordering::Relaxed);
    let found = Reader::default().read(&ring, &mut Vec::new());
    assert_eq!(found, Ok(RingRead::Record));
}

#[test]
fn an_impossible_position_is_an_error() {
    let ring = RingWords::new(64);
    let mut writer = Writer::default();
    assert_eq!(writer.write(&ring, &[&[1; 24]]), Ok(true));
    for taken in [33, u64::MAX] {
        ring.taken().store(taken, Ordering::Relaxed);
        let error = writer.write(&ring, &[&[1; 24]]).unwrap_err();
        assert!(error.contains(&format!("taken {taken} bytes")), "{error}");
    }
}
