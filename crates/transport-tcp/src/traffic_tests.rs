//! Tests of both halves of a link: random traffic, split anywhere, over connections that are lost
//! at any byte, against an oracle, and hostile bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use weft_transport::{
    FlushState, Iovec, LinkError, RegionKey, Regions, Segment, Signal, Submission, Ticket,
};

use crate::class::{CLASSES, Class};
use crate::encryption::Cipher;
use crate::frame::{Frame, HEADER_BYTES};
use crate::incoming::{ReceiveProgress, TcpIncoming};
use crate::outgoing::TcpOutgoing;
use crate::record_key::RecordKey;
use crate::records::{Opening, Sealing};
use crate::resumption::Resumption;

/// Urgent operations write to the second half: the two streams have no common order.
const HALF: u64 = 256 << 10;
const POOL: u64 = 2 * HALF;
const DATA: Range<u64> = 4096..HALF;
const FLAGS: Range<u64> = 0..4096;

/// A connection in memory between two halves of a link, which transfers random numbers of bytes.
pub(crate) struct MemoryWire {
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) portions: Box<dyn Iterator<Item = usize>>,
    /// Of both ends, if the connection is encrypted.
    records: Option<(Sealing, Opening)>,
    cipher: Option<Cipher>,
}

impl MemoryWire {
    pub(crate) fn new(portions: Vec<usize>) -> Self {
        Self {
            bytes: VecDeque::new(),
            portions: Box::new(portions.into_iter().cycle()),
            records: None,
            cipher: None,
        }
    }

    fn encrypted(self, cipher: Cipher) -> Self {
        Self {
            cipher: Some(cipher),
            ..self
        }
        .with_new_keys()
    }

    fn with_new_keys(self) -> Self {
        let key = |cipher| RecordKey::new(cipher, &[7; 32]);
        let records = |cipher| (Sealing::new(key(cipher)), Opening::new(key(cipher)));
        Self {
            records: self.cipher.map(records),
            ..self
        }
    }

    /// Loses everything that is on its way.
    fn reset(&mut self) {
        let portions = std::mem::replace(&mut self.portions, Box::new(std::iter::empty()));
        let new = MemoryWire {
            portions,
            cipher: self.cipher,
            ..MemoryWire::new(Vec::new())
        };
        *self = new.with_new_keys();
    }

    fn portion(&mut self) -> io::Result<usize> {
        match self.portions.next() {
            None | Some(0) => Err(io::ErrorKind::WouldBlock.into()),
            Some(portion) => Ok(portion),
        }
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some((mut sealing, opening)) = self.records.take() else {
            return self.write(slices);
        };
        let sent = sealing.send(slices, |bytes| self.write(&[IoSlice::new(bytes)]));
        self.records = Some((sealing, opening));
        sent
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if slices.is_empty() {
            return Ok(0);
        }
        let mut left = self.portion()?;
        let before = self.bytes.len();
        for slice in slices {
            let taken = left.min(slice.len());
            self.bytes.extend(&slice[..taken]);
            left -= taken;
        }
        Ok(self.bytes.len() - before)
    }
}

impl Read for MemoryWire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.records.is_some() {
            return self.read_vectored(&mut [io::IoSliceMut::new(buffer)]);
        }
        let wanted = self.portion()?.min(buffer.len());
        match self.bytes.read(&mut buffer[..wanted])? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    fn read_vectored(&mut self, slices: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        if let Some((sealing, mut opening)) = self.records.take() {
            let read = opening.read(slices, self);
            self.records = Some((sealing, opening));
            return read;
        }
        let mut left = self.portion()?.min(self.bytes.len());
        if left == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let total = left;
        for slice in slices {
            let wanted = left.min(slice.len());
            self.bytes.read_exact(&mut slice[..wanted])?;
            left -= wanted;
        }
        Ok(total - left)
    }
}

#[derive(Clone, Debug)]
enum TrafficAction {
    Put {
        class: Class,
        offset: u64,
        pieces: Vec<Vec<u8>>,
        signal: Option<Signal>,
        /// Cancels the put if it is still under way after this many further actions.
        patience: Option<usize>,
    },
    Signal(Class, Signal),
    LateSignal(Class, Signal),
    Message(Vec<u8>),
    Flush,
    Receive,
    /// The receiver confirms what has arrived.
    Confirm,
    /// The connection is lost, and made anew.
    Reset,
}

