//! Queue of messages for groups that this rank has not made yet, and of groups that it cannot make
//! any more.
//!
//! The queue is bounded by bytes, for each sender and in total. When a bound is reached, the group
//! with the most bytes ends, so that others can continue. Nothing is dropped without an error: the
//! making of that group fails here, and its senders are notified.

use std::collections::{HashMap, VecDeque};

use weft_channel::ControlMessage;
use weft_transport::EndpointId;

use super::received::ReceivedMessage;
use crate::Error;

/// The most bytes that are kept of one sender.
const SENDER_BYTES: usize = 8 << 20;
/// The most bytes that are kept of all senders.
const TOTAL_BYTES: usize = 128 << 20;
/// The number of failed groups that are remembered.
const FAILED: usize = 1024;

/// The messages for one group.
#[derive(Default)]
pub(super) struct EarlyGroup {
    pub(super) messages: Vec<ReceivedMessage<'static>>,
    senders: HashMap<EndpointId, Sender>,
    /// Earlier groups have smaller numbers.
    number: u64,
}

/// A sender of messages for a group.
#[derive(Default)]
struct Sender {
    bytes: usize,
    /// It has left the group, or closed its endpoint. Its messages stay valid.
    gone: bool,
}

impl EarlyGroup {
    fn bytes(&self) -> usize {
        self.senders.values().map(|sender| sender.bytes).sum()
    }

    /// Whether all senders have left.
    fn deserted(&self) -> bool {
        self.senders.values().all(|sender| sender.gone)
    }
}

/// Messages for groups that are not made yet.
pub(crate) struct EarlyMessages {
    groups: HashMap<u64, EarlyGroup>,
    /// Bytes kept of each sender.
    bytes: HashMap<EndpointId, usize>,
    failed: VecDeque<(u64, Error)>,
    /// The number of groups so far.
    seen: u64,
    sender_bytes: usize,
    total_bytes: usize,
}

/// A group that must end, since a bound was reached.
#[derive(PartialEq, Debug)]
pub(super) struct Overrun {
    pub(super) group: u64,
    /// The bound that was reached, in bytes.
    pub(super) bound: usize,
    /// The sender that reached it; `None` for the total.
    pub(super) by: Option<EndpointId>,
}

impl Default for EarlyMessages {
    fn default() -> Self {
        Self::bounded(SENDER_BYTES, TOTAL_BYTES)
    }
}

impl EarlyMessages {
    fn bounded(sender_bytes: usize, total_bytes: usize) -> Self {
        EarlyMessages {
            groups: HashMap::new(),
            bytes: HashMap::new(),
            failed: VecDeque::new(),
            seen: 0,
            sender_bytes,
            total_bytes,
        }
    }

    /// The error of a group that cannot be made any more.
    pub(super) fn failure(&self, group: u64) -> Option<&Error> {
        let mut failed = self.failed.iter();
        failed.find_map(|(id, error)| (*id == group).then_some(error))
    }

    /// Keeps a message. If that exceeds a bound, returns the group that must end.
    pub(super) fn keep(
        &mut self,
        group: u64,
        received: ReceivedMessage<'static>,
    ) -> Option<Overrun> {
        let from = received.from;
        let bytes = size_of::<ReceivedMessage<'static>>() + received.payload.len();
        let early = self.groups.entry(group).or_insert_with(|| {
            self.seen += 1;
            EarlyGroup {
                number: self.seen,
                ..EarlyGroup::default()
            }
        });
        let sender = early.senders.entry(from).or_default();
        sender.bytes += bytes;
        sender.gone |= matches!(received.message, ControlMessage::Detach { .. });
        early.messages.push(received);
        let of_sender = self.bytes.entry(from).or_default();
        *of_sender += bytes;
        if *of_sender > self.sender_bytes {
            let of_sender = |early: &EarlyGroup| early.senders.get(&from).map_or(0, |s| s.bytes);
            let (group, _) = (self.groups.iter()).max_by_key(|(_, early)| of_sender(early))?;
            return Some(Overrun {
                group: *group,
                bound: self.sender_bytes,
                by: Some(from),
            });
        }
        if self.bytes.values().sum::<usize>() > self.total_bytes {
            let deserted = self.groups.iter().filter(|(_, early)| early.deserted());
            let oldest = deserted.min_by_key(|(_, early)| early.number);
            let largest = || self.groups.iter().max_by_key(|(_, early)| early.bytes());
            let (group, _) = oldest.or_else(largest)?;
            return Some(Overrun {
                group: *group,
                bound: self.total_bytes,
                by: None,
            });
        }
        None
    }

    /// Removes and returns the messages for a group, in their order.
    pub(super) fn take(&mut self, group: u64) -> EarlyGroup {
        let early = self.groups.remove(&group).unwrap_or_default();
        for (endpoint, sender) in &early.senders {
            if let Some(bytes) = self.bytes.get_mut(endpoint) {
                *bytes -= sender.bytes;
                if *bytes == 0 {
                    self.bytes.remove(endpoint);
                }
            }
        }
        early
    }

