//! Control messages.

use super::memory::pattern;
use super::{LinkPair, Subject};
use weft_transport::{FlushState, MESSAGE_BYTES_MAX, POOL_HEADER, RegionKey, Signal};

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;
const LONGEST: usize = MESSAGE_BYTES_MAX;

/// From empty ones to the longest allowed.
pub fn messages_of_all_lengths_arrive_in_order(subject: &Subject) {
    let lengths = [0, 1, 2, 7, 255, 256, 257, 4095, 4096, 65_000, LONGEST, 3, 0];
    let mut pair = LinkPair::new(subject);
    for (seed, len) in lengths.into_iter().enumerate() {
        pair.a.link.message(&pattern(seed as u64, len)).unwrap();
    }
    pair.until("the messages", |pair| {
        pair.b.received.messages.len() == lengths.len()
    });
    for (seed, len) in lengths.into_iter().enumerate() {
        assert!(
            pair.b.received.messages[seed] == pattern(seed as u64, len),
            "message {seed}"
        );
    }
    assert!(pair.a.received.messages.is_empty());
}

/// The two directions are independent.
pub fn both_directions_at_once(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    for number in 0..300u64 {
        pair.a.link.message(&number.to_le_bytes()).unwrap();
        pair.b.link.message(&(number + 1000).to_le_bytes()).unwrap();
    }
    pair.until("both sides' messages", |pair| {
        pair.a.received.messages.len() == 300 && pair.b.received.messages.len() == 300
    });
    for number in 0..300u64 {
        assert_eq!(
            pair.b.received.messages[number as usize],
            number.to_le_bytes()
        );
        assert_eq!(
            pair.a.received.messages[number as usize],
            (number + 1000).to_le_bytes()
        );
    }
}

/// A message and a signal keep their order.
pub fn a_message_arrives_before_a_later_signal(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    for value in 1..=200u64 {
        pair.a.link.message(&value.to_le_bytes()).unwrap();
        pair.a
            .link
            .signal(Signal {
                offset: FLAG,
                value,
            })
            .unwrap();
        pair.until_signalled(FLAG, value);
        pair.b.pump();
        assert_eq!(pair.b.received.messages.len() as u64, value);
    }
}

/// Messages between puts arrive whole, and so do the puts.
pub fn messages_and_puts_interleave(subject: &Subject) {
    const ROUNDS: u64 = 40;
    let len = |round: u64| 30_000 * (round as usize % 4);
    let mut pair = LinkPair::new(subject);
    for round in 1..=ROUNDS {
        let bytes = pattern(round, len(round));
        pair.a.link.message(&pattern(round, 100)).unwrap();
        pair.put(
            DATA + round * 100_000,
            &[&bytes],
            Some(Signal {
                offset: FLAG,
                value: round,
            }),
        );
        pair.a.link.message(&pattern(round + 500, 5000)).unwrap();
    }
    pair.until_signalled(FLAG, ROUNDS);
    pair.until("the messages", |pair| {
        pair.b.received.messages.len() as u64 == 2 * ROUNDS
    });
    for round in 1..=ROUNDS {
        let start = DATA + round * 100_000;
        let end = start + len(round) as u64;
        assert!(
            pair.b.bytes(start..end) == pattern(round, len(round)),
            "put {round}"
        );
        let messages = &pair.b.received.messages[2 * (round as usize - 1)..];
        assert!(
            messages[0] == pattern(round, 100),
            "first message of round {round}"
        );
        assert!(
            messages[1] == pattern(round + 500, 5000),
            "second message of round {round}"
        );
    }
}

/// The messages exceed any buffer: no call blocks, and all arrive once the peer receives.
pub fn a_flood_is_queued_and_arrives(subject: &Subject) {
    const COUNT: u64 = 300;
    let mut pair = LinkPair::new(subject);
    for number in 0..COUNT {
        pair.a.link.message(&pattern(number, LONGEST)).unwrap();
    }
    pair.until("the flood", |pair| {
        pair.b.received.messages.len() as u64 == COUNT
    });
    for number in 0..COUNT {
        let message = &pair.b.received.messages[number as usize];
        assert!(*message == pattern(number, LONGEST), "message {number}");
    }
    assert_eq!(pair.a.link.flush().unwrap(), FlushState::Done);
}

