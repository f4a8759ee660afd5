//! Traffic in both directions of a link that compares everything: lost, doubled, reordered or
//! changed bytes panic.

use weft_transport::{Link, POOL_HEADER, RegionKey, Signal, Stream, Submission, Ticket};
use weft_transport_testing::conformance::{LinkPair, LinkSide, TestMemory};

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;
const BYTES: usize = 200_000;
/// Puts whose memory at the receiver is not free yet.
const SLOTS: u64 = 4;

/// Traffic between both ends of a link.
pub(crate) struct Exchange {
    pub(crate) pair: LinkPair,
    there: Direction,
    back: Direction,
}

impl Exchange {
    /// This many rounds in each direction.
    pub(crate) fn new(pair: LinkPair, rounds: u64) -> Self {
        Exchange {
            pair,
            there: Direction::new(rounds),
            back: Direction::new(rounds),
        }
    }

    /// The rounds of both directions that were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.there.answered + self.back.answered
    }

    /// Sends and receives what is possible now.
    pub(crate) fn advance(&mut self) {
        let Exchange { pair, there, back } = self;
        there.send(&pair.a);
        back.send(&pair.b);
        pair.a.pump();
        pair.b.pump();
        take(&mut pair.a, there, back);
        take(&mut pair.b, back, there);
    }
}

/// The content of a round's put.
fn content(round: u64) -> Vec<u8> {
    (0..BYTES)
        .map(|at| (at % 241) as u8 ^ round as u8)
        .collect()
}

/// The number of a round's stream: the ordinary, the urgent, or a further one.
fn stream_of(link: &dyn Link, round: u64) -> usize {
    let further = (1..).take_while(|number| link.further_stream(*number).is_some());
    round as usize % (further.count() + 2)
}

/// Each stream has its own signal.
fn flag_of(link: &dyn Link, round: u64) -> u64 {
    FLAG + 64 * stream_of(link, round) as u64
}

/// One direction of the traffic: puts of all sizes over all streams, each with a signal, and behind
/// each a message, which the receiver answers when it has compared everything.
struct Direction {
    rounds: u64,
    round: u64,
    /// The memory of puts that are under way.
    sources: Vec<(Ticket, TestMemory)>,
    answered: u64,
    checked: u64,
}

impl Direction {
    fn new(rounds: u64) -> Self {
        Direction {
            rounds,
            round: 0,
            sources: Vec::new(),
            answered: 0,
            checked: 0,
        }
    }

    fn place(round: u64) -> u64 {
        DATA + round % SLOTS * BYTES as u64
    }

    /// A round's bytes: some are copied into the queue, some are sent from their memory.
    fn bytes(round: u64) -> usize {
        match round % 5 {
            0 => 100,
            1 => 2000,
            2 => 70_000,
            _ => BYTES,
        }
    }

    fn send(&mut self, from: &LinkSide) {
        // The memory of complete puts is the caller's again.
        self.sources.retain(|(ticket, memory)| {
            let complete = from.link.completed(*ticket).expect("a good link");
            if complete {
                for piece in memory.source() {
                    // SAFETY: the piece is the test's own, and no put reads it any more.
                    unsafe { piece.start().cast_mut().write_bytes(0xEE, piece.len()) };
                }
            }
            !complete
        });
        if self.round == self.rounds || self.round - self.answered >= SLOTS {
            return;
        }
        let round = self.round + 1;
        let memory = from.memory(&[&content(round)[..Self::bytes(round)]]);
        let signal = Signal {
            offset: flag_of(&*from.link, round),
            value: round,
        };
        let stream: &dyn Stream = match stream_of(&*from.link, round) {
            0 => &*from.link,
            1 => from.link.urgent(),
            number => from.link.further_stream(number - 1).expect("a stream"),
        };
        let source = memory.source();
        match stream.put(RegionKey::POOL, Self::place(round), &source, Some(signal)) {
            Ok(Submission::Full) => return,
            Ok(Submission::Done) => {}
            Ok(Submission::UnderWay(ticket)) => self.sources.push((ticket, memory)),
            Err(error) => panic!("round {round}: {error}"),
        }
        from.link
            .message(&round.to_le_bytes())
            .expect("a good link");
        self.round = round;
    }

    /// Compares what a message announces.
    fn check(&mut self, to: &LinkSide, round: u64) {
        assert_eq!(round, self.checked + 1, "once, and in order");
        let start = Self::place(round);
        let bytes = Self::bytes(round);
        assert!(
            to.bytes(start..start + bytes as u64) == content(round)[..bytes],
            "{round}"
        );
        let flag = flag_of(&*to.link, round);
        assert!(
            to.word(flag) >= round,
            "no old signal overwrites a newer one"
        );
        self.checked = round;
        to.link
            .message(&(round | ANSWER).to_le_bytes())
            .expect("a good link");
    }
}

/// A message that answers another has this bit.
const ANSWER: u64 = 1 << 63;

/// Handles the messages of one end.
fn take(side: &mut LinkSide, sent: &mut Direction, received: &mut Direction) {
    assert!(side.received.end.is_none(), "{:?}", side.received.end);
    for message in std::mem::take(&mut side.received.messages) {
        let number = u64::from_le_bytes(message.try_into().unwrap());
        match number & ANSWER {
            0 => received.check(side, number),
            _ => sent.answered = number & !ANSWER,
        }
    }
}
