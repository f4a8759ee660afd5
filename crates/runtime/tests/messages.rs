//! Tests of point-to-point messages between ranks.

mod ranks;

use std::collections::VecDeque;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use ranks::{Ranks, Rng, Setup, fresh_seed};
use weft_runtime::{Error, Group, SplitOptions, TransportChoice, Waited, Work};
use weft_transport_testing::strict;

#[test]
fn messages_of_all_sizes_find_their_receivers() {
    let setups = [
        TransportChoice::Loopback.into(),
        TransportChoice::Shm.into(),
        TransportChoice::Tcp.into(),
        TransportChoice::Custom(strict).into(),
        Setup::on_hosts(&[0, 0, 1]),
    ];
    for setup in setups {
        Ranks::run(setup, 3, |group| {
            let (rank, size) = (group.rank(), group.size());
            let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
            for (tag, bytes) in [0_usize, 1, 1000, 16_384, 16_385, 1_000_001]
                .into_iter()
                .enumerate()
            {
                let sent = vec![rank as u8 + tag as u8; bytes];
                let mut received = vec![255; bytes];
                // SAFETY: both buffers live until both waits are over.
                let receive = unsafe {
                    group.receive(
                        (tag % 2 == 0).then_some(from),
                        tag as u64,
                        received.as_mut_ptr(),
                        bytes as u64,
                        None,
                        tag % 2 == 0,
                    )
                };
                let receive = receive.unwrap();
                // SAFETY: as above.
                let send = unsafe {
                    group.send(
                        to,
                        tag as u64,
                        sent.as_ptr(),
                        bytes as u64,
                        None,
                        tag % 3 == 0,
                    )
                };
                send.unwrap().wait(None, &mut || false).unwrap();
                receive.wait(None, &mut || false).unwrap();
                assert_eq!(receive.source(), Some(from));
                assert!(received.iter().all(|byte| *byte == from as u8 + tag as u8));
            }
        });
    }
}

/// The messages from one rank to another: sizes around the limit of eager messages, and few tags,
/// so that order matters.
fn sent_messages(seed: u64, from: u32, to: u32) -> Vec<(u64, Vec<u8>)> {
    let mut rng = Rng::new(seed ^ (u64::from(from) << 8 | u64::from(to)));
    let bytes = |rng: &mut Rng| match rng.below(20) {
        0 => 16_384 + rng.below(100_000),
        1..4 => rng.below(20_000),
        _ => rng.below(300),
    };
    (0..150)
        .map(|number| {
            let len = bytes(&mut rng);
            (rng.below(3) as u64, vec![number as u8 ^ from as u8; len])
        })
        .collect()
}

/// All ranks send to all others, received immediately, later, or after other tags. Each tag of a
/// pair keeps its order.
fn exchange(group: &Group, seed: u64) {
    let (rank, size) = (group.rank(), group.size());
    let mut rng = Rng::new(seed ^ u64::from(rank));
    let others = (0..size).filter(|other| *other != rank);
    let mut outgoing: Vec<_> = others
        .clone()
        .map(|to| (to, VecDeque::from(sent_messages(seed, rank, to))))
        .collect();
    let mut incoming: Vec<_> = others
        .flat_map(|from| {
            let all = sent_messages(seed, from, rank);
            (0..3).map(move |tag| {
                let of_tag = all.iter().filter(move |message| message.0 == tag);
                (
                    from,
                    tag,
                    of_tag.map(|l| l.1.clone()).collect::<VecDeque<_>>(),
                )
            })
        })
        .collect();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    loop {
        outgoing.retain(|(_, messages)| !messages.is_empty());
        incoming.retain(|(_, _, messages)| !messages.is_empty());
        let open = outgoing.len() + incoming.len();
        if open == 0 {
            break;
        }
        let chosen = rng.below(open);
        let background = rng.below(2) == 0;
        if let Some((to, messages)) = outgoing.get_mut(chosen) {
            let (tag, bytes) = messages.pop_front().unwrap();
            let (start, len) = (bytes.as_ptr(), bytes.len() as u64);
            // SAFETY: the bytes are kept until the wait has ended.
            let work = unsafe { group.send(*to, tag, start, len, None, background) };
            sent.push((work.unwrap(), bytes));
        } else {
            let (from, tag, messages) = &mut incoming[chosen - outgoing.len()];
            let expected = messages.pop_front().unwrap();
            let mut buffer = vec![0; expected.len()];
            let (start, len) = (buffer.as_mut_ptr(), buffer.len() as u64);
            // SAFETY: as above.
            let work = unsafe { group.receive(Some(*from), *tag, start, len, None, background) };
            received.push((work.unwrap(), buffer, expected));
        }
        // Only receives whose messages may still be unsent stay open.
        if outgoing.is_empty() && rng.below(2) == 0 {
            received.drain(..).for_each(arrived);
        }
    }
    received.into_iter().for_each(arrived);
    for (work, _bytes) in sent {
        work.wait(None, &mut || false).unwrap();
    }
}

