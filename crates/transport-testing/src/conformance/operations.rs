//! Operations in flight: tickets, gets, atomics, cancellation.

use std::sync::atomic::Ordering;

use super::memory::pattern;
use super::{LinkPair, Subject, TestMemory};
use weft_transport::{
    AtomicOp, Iovec, IovecMut, LinkError, POOL_HEADER, RegionKey, Signal, Submission, Ticket,
};

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;
const POOL: RegionKey = RegionKey::POOL;

fn signal(offset: u64, value: u64) -> Option<Signal> {
    Some(Signal { offset, value })
}

/// Waits until all are complete, in any order.
fn until_complete(pair: &mut LinkPair, tickets: &[Ticket]) {
    let mut open = tickets.to_vec();
    pair.until("all operations to be complete", |pair| {
        open.retain(|ticket| !pair.a.link.completed(*ticket).unwrap());
        open.is_empty()
    });
}

/// Waits until `count` puts of a pattern each, one behind the other, have signalled, and checks
/// them.
fn check_patterns(pair: &mut LinkPair, count: u64, bytes: u64) {
    pair.until_signalled(FLAG, count);
    for number in 0..count {
        let start = DATA + number * bytes;
        let arrived = pair.b.bytes(start..start + bytes);
        assert!(arrived == pattern(number, bytes as usize), "put {number}");
    }
}

/// Several puts of one caller are under way, and all arrive complete.
pub fn many_puts_are_under_way_together(subject: &Subject) {
    const COUNT: u64 = 40;
    const BYTES: u64 = 300_000;
    let mut pair = LinkPair::new(subject);
    let memory = |number| pair.a.memory(&[&pattern(number, BYTES as usize)]);
    let memory: Vec<TestMemory> = (0..COUNT).map(memory).collect();
    let (mut posted, mut tickets, mut most) = (0, Vec::new(), 0);
    pair.until("all puts to be taken", |pair| {
        while posted < COUNT {
            let (source, offset) = (memory[posted as usize].source(), DATA + posted * BYTES);
            let link = &pair.a.link;
            match link
                .put(POOL, offset, &source, signal(FLAG, posted + 1))
                .unwrap()
            {
                Submission::Full => break,
                Submission::UnderWay(ticket) => tickets.push(ticket),
                Submission::Done => {}
            }
            posted += 1;
        }
        let under_way = |ticket: &&Ticket| !pair.a.link.completed(**ticket).unwrap();
        most = most.max(tickets.iter().filter(under_way).count());
        posted == COUNT
    });
    assert!(tickets.is_empty() || most > 1, "one after the other");
    until_complete(&mut pair, &tickets);
    check_patterns(&mut pair, COUNT, BYTES);
}

/// A put that is rejected because the queue is full has no effect, and earlier ones arrive.
pub fn a_full_queue_accepts_nothing(subject: &Subject) {
    const BYTES: u64 = 1 << 20;
    let mut pair = LinkPair::new(subject);
    let memory = pair.a.memory(&[&pattern(9, BYTES as usize)]);
    let source = memory.source();
    let mut tickets = Vec::new();
    let mut taken = 0;
    // The peer does not receive.
    for value in 1..=20 {
        let put = pair
            .a
            .link
            .put(POOL, DATA + value * BYTES, &source, signal(FLAG, value));
        match put.unwrap() {
            Submission::Full => break,
            Submission::UnderWay(ticket) => tickets.push(ticket),
            Submission::Done => {}
        }
        taken = value;
    }
    pair.until_signalled(FLAG, taken);
    until_complete(&mut pair, &tickets);
    let at = |value| DATA + value * BYTES;
    assert!(pair.b.bytes(at(taken)..at(taken) + BYTES) == pattern(9, BYTES as usize));
    let after = pair.b.bytes(at(taken) + BYTES..at(taken) + BYTES + 100);
    assert_eq!(after, [0; 100]);
    assert_eq!(pair.b.word(FLAG), taken);
}

/// Signals of puts, of injected bytes and alone stay in order, and arrive after the bytes before
/// them.
pub fn order_holds_between_operations_of_all_sizes(subject: &Subject) {
    const COUNT: u64 = 300;
    const PLACE: u64 = 40_000;
    let len = |number: u64| [8, 33_000, 100, 0, 5000, 256, 3000][number as usize % 7];
    let mut pair = LinkPair::new(subject);
    let (mut posted, mut seen) = (1, 0);
    let memory = |number| pair.a.memory(&[&pattern(number, len(number))]);
    let memory: Vec<TestMemory> = (0..=COUNT).map(memory).collect();
    pair.until("the last signal", |pair| {
        for _ in 0..5 {
            if posted > COUNT {
                break;
            }
            let (link, word) = (&pair.a.link, signal(FLAG, posted));
            let offset = DATA + posted * PLACE;
            let taken = match len(posted) {
                0 => link.signal(word.unwrap()).map(|()| Submission::Done),
                8..=256 => {
                    let bytes = pattern(posted, len(posted));
                    let injected = link.inject(POOL, offset, &bytes, word);
                    injected.map(|()| Submission::Done)
                }
                _ => link.put(POOL, offset, &memory[posted as usize].source(), word),
            };
            posted += u64::from(taken.unwrap() != Submission::Full);
        }
        let now = pair.b.word(FLAG);
        for number in seen + 1..=now {
            let (start, len) = (DATA + number * PLACE, len(number));
            let bytes = pair.b.bytes(start..start + len as u64);
            assert!(bytes == pattern(number, len), "{number} at signal {now}");
        }
        seen = now;
        now == COUNT
    });
}