/// Puts and signals behind queued messages are not seen before those messages.
pub fn order_holds_behind_a_flood(subject: &Subject) {
    const COUNT: u64 = 100;
    let mut pair = LinkPair::new(subject);
    for number in 0..COUNT {
        pair.a.link.message(&pattern(number, LONGEST)).unwrap();
    }
    pair.a
        .link
        .signal(Signal {
            offset: FLAG,
            value: 1,
        })
        .unwrap();
    let small = [
        Signal {
            offset: FLAG + 128,
            value: 1,
        },
        Signal {
            offset: FLAG + 256,
            value: 1,
        },
    ];
    let injected = pair
        .a
        .link
        .inject(RegionKey::POOL, DATA, &[9; 100], Some(small[0]));
    injected.unwrap();
    pair.a.link.message(b"after").unwrap();
    pair.until("the flood's end", |pair| {
        let flags = [FLAG, FLAG + 128].map(|offset| pair.b.word(offset));
        // Checked after the flags: everything sent before them must have arrived.
        pair.b.pump();
        let messages = pair.b.received.messages.len() as u64;
        assert!(
            flags == [0, 0] || messages >= COUNT,
            "{flags:?} after {messages} messages"
        );
        messages == COUNT + 1
    });
    pair.put(DATA + 4096, &[&pattern(8, 100_000)], Some(small[1]));
    pair.until_signalled(FLAG + 256, 1);
    assert_eq!(
        pair.b.bytes(DATA..DATA + 101),
        [vec![9; 100], vec![0]].concat()
    );
}

/// A message longer than 64 KiB is the caller's mistake, and does no harm.
pub fn an_overlong_message_is_an_error(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    assert!(pair.a.link.message(&vec![0; LONGEST + 1]).is_err());
    pair.a.link.message(b"fine").unwrap();
    pair.until("the next message", |pair| {
        !pair.b.received.messages.is_empty()
    });
    assert_eq!(pair.b.received.messages, [b"fine"]);
}

/// Long and short messages, sent both ways, with signals between: their order is that of the calls,
/// whichever way each takes.
pub fn polled_messages_and_messages_keep_their_order(subject: &Subject) {
    const COUNT: u64 = 600;
    let mut pair = LinkPair::new(subject);
    // Some are read immediately, then more and more wait.
    for number in 1..=COUNT {
        let len = (number * 7919) as usize % [40, 3000, 20_000, LONGEST][number as usize % 4];
        let bytes = pattern(number, len);
        match number % 5 {
            0 => pair.a.link.message(&bytes).unwrap(),
            _ => {
                let (first, second) = bytes.split_at(len / 3);
                pair.a.link.polled_message(&[first, second, b""]).unwrap();
            }
        }
        let signal = Signal {
            offset: FLAG,
            value: number,
        };
        pair.a.link.signal(signal).unwrap();
        if number % (1 + number / 20) == 0 {
            let signalled = pair.b.word(FLAG);
            // Checked after the flag: everything sent before it must have arrived.
            pair.b.pump();
            assert!(pair.b.received.messages.len() as u64 >= signalled);
        }
    }
    pair.until("all of them", |pair| {
        pair.b.received.messages.len() as u64 == COUNT
    });
    for number in 1..=COUNT {
        let len = (number * 7919) as usize % [40, 3000, 20_000, LONGEST][number as usize % 4];
        let message = &pair.b.received.messages[number as usize - 1];
        assert!(*message == pattern(number, len), "message {number}");
    }
}

/// A receiver of polled messages needs no other check, once the link reports that there are some.
pub fn polled_messages_are_found_by_polling(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    for number in 0..5000_u64 {
        pair.a
            .link
            .polled_message(&[&number.to_le_bytes()])
            .unwrap();
        if pair.b.take_polled() {
            assert_eq!(
                pair.b.received.messages.last().unwrap(),
                &number.to_le_bytes()
            );
        }
        assert!(!pair.b.take_polled());
    }
    pair.until("the polled messages", |pair| {
        pair.b.received.messages.len() == 5000
    });
    let too_long = vec![0; LONGEST + 1];
    assert!(pair.a.link.polled_message(&[&too_long]).is_err());
}