fn arrived((work, buffer, expected): (Work, Vec<u8>, Vec<u8>)) {
    assert_eq!(work.wait(None, &mut || false).unwrap(), Waited::Done);
    assert!(buffer == expected, "of {} bytes", expected.len());
}

#[test]
fn streams_between_all_ranks_keep_their_order() {
    let setups: [Setup; 4] = [
        TransportChoice::Loopback.into(),
        TransportChoice::Shm.into(),
        TransportChoice::Tcp.into(),
        TransportChoice::Custom(strict).into(),
    ];
    for setup in setups {
        for ranks in [2, 4] {
            let seed = fresh_seed();
            println!("{ranks} ranks, seed {seed}");
            Ranks::run(setup.clone(), ranks, move |group| exchange(group, seed));
        }
    }
}

/// Ten times the receiver's limit, while it receives other messages first.
#[test]
fn unreceived_messages_do_not_block_others() {
    const COUNT: usize = 1000;
    const BYTES: usize = 10 << 10;
    for setup in [TransportChoice::Shm, TransportChoice::Tcp].map(Setup::from) {
        Ranks::run(setup, 2, |group| {
            let numbers: Vec<u8> = (0..=u8::MAX).cycle().take(COUNT).collect();
            let mut buffers: Vec<Vec<u8>> = numbers.iter().map(|n| vec![*n; BYTES]).collect();
            if group.rank() == 0 {
                let mut works = Vec::new();
                for (tag, buffer) in buffers.iter().flat_map(|buffer| [(1, buffer), (2, buffer)]) {
                    // SAFETY: the buffers live until all waits are over.
                    let work =
                        unsafe { group.send(1, tag, buffer.as_ptr(), BYTES as u64, None, true) };
                    works.push(work.unwrap());
                }
                for work in works {
                    work.wait(None, &mut || false).unwrap();
                }
                return;
            }
            for tag in [2, 1] {
                for (number, buffer) in numbers.iter().zip(&mut buffers) {
                    buffer.fill(!number);
                    // SAFETY: the buffer lives until the wait is over.
                    let work = unsafe {
                        let memory = buffer.as_mut_ptr();
                        group.receive(Some(0), tag, memory, BYTES as u64, None, false)
                    };
                    work.unwrap().wait(None, &mut || false).unwrap();
                    assert!(buffer.iter().all(|byte| byte == number), "tag {tag}");
                }
            }
        });
    }
}

/// Makes another group of all ranks.
fn all_ranks(group: &Group, name: &str) -> Result<Arc<Group>, Error> {
    let ranks: Vec<u32> = (0..group.size()).collect();
    let made = group.split(&ranks, name, SplitOptions::default());
    made.map(|made| made.expect("a member"))
}

/// Sends the numbers below `count` to rank 1, each in `bytes` bytes.
fn send_numbers(group: &Group, count: u32, bytes: usize) -> Result<(), Error> {
    (0..count).try_for_each(|number| {
        let mut message = vec![0_u8; bytes];
        message[..4].copy_from_slice(&number.to_le_bytes());
        // SAFETY: the message is kept until the wait is over.
        let work = unsafe { group.send(1, 0, message.as_ptr(), bytes as u64, None, false) }?;
        work.wait(None, &mut || false).map(drop)
    })
}