/// The memory of a released put may be freed although nobody has asked whether it is complete: what
/// a link sends again later it has elsewhere. The peer may not yet have confirmed the last ones.
pub fn memory_of_released_puts_is_not_read(subject: &Subject) {
    const COUNT: u64 = 40;
    const BYTES: u64 = 300_000;
    const UNCONFIRMED_MAX: usize = 10;
    let mut pair = LinkPair::new(subject);
    let memory = |number| Some(pair.a.memory(&[&pattern(number, BYTES as usize)]));
    let mut memory: Vec<Option<TestMemory>> = (0..COUNT).map(memory).collect();
    let (mut posted, mut open) = (0, Vec::new());
    pair.until("the first puts to be released", |pair| {
        let link = &pair.a.link;
        while posted < COUNT {
            let source = memory[posted as usize].as_ref().unwrap().source();
            let (offset, signal) = (DATA + posted * BYTES, signal(FLAG, posted + 1));
            match link.put(POOL, offset, &source, signal).unwrap() {
                Submission::Full => break,
                Submission::UnderWay(ticket) => open.push((ticket, posted)),
                Submission::Done => memory[posted as usize] = None,
            }
            posted += 1;
        }
        // Confirmations may travel with what may be late.
        pair.b.link.flush_late().unwrap();
        open.retain(|(ticket, number)| {
            let released = link.released(*ticket);
            if released {
                // Unmapped: a later read crashes.
                memory[*number as usize] = None;
            }
            !released
        });
        posted == COUNT && open.len() <= UNCONFIRMED_MAX
    });
    let tickets: Vec<Ticket> = open.iter().map(|(ticket, _)| *ticket).collect();
    until_complete(&mut pair, &tickets);
    check_patterns(&mut pair, COUNT, BYTES);
}

/// After a put is cancelled, its memory may be freed, puts and signals continue, and its signal
/// never arrives.
pub fn a_cancelled_put_leaves_the_link_usable(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let memory = [1, 2, 3].map(|seed| pair.a.memory(&[&pattern(seed, 8 << 20)]));
    let mut undone = Vec::new();
    for (number, memory) in (0..).zip(&memory) {
        let flag = FLAG + 128 * number;
        let put = pair
            .a
            .link
            .put(POOL, DATA, &memory.source(), signal(flag, 1));
        match put.unwrap() {
            Submission::UnderWay(ticket) => undone.push((flag, ticket)),
            Submission::Done => assert_eq!(pair.b.word(flag), 1),
            Submission::Full => panic!("three puts are too many"),
        }
    }
    // The last one first.
    undone.reverse();
    undone.retain(|(_, ticket)| !pair.a.link.completed(*ticket).unwrap());
    for (_, ticket) in &undone {
        pair.a.link.cancel(*ticket);
        // A second time, without effect.
        pair.a.link.cancel(*ticket);
    }
    // A later read would reach the end of the file.
    drop(memory);
    pair.put(DATA, &[&[1, 2, 3]], signal(FLAG + 512, 1));
    pair.until_signalled(FLAG + 512, 1);
    assert_eq!(pair.b.bytes(DATA..DATA + 3), [1, 2, 3]);
    for (flag, _) in undone {
        assert_eq!(pair.b.word(flag), 0, "the signal of a cancelled put");
    }
}

/// A get that is called after a put reads its bytes: the put has arrived.
pub fn a_get_reads_an_earlier_put(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    if pair.a.link.reads().is_none() {
        return;
    }
    for (round, len) in (1..).zip([8, 100_000, 1, 3000]) {
        let bytes = pattern(round, len);
        let source = pair.a.memory(&[&bytes]);
        let target = pair.a.memory(&[&vec![0; len]]);
        let put = pair.a.link.put(POOL, DATA, &source.source(), None);
        let put = put.unwrap();
        assert_ne!(put, Submission::Full);
        pair.complete("a get", |link| {
            let reads = link.reads().expect("looked at before");
            reads.get(POOL, DATA, target.target())
        });
        assert!(target.bytes() == bytes, "round {round}");
        if let Submission::UnderWay(ticket) = put {
            until_complete(&mut pair, &[ticket]);
        }
    }
}

