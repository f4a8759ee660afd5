//! Connections that are reset while both ends live: the link goes on, and nothing is lost or comes
//! twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_transport::{
    Link, LinkError, Local, POOL_HEADER, RegionKey, Signal, Standing, Stream, Submission, Ticket,
    Transport,
};
use weft_transport_tcp::{Encryption, Interface, Resumption, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{LinkPair, LinkSide, Subject, TestMemory, deadline};
use weft_transport_testing::reset;

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;
const BYTES: usize = 200_000;
/// Puts whose memory at the receiver is not free yet.
const SLOTS: u64 = 4;
const ROUNDS: u64 = 300;
/// An end is reported within a second.
const SOON: Duration = Duration::from_secs(1);

fn transport(local: Local, connections: usize, options: TcpOptions) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named("127.0.0.1".into()),
        connections: Some(connections),
        ..options
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
}

fn kept(encryption: Encryption) -> TcpOptions {
    TcpOptions {
        resumption: Resumption::On,
        encryption,
        ..TcpOptions::default()
    }
}

const ONE: Subject = Subject {
    make: |local| transport(local, 1, kept(Encryption::Off)),
};
const SEVERAL: Subject = Subject {
    make: |local| transport(local, 3, kept(Encryption::Off)),
};
const ENCRYPTED: Subject = Subject {
    make: |local| transport(local, 1, kept(Encryption::Best)),
};
const SEVERAL_ENCRYPTED: Subject = Subject {
    make: |local| transport(local, 3, kept(Encryption::Best)),
};
const NEVER: Subject = Subject {
    make: |local| {
        let resumption = Resumption::Off;
        transport(
            local,
            1,
            TcpOptions {
                resumption,
                ..TcpOptions::default()
            },
        )
    },
};

/// Both ends keep each other's link pair, as the runtime does.
fn pair(subject: &Subject) -> LinkPair {
    let pair = LinkPair::new(subject);
    pair.a
        .transport
        .admit(pair.b.local.id, &pair.b.transport.address())
        .unwrap();
    pair
}

fn renewals(link: &dyn Link) -> u64 {
    link.traffic().map_or(0, |traffic| traffic.renewals)
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
    round: u64,
    /// The memory of puts that are under way.
    sources: Vec<(Ticket, TestMemory)>,
    answered: u64,
    checked: u64,
}

impl Direction {
    fn new() -> Self {
        Direction {
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
        if self.round == ROUNDS || self.round - self.answered >= SLOTS {
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

/// Sends in both directions while one connection after the other is reset at either end.
fn check_traffic(subject: &Subject) {
    let mut pair = pair(subject);
    let [mut there, mut back] = [Direction::new(), Direction::new()];
    let (mut resets, mut last, mut answered) = (0, Instant::now(), 0);
    let until = deadline() + Duration::from_secs(40);
    while there.answered < ROUNDS || back.answered < ROUNDS {
        assert!(
            Instant::now() < until,
            "{} {}",
            there.answered,
            back.answered
        );
        there.send(&pair.a);
        back.send(&pair.b);
        pair.a.pump();
        pair.b.pump();
        take(&mut pair.a, &mut there, &mut back);
        take(&mut pair.b, &mut back, &mut there);
        // A busy machine makes progress between two resets, too.
        let since = there.answered + back.answered;
        if last.elapsed() > Duration::from_millis(2) && since >= answered + 4 {
            (resets, answered) = (resets + 1, since);
            reset(if resets % 3 == 0 {
                &*pair.b.link
            } else {
                &*pair.a.link
            });
            last = Instant::now();
        }
    }
    let renewed = renewals(&*pair.a.link).min(renewals(&*pair.b.link));
    assert!(renewed > 20, "{renewed} of {resets}");
}

#[test]
fn one_connection_is_made_anew() {
    check_traffic(&ONE);
}

#[test]
fn one_encrypted_connection_is_made_anew() {
    check_traffic(&ENCRYPTED);
}

#[test]
fn each_of_several_connections_is_made_anew() {
    check_traffic(&SEVERAL);
}

#[test]
fn each_of_several_encrypted_connections_is_made_anew() {
    check_traffic(&SEVERAL_ENCRYPTED);
}

fn until_gone(side: &mut LinkSide) {
    let until = deadline();
    while side.received.end.is_none() && Instant::now() < until {
        side.pump();
        std::thread::yield_now();
    }
    let end = &side.received.end;
    assert!(matches!(end, Some(LinkError::Gone(_))), "{end:?}");
}

/// With its transport, and with it nothing listens any more.
#[test]
fn death_of_either_end_is_reported_soon() {
    for dies in [false, true] {
        for subject in [ONE, SEVERAL_ENCRYPTED] {
            let LinkPair { a, b } = pair(&subject);
            let (dead, mut left) = if dies { (a, b) } else { (b, a) };
            let since = Instant::now();
            drop(dead);
            until_gone(&mut left);
            assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        }
    }
}

#[test]
fn death_after_a_reset_is_reported_soon() {
    for dies in [false, true] {
        let LinkPair { a, b } = pair(&ONE);
        let (dead, mut left) = if dies { (a, b) } else { (b, a) };
        reset(&*left.link);
        left.pump();
        let since = Instant::now();
        drop(dead);
        until_gone(&mut left);
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    }
}

/// Its endpoint lives.
#[test]
fn end_that_gave_up_the_link_is_reported_soon() {
    for gives_up in [false, true] {
        let LinkPair { a, b } = pair(&ONE);
        let (given_up, mut left) = if gives_up { (a, b) } else { (b, a) };
        let LinkSide {
            transport: _listens,
            link,
            ..
        } = given_up;
        let since = Instant::now();
        drop(link);
        until_gone(&mut left);
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    }
}

#[test]
fn goodbye_that_was_lost_is_said_again() {
    for closes in [false, true] {
        for subject in [ONE, SEVERAL, ENCRYPTED] {
            let LinkPair { a, b } = pair(&subject);
            let (closing, mut other) = if closes { (a, b) } else { (b, a) };
            let message = vec![7; 60_000];
            for _ in 0..20 {
                closing.link.message(&message).unwrap();
            }
            closing.link.close();
            reset(&*closing.link);
            let until = deadline();
            while other.received.end.is_none() && Instant::now() < until {
                other.pump();
            }
            let end = &other.received.end;
            assert!(matches!(end, Some(LinkError::Left)), "{end:?}");
            assert_eq!(other.received.messages.len(), 20);
        }
    }
}

#[test]
fn link_is_silent_while_a_connection_is_made_anew() {
    let mut pair = pair(&ONE);
    assert_eq!(pair.a.link.standing(), Standing::Good);
    reset(&*pair.a.link);
    pair.a.link.message(b"through").unwrap();
    pair.a.pump();
    pair.until("the message", |pair| !pair.b.received.messages.is_empty());
    pair.until("rest", |pair| pair.a.link.standing() == Standing::Good);
    assert_eq!(renewals(&*pair.a.link), 1);
}

#[test]
fn nothing_is_made_anew_where_that_is_off() {
    let mut pair = pair(&NEVER);
    reset(&*pair.a.link);
    let since = Instant::now();
    until_gone(&mut pair.a);
    until_gone(&mut pair.b);
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}