fn classes() -> impl Strategy<Value = Class> {
    prop::sample::select(CLASSES.to_vec())
}

/// An offset in the half of a class.
fn moved(class: Class, offset: u64) -> u64 {
    offset + class as u64 * HALF
}

fn signals() -> impl Strategy<Value = Signal> {
    (0..FLAGS.end / 8, any::<u64>()).prop_map(|(word, value)| Signal {
        offset: word * 8,
        value,
    })
}

fn bytes(length: Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), length).prop_map(|(seed, length)| {
        let byte = |at: usize| seed.wrapping_add((at % 251) as u8);
        (0..length).map(byte).collect()
    })
}

fn actions() -> impl Strategy<Value = TrafficAction> {
    let pieces = || {
        let piece = || prop_oneof![bytes(0..300), bytes(0..20_000), bytes(0..70_000)];
        prop::collection::vec(piece(), 1..5)
    };
    let put = (
        classes(),
        DATA,
        pieces(),
        prop::option::of(signals()),
        prop::option::of(0..6_usize),
    )
        .prop_filter_map(
            "beyond the pool, or nothing",
            |(class, offset, pieces, signal, patience)| {
                let length: usize = pieces.iter().map(Vec::len).sum();
                let fits = length > 0 && offset + length as u64 <= DATA.end;
                let signal = signal.map(|signal| Signal {
                    offset: moved(class, signal.offset),
                    ..signal
                });
                fits.then_some(TrafficAction::Put {
                    class,
                    offset: moved(class, offset),
                    pieces,
                    signal,
                    patience,
                })
            },
        );
    prop_oneof![
        4 => put,
        2 => (classes(), signals(), any::<bool>()).prop_map(|(class, signal, late)| {
            let offset = moved(class, signal.offset);
            let signal = Signal { offset, ..signal };
            match late {
                true => TrafficAction::LateSignal(class, signal),
                false => TrafficAction::Signal(class, signal),
            }
        }),
        2 => bytes(0..3000).prop_map(TrafficAction::Message),
        1 => Just(TrafficAction::Flush),
        2 => Just(TrafficAction::Receive),
        1 => Just(TrafficAction::Confirm),
        1 => Just(TrafficAction::Reset),
    ]
}

/// Sender, wire and receiver, and the receiver's expected contents.
struct Rig {
    outgoing: TcpOutgoing,
    wire: MemoryWire,
    incoming: TcpIncoming,
    pool: Arc<Segment>,
    /// In the order of the calls.
    written: Vec<Write>,
    under_way: Vec<TrafficPut>,
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
}

/// The write of a call.
struct Write {
    offset: u64,
    bytes: Vec<u8>,
    signal: Option<Signal>,
    /// Its bytes may have been written. Its signal must not be stored.
    cancelled: bool,
}

/// A put that is under way, with its source memory.
struct TrafficPut {
    ticket: Ticket,
    /// Its number among the writes.
    number: usize,
    patience: Option<usize>,
    pieces: Vec<Vec<u8>>,
}