/// Each addition sees another value, and none is lost.
pub fn atomics_of_both_sides_add_up(subject: &Subject) {
    const ROUNDS: usize = 200;
    let mut pair = LinkPair::new(subject);
    if pair.a.link.atomics().is_none() {
        return;
    }
    // An atomic of `b` over another link of its own would take the same path; here `a` has two
    // operations under way.
    let old: Vec<TestMemory> = (0..ROUNDS).map(|_| pair.a.memory(&[&[0; 8]])).collect();
    let (mut posted, mut tickets) = (0, Vec::new());
    pair.until("all additions to be taken", |pair| {
        while posted < ROUNDS {
            let add = AtomicOp::FetchAdd(3);
            let atomics = pair.a.link.atomics().expect("looked at before");
            let posted_now = atomics.atomic(POOL, FLAG, add, old[posted].target());
            match posted_now.unwrap() {
                Submission::Full => break,
                Submission::UnderWay(ticket) => tickets.push(ticket),
                Submission::Done => {}
            }
            posted += 1;
        }
        posted == ROUNDS
    });
    until_complete(&mut pair, &tickets);
    for (number, old) in old.iter().enumerate() {
        assert_eq!(old.bytes(), (3 * number as u64).to_ne_bytes());
    }
    assert_eq!(pair.b.word(FLAG), 3 * ROUNDS as u64);
}

/// Otherwise the swap only returns the cell's value.
pub fn cells_are_swapped_only_from_expected_values(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    if pair.a.link.atomics().is_none() {
        return;
    }
    let (key, region) = pair.b.region(4096);
    region.word(64).store(5, Ordering::Release);
    for (expected, new, before, after) in [(4, 9, 5, 5), (5, 7, 5, 7), (5, 8, 7, 7)] {
        let target = pair.a.memory(&[&[0; 8]]);
        let op = AtomicOp::CompareSwap { expected, new };
        pair.complete("a swap", |link| {
            let atomics = link.atomics().expect("looked at before");
            atomics.atomic(key, 64, op, target.target())
        });
        assert_eq!(target.bytes(), u64::to_ne_bytes(before));
        assert_eq!(region.word(64).load(Ordering::Acquire), after);
    }
}

/// A misaligned cell, and memory without room for a value, are refused.
pub fn malformed_atomics_are_refused(subject: &Subject) {
    let pair = LinkPair::new(subject);
    let Some(link) = pair.a.link.atomics() else {
        return;
    };
    let memory = pair.a.memory(&[&[0; 8]]);
    let add = AtomicOp::FetchAdd(1);
    for offset in [DATA + 4, u64::MAX - 3] {
        assert!(link.atomic(POOL, offset, add, memory.target()).is_err());
    }
    let short = pair.a.memory(&[&[0; 4]]);
    assert!(link.atomic(POOL, DATA, add, short.target()).is_err());
}

/// Other memory is rejected before anything is done. Injected bytes are copied, and need not be
/// registered.
pub fn unregistered_memory_is_refused_where_needed(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let mut bytes = vec![7; 5000];
    // SAFETY: the vector outlives the puts, which are waited for or refused.
    let source = [unsafe { Iovec::new(bytes.as_ptr(), bytes.len()) }];
    let (link, can) = (pair.a.link.clone(), pair.a.link.capabilities());
    if can.needs_registration {
        let refused = link.put(POOL, DATA, &source, signal(FLAG, 1));
        assert!(matches!(refused, Err(LinkError::Unregistered)));
        // SAFETY: as above, and nothing else accesses it.
        let target = unsafe { IovecMut::new(bytes.as_mut_ptr(), 8) };
        if let Some(link) = link.reads() {
            let refused = link.get(POOL, DATA, target);
            assert!(matches!(refused, Err(LinkError::Unregistered)));
        }
    } else {
        pair.complete("a put", |link| link.put(POOL, DATA, &source, None));
    }
    let injected = link.inject(POOL, DATA, &bytes[..16], signal(FLAG + 128, 1));
    injected.unwrap();
    pair.until_signalled(FLAG + 128, 1);
    assert_eq!(pair.b.bytes(DATA..DATA + 16), [7; 16]);
    assert_eq!(pair.b.word(FLAG), 0);
}

/// Once a caller knows of the link's end, it may free the memory of its operations.
pub fn no_memory_is_accessed_after_the_end(subject: &Subject) {
    let LinkPair { mut a, b } = LinkPair::new(subject);
    let memory = [1, 2].map(|seed| a.memory(&[&pattern(seed, 16 << 20)]));
    let put = |memory: &TestMemory| a.link.put(POOL, DATA, &memory.source(), None);
    let posted = [put(&memory[0]).unwrap(), put(&memory[1]).unwrap()];
    drop(b);
    let deadline = super::deadline();
    for posted in posted {
        let Submission::UnderWay(ticket) = posted else {
            continue;
        };
        while let Ok(false) = a.link.completed(ticket) {
            a.pump();
            assert!(std::time::Instant::now() < deadline, "never complete");
            std::thread::yield_now();
        }
    }
    // Unmapped: a later read crashes.
    drop(memory);
    a.pump();
    a.link.close();
}