/// Receives what [`send_numbers`] has sent from rank 0.
fn receive_numbers(group: &Group, count: u32, bytes: usize) -> Result<(), Error> {
    (0..count).try_for_each(|number| {
        let mut message = vec![0_u8; bytes];
        let (start, len) = (message.as_mut_ptr(), bytes as u64);
        // SAFETY: as above.
        let work = unsafe { group.receive(Some(0), 0, start, len, None, false) }?;
        work.wait(None, &mut || false)?;
        assert_eq!(message[..4], number.to_le_bytes());
        Ok(())
    })
}

fn late_setups() -> [Setup; 3] {
    [
        TransportChoice::Loopback,
        TransportChoice::Shm,
        TransportChoice::Tcp,
    ]
    .map(|transport| {
        let mut setup = Setup::from(transport);
        setup.timeout = Duration::from_secs(10);
        setup.deadline = Duration::from_secs(60);
        setup.pool_bytes = 512 << 20;
        setup
    })
}

#[test]
fn messages_for_a_late_group_arrive_in_order() {
    const MESSAGES: u32 = 6000;
    for setup in late_setups() {
        let sent = Barrier::new(2);
        Ranks::run(setup, 2, |world| {
            if world.rank() == 0 {
                let late = all_ranks(world, "late").unwrap();
                send_numbers(&late, MESSAGES, 8).unwrap();
                sent.wait();
                let beside = all_ranks(world, "beside").unwrap();
                send_numbers(&beside, 10, 8).unwrap();
                sent.wait();
            } else {
                sent.wait();
                let beside = all_ranks(world, "beside").unwrap();
                receive_numbers(&beside, 10, 8).unwrap();
                let late = all_ranks(world, "late").unwrap();
                receive_numbers(&late, MESSAGES, 8).unwrap();
                sent.wait();
            }
        });
    }
}

#[test]
fn overrun_of_late_groups_ends_only_those() {
    const GROUPS: usize = 12;
    // The most messages that are sent before a receiver answers.
    const MESSAGES: u32 = 63;
    const BYTES: usize = 16 << 10;
    for setup in late_setups() {
        let step = Barrier::new(2);
        Ranks::run(setup, 2, |world| {
            let early = all_ranks(world, "early").unwrap();
            step.wait();
            let names = (0..GROUPS).map(|number| format!("late {number}"));
            if world.rank() == 0 {
                let late = names.map(|name| {
                    let group = all_ranks(world, &name).unwrap();
                    // A rank that has been notified already fails here.
                    let _ = send_numbers(&group, MESSAGES, BYTES);
                    group
                });
                let late: Vec<_> = late.collect();
                send_numbers(&early, 10, 8).unwrap();
                step.wait();
                let deadline = Instant::now() + Duration::from_secs(1);
                let broken = || late.iter().filter_map(|group| group.broken()).collect();
                let mut errors: Vec<Error> = broken();
                while errors.len() < GROUPS - 8 && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(1));
                    errors = broken();
                }
                assert!((GROUPS - 8..GROUPS).contains(&errors.len()), "{errors:?}");
                assert!(errors.iter().all(is_overrun), "{errors:?}");
                step.wait();
            } else {
                step.wait();
                receive_numbers(&early, 10, 8).unwrap();
                let outcomes = names.map(|name| {
                    let group = all_ranks(world, &name)?;
                    receive_numbers(&group, MESSAGES, BYTES)
                });
                let errors: Vec<Error> = outcomes.filter_map(Result::err).collect();
                assert!((GROUPS - 8..GROUPS).contains(&errors.len()), "{errors:?}");
                assert!(errors.iter().all(is_overrun), "{errors:?}");
                step.wait();
            }
            let beside = all_ranks(world, "beside").unwrap();
            match world.rank() {
                0 => send_numbers(&beside, 10, 8).unwrap(),
                _ => receive_numbers(&beside, 10, 8).unwrap(),
            }
            step.wait();
        });
    }
}

fn is_overrun(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::Aborted { .. }) && text.contains("more than 8192 KiB of messages")
}