impl Rig {
    fn new(portions: Vec<usize>) -> Self {
        let pool = Arc::new(Segment::create("traffic-test", POOL).unwrap());
        let mut incoming = TcpIncoming::new(Regions::new(pool.clone()), 0);
        for start in [0, HALF] {
            incoming.grant(RegionKey::POOL, start..start + FLAGS.end);
            incoming.grant(RegionKey::POOL, start + DATA.start..start + DATA.end);
        }
        Self {
            outgoing: TcpOutgoing::of(0, Resumption::On),
            wire: MemoryWire::new(portions),
            incoming,
            pool,
            written: Vec::new(),
            under_way: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    fn expect(&mut self, offset: u64, bytes: Vec<u8>, signal: Option<Signal>) {
        self.written.push(Write {
            offset,
            bytes,
            signal,
            cancelled: false,
        });
    }

    /// `None` where a cancelled put may or may not have written.
    fn expected(&self) -> Vec<Option<u8>> {
        let mut expected = vec![Some(0); POOL as usize];
        for write in &self.written {
            let place = &mut expected[write.offset as usize..][..write.bytes.len()];
            for (place, byte) in place.iter_mut().zip(&write.bytes) {
                *place = (!write.cancelled).then_some(*byte);
            }
            if let Some(signal) = write.signal.filter(|_| !write.cancelled) {
                let place = &mut expected[signal.offset as usize..][..8];
                place.copy_from_slice(&signal.value.to_ne_bytes().map(Some));
            }
        }
        expected
    }

    fn act(&mut self, action: &TrafficAction) {
        let wire = &mut self.wire;
        let mut send = |slices: &[IoSlice<'_>]| wire.send(slices);
        match action {
            TrafficAction::Put {
                class,
                offset,
                pieces,
                signal,
                patience,
            } => self.put((*class, *offset), pieces.clone(), *signal, *patience),
            TrafficAction::Signal(class, signal) => {
                self.outgoing
                    .frame(*class, &Frame::Signal(*signal), &[], &mut send)
                    .unwrap();
                self.expect(0, Vec::new(), Some(*signal));
            }
            TrafficAction::LateSignal(class, signal) => {
                self.outgoing.late(*class, &Frame::Signal(*signal));
                self.expect(0, Vec::new(), Some(*signal));
            }
            TrafficAction::Message(message) => {
                let bytes = message.len();
                self.outgoing
                    .frame(
                        Class::Ordinary,
                        &Frame::Message { bytes },
                        message,
                        &mut send,
                    )
                    .unwrap();
                self.sent.push(message.clone());
            }
            TrafficAction::Flush => drop(self.outgoing.flush(&mut send).unwrap()),
            TrafficAction::Receive => self.receive().unwrap(),
            TrafficAction::Confirm => {
                let position = self.incoming.position();
                self.outgoing.kept().confirm(position).unwrap();
            }
            TrafficAction::Reset => {
                wire.reset();
                assert!(self.outgoing.kept().resume(self.incoming.read_position()));
            }
        }
        self.cancel();
    }

    fn put(
        &mut self,
        (class, offset): (Class, u64),
        pieces: Vec<Vec<u8>>,
        signal: Option<Signal>,
        patience: Option<usize>,
    ) {
        // SAFETY: the pieces are kept until the put is complete or cancelled.
        let named = |piece: &Vec<u8>| unsafe { Iovec::new(piece.as_ptr(), piece.len()) };
        let source: Vec<Iovec> = pieces.iter().map(named).collect();
        let wire = &mut self.wire;
        let mut send = |slices: &[IoSlice<'_>]| wire.send(slices);
        let place = (RegionKey::POOL, offset);
        let posted = self.outgoing.put(class, place, &source, signal, &mut send);
        match posted.unwrap() {
            Submission::Full => return,
            Submission::Done => {}
            Submission::UnderWay(ticket) => {
                self.expect(offset, pieces.concat(), signal);
                return self.under_way.push(TrafficPut {
                    ticket,
                    number: self.written.len() - 1,
                    patience,
                    pieces,
                });
            }
        }
        self.expect(offset, pieces.concat(), signal);
    }

    /// Drops puts that are complete, and cancels those that are due.
    fn cancel(&mut self) {
        let (outgoing, written) = (&mut self.outgoing, &mut self.written);
        self.under_way.retain_mut(|put| {
            let sent = put.ticket.0 < outgoing.first_under_way(Class::of(put.ticket)).0;
            let over = put.patience == Some(0);
            put.patience = put.patience.map(|patience| patience.saturating_sub(1));
            if over {
                outgoing.cancel(put.ticket);
                // If it was complete, that has no effect.
                written[put.number].cancelled = !sent;
            } else if sent && put.patience.is_none() {
                outgoing.kept().give_back(put.ticket);
            } else {
                return true;
            }
            // Its memory is the caller's again.
            put.pieces.iter_mut().for_each(|piece| piece.fill(0xEE));
            false
        });
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        for _ in 0..50 {
            let step = self.incoming.step(&mut self.wire);
            let messages = self.incoming.messages.drain(..);
            self.received.extend(messages.map(|message| message.bytes));
            step?;
        }
        Ok(())
    }

    /// Continues until nothing is under way any more, with portions that allow progress.
    fn settle(&mut self) {
        self.wire.portions = Box::new(std::iter::repeat(777));
        loop {
            let wire = &mut self.wire;
            let mut send = |slices: &[IoSlice<'_>]| wire.send(slices);
            let progress = self.outgoing.flush(&mut send).unwrap();
            self.receive().unwrap();
            if progress == FlushState::Done && self.wire.bytes.is_empty() {
                self.receive().unwrap();
                assert_eq!(self.outgoing.position(), self.incoming.position());
                return;
            }
        }
    }

    fn contents(&self) -> Vec<u8> {
        contents(&self.pool)
    }
}

fn contents(pool: &Segment) -> Vec<u8> {
    let words = (0..POOL / 8).map(|word| pool.word(word * 8).load(Ordering::Acquire));
    words.flat_map(u64::to_ne_bytes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn traffic_arrives_unchanged(
        cipher in prop::sample::select(vec![None, Some(Cipher::AesGcm), Some(Cipher::ChaCha20Poly1305)]),
        actions in prop::collection::vec(actions(), 1..25),
        portions in prop::collection::vec(prop_oneof![Just(0), 1..100_usize, 1..50_000_usize], 1..20),
    ) {
        prop_assume!(portions.iter().sum::<usize>() > 1000);
        let mut rig = Rig::new(portions);
        if let Some(cipher) = cipher {
            rig.wire = rig.wire.encrypted(cipher);
        }
        actions.iter().for_each(|action| rig.act(action));
        rig.settle();
        prop_assert_eq!(&rig.received, &rig.sent);
        let contents = rig.contents();
        let expected = rig.expected();
        let differs = expected.iter().zip(&contents).position(|(expected, byte)| {
            expected.is_some_and(|expected| expected != *byte)
        });
        prop_assert_eq!(differs, None);
    }

    #[test]
    fn hostile_bytes_write_only_granted_ranges(
        words in prop::collection::vec(
            prop_oneof![0..5_u64, 0..POOL / 1024, Just(u64::MAX), Just(8192), Just(64), any::<u64>()],
            5..200,
        ),
        portion in 1..5000_usize,
    ) {
        let pool = Arc::new(Segment::create("traffic-test", POOL).unwrap());
        let mut incoming = TcpIncoming::new(Regions::new(pool.clone()), 0);
        incoming.grant(RegionKey::POOL, 8192..12288);
        incoming.revoke(RegionKey::POOL, 8192..9000);
        let mut wire = MemoryWire::new(vec![portion]);
        wire.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        while let Ok(step) = incoming.step(&mut wire) {
            incoming.messages.clear();
            if step == ReceiveProgress::Drained(0) {
                break;
            }
        }
        let contents = contents(&pool);
        prop_assert!(contents[..9000].iter().all(|byte| *byte == 0));
        prop_assert!(contents[12288..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn range_revoked_during_a_put_stays_unwritten() {
    let pool = Arc::new(Segment::create("traffic-test", POOL).unwrap());
    let mut incoming = TcpIncoming::new(Regions::new(pool.clone()), 0);
    incoming.grant(RegionKey::POOL, DATA);
    let range = DATA.start..DATA.start + 1000;
    let (first, then) = (
        Signal {
            offset: range.start,
            value: 1,
        },
        Signal {
            offset: DATA.end - 8,
            value: 2,
        },
    );
    let mut wire = MemoryWire::new(vec![HEADER_BYTES, 400, 600, 2 * HEADER_BYTES]);
    let put = Frame::Put {
        region: 0,
        range: range.clone(),
        signal: Some(first),
    };
    wire.bytes.extend(put.encode());
    wire.bytes.extend([7; 1000]);
    wire.bytes.extend(Frame::Signal(then).encode());
    for _ in 0..2 {
        incoming.step(&mut wire).unwrap();
    }
    incoming.revoke(RegionKey::POOL, range.clone());
    for _ in 0..2 {
        incoming.step(&mut wire).unwrap();
    }
    let contents = contents(&pool);
    let at = |offset: u64| contents[offset as usize];
    assert_eq!(
        at(range.start),
        7,
        "bytes from before may remain, without the signal"
    );
    assert_eq!(
        [
            at(range.start + 399),
            at(range.start + 400),
            at(range.end - 1)
        ],
        [7, 0, 0]
    );
    assert_eq!(pool.word(then.offset).load(Ordering::Acquire), 2);
}

/// A kernel may accept all of a put but the signal behind it.
#[test]
fn signal_behind_a_sent_put_is_due() {
    let mut rig = Rig::new(vec![HEADER_BYTES + 5000, 0]);
    let signal = Signal {
        offset: 8,
        value: 1,
    };
    let class = Class::Ordinary;
    rig.put((class, DATA.start), vec![vec![7; 5000]], Some(signal), None);
    assert_eq!(rig.outgoing.waiting(), HEADER_BYTES as u64);
    assert!(rig.outgoing.is_due());
    rig.settle();
    assert!(!rig.outgoing.is_due());
    assert_eq!(rig.pool.word(signal.offset).load(Ordering::Acquire), 1);
}