    /// Marks a group as failed, and drops its messages. Returns their senders.
    pub(super) fn fail(&mut self, group: u64, error: Error) -> Vec<EndpointId> {
        if self.failure(group).is_none() {
            self.failed.push_back((group, error));
            if self.failed.len() > FAILED {
                self.failed.pop_front();
            }
        }
        self.take(group).senders.into_keys().collect()
    }

    /// The groups that an endpoint has sent messages for.
    pub(super) fn groups_of(&self, endpoint: EndpointId) -> Vec<u64> {
        let sent = |early: &EarlyGroup| early.senders.contains_key(&endpoint);
        let groups = self.groups.iter().filter(|(_, early)| sent(early));
        groups.map(|(group, _)| *group).collect()
    }

    /// The error with which an endpoint has broken a group, if it has sent one.
    pub(super) fn reported_error(&self, group: u64, endpoint: EndpointId) -> Option<Error> {
        let mut messages = self.groups.get(&group)?.messages.iter();
        messages.find_map(|received| match &received.message {
            ControlMessage::Broken { error, .. } if received.from == endpoint => {
                Some(error.clone())
            }
            _ => None,
        })
    }

    /// Records that an endpoint has left. Its messages stay valid, but are the first to be dropped.
    pub(super) fn on_goodbye(&mut self, endpoint: EndpointId) {
        for early in self.groups.values_mut() {
            if let Some(sender) = early.senders.get_mut(&endpoint) {
                sender.gone = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    const HEAD: usize = size_of::<ReceivedMessage<'static>>();

    fn message(from: u128, group: u64, tag: u64, bytes: usize) -> ReceivedMessage<'static> {
        ReceivedMessage {
            from: EndpointId(from),
            message: ControlMessage::Eager { group, tag },
            payload: Cow::Owned(vec![0; bytes]),
        }
    }

    fn keep(early: &mut EarlyMessages, from: u128, group: u64, bytes: usize) -> Option<Overrun> {
        early.keep(group, message(from, group, 0, bytes - HEAD))
    }

    fn aborted() -> Error {
        Error::cancelled()
    }

    #[test]
    fn messages_are_returned_in_their_order() {
        let mut early = EarlyMessages::bounded(1 << 20, 1 << 20);
        for tag in 0..100 {
            let (from, group) = (u128::from(tag % 3), tag % 2);
            assert_eq!(early.keep(group, message(from, group, tag, 10)), None);
        }
        let tags = early.take(1).messages.into_iter().map(|kept| kept.message);
        let expected = (0..50).map(|n| ControlMessage::Eager {
            group: 1,
            tag: 2 * n + 1,
        });
        assert!(tags.eq(expected));
        assert!(early.take(1).messages.is_empty());
        assert_eq!(early.take(0).messages.len(), 50);
        assert!(early.bytes.is_empty());
    }

    #[test]
    fn sender_over_its_bound_ends_its_largest_group() {
        let mut early = EarlyMessages::bounded(10_000, 100_000);
        assert_eq!(keep(&mut early, 1, 7, 3000), None);
        assert_eq!(keep(&mut early, 1, 8, 7000), None);
        // Each sender is counted separately.
        assert_eq!(keep(&mut early, 2, 7, 9000), None);
        let overrun = Overrun {
            group: 8,
            bound: 10_000,
            by: Some(EndpointId(1)),
        };
        assert_eq!(keep(&mut early, 1, 7, 1000), Some(overrun));
        assert_eq!(early.fail(8, aborted()), [EndpointId(1)]);
        assert_eq!(early.failure(8), Some(&aborted()));
        assert_eq!(keep(&mut early, 1, 7, 5000), None);
        assert_eq!(early.take(7).messages.len(), 4);
    }

    #[test]
    fn total_bound_ends_deserted_groups_first() {
        let mut early = EarlyMessages::bounded(10_000, 30_000);
        for (group, from) in [(5, 1), (6, 2), (7, 3)] {
            assert_eq!(keep(&mut early, from, group, 8000 + from as usize), None);
        }
        early.on_goodbye(EndpointId(2));
        let ended = |overrun: Option<Overrun>| overrun.map(|overrun| (overrun.group, overrun.by));
        let fourth = keep(&mut early, 4, 8, 9000);
        assert_eq!(ended(fourth), Some((6, None)));
        early.fail(6, aborted());
        early.take(8);
        keep(&mut early, 2, 6, 8002);
        assert_eq!(ended(keep(&mut early, 4, 8, 9000)), Some((8, None)));
    }

    #[test]
    fn failures_are_remembered_up_to_a_limit() {
        let mut early = EarlyMessages::default();
        for group in 0..FAILED as u64 + 1 {
            early.fail(group, aborted());
        }
        assert_eq!(early.failure(0), None);
        assert_eq!(early.failed.len(), FAILED);
    }
}
