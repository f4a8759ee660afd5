//! The path of messages: queued by a thread, carried by a connection, seen by the receiver.

use crate::event_queue::Event;
use crate::network::MessagePath;
use crate::simulation::Simulation;
use crate::thread::{MessageId, Note, PairId, SimulatedMessage, tile_of};
use crate::trace::SpanKind;

impl Simulation<'_> {
    /// Sends something without bytes.
    pub(crate) fn notify(
        &mut self,
        rank: u32,
        pair: PairId,
        note: Note,
        origin: Option<(u64, u32)>,
    ) {
        match self.pairs[pair as usize].way {
            MessagePath::Memory => {
                let message = self.message(pair, note, 0.0, origin);
                let time = self.now + self.machine.host.signal_s;
                self.events.note(time, Event::Arrival(message));
            }
            MessagePath::Link { .. } => self.queue(rank, pair, note, 0.0, origin),
        }
    }

    /// Keeps something small until the end of the pass.
    pub(crate) fn queue(
        &mut self,
        rank: u32,
        pair: PairId,
        note: Note,
        bytes: f64,
        origin: Option<(u64, u32)>,
    ) {
        let before = self.pairs[pair as usize].queued;
        if let Some(last) = before.map(|id| &mut self.messages[id as usize])
            && last.note == Note::Nothing
            && bytes == 0.0
        {
            last.note = note;
            return;
        }
        let message = self.message(pair, note, bytes, origin);
        self.messages[message as usize].rides = before.is_some();
        self.pairs[pair as usize].queued = Some(message);
        self.threads[rank as usize].outbox.push_back(message);
    }

    /// Sends the messages queued for a peer together with, and before, a put that is sent
    /// immediately.
    pub(crate) fn send_queued(&mut self, rank: u32, pair: PairId) {
        if self.pairs[pair as usize].queued.take().is_none() {
            return;
        }
        let outbox = std::mem::take(&mut self.threads[rank as usize].outbox);
        for message in outbox {
            if self.messages[message as usize].pair == pair {
                self.messages[message as usize].rides = true;
                self.hand_over(message);
            } else {
                self.threads[rank as usize].outbox.push_back(message);
            }
        }
    }

    pub(crate) fn message(
        &mut self,
        pair: PairId,
        note: Note,
        bytes: f64,
        origin: Option<(u64, u32)>,
    ) -> MessageId {
        let message = SimulatedMessage {
            pair,
            note,
            rides: false,
            bytes,
            start: self.now,
            origin,
        };
        match self.unused.pop() {
            Some(id) => {
                self.messages[id as usize] = message;
                id
            }
            None => {
                self.messages.push(message);
                self.messages.len() as MessageId - 1
            }
        }
    }

    /// Hands a message to its connection.
    pub(crate) fn hand_over(&mut self, message: MessageId) {
        let SimulatedMessage { pair, bytes, .. } = self.messages[message as usize];
        self.messages[message as usize].start = self.now;
        let connection = &mut self.pairs[pair as usize];
        connection.held += bytes;
        connection.queue.push_back(message);
        if connection.leaving.is_none() {
            self.leave(pair);
        }
    }

    /// Sends the next message of a connection. Those without bytes leave immediately.
    fn leave(&mut self, pair: PairId) {
        let connection = &mut self.pairs[pair as usize];
        let way = connection.way;
        let MessagePath::Link { latency_s, .. } = way else {
            unreachable!("messages with bytes go over links");
        };
        while let Some(message) = connection.queue.pop_front() {
            let bytes = self.messages[message as usize].bytes;
            if bytes > 0.0 {
                connection.leaving = Some(message);
                self.network.begin(self.now, way, bytes, pair);
                return;
            }
            self.events
                .note(self.now + latency_s, Event::Arrival(message));
        }
    }

    /// The message that was leaving a connection has left.
    pub(crate) fn left(&mut self, pair: PairId) {
        let connection = &mut self.pairs[pair as usize];
        let MessagePath::Link { latency_s, .. } = connection.way else {
            unreachable!("flows belong to links");
        };
        if let Some(message) = connection.leaving.take() {
            let bytes = self.messages[message as usize].bytes;
            connection.held -= bytes;
            if connection.queue.is_empty() {
                connection.held = 0.0;
            }
            self.events
                .note(self.now + latency_s, Event::Arrival(message));
        }
        self.leave(pair);
        let sender = self.pairs[pair as usize].sender;
        self.wake(sender);
    }

    /// A message becomes visible to its receiver. Those through memory need no receiving.
    pub(crate) fn arrive(&mut self, message: MessageId) {
        let SimulatedMessage {
            pair,
            start,
            origin,
            bytes,
            ..
        } = self.messages[message as usize];
        let receiver = self.pairs[pair as usize].receiver;
        // Credits belong to no step, and are of no interest.
        if origin.is_some() {
            let what = if bytes > 0.0 {
                SpanKind::Transfer
            } else {
                SpanKind::Signal
            };
            self.trace_transfer(what, pair, start, origin);
        }
        match self.pairs[pair as usize].way {
            MessagePath::Memory => self.take_note(message),
            MessagePath::Link { .. } => {
                let mirror = self.pairs[pair as usize].mirror;
                let turn = mirror.map_or(u32::MAX, |mirror| self.pairs[mirror as usize].turn);
                self.arrivals.push((receiver, turn, message));
            }
        }
        self.wake(receiver);
    }

    /// Applies the note of a message at the receiver.
    pub(crate) fn take_note(&mut self, message: MessageId) {
        let SimulatedMessage { pair, note, .. } = self.messages[message as usize];
        self.unused.push(message);
        let Some(mirror) = self.pairs[pair as usize].mirror else {
            return;
        };
        match note {
            Note::Nothing => {}
            Note::Flag(value) => {
                let slot = (tile_of(value) % self.slots) as usize;
                let flag = &mut self.flags[mirror as usize * self.slots as usize + slot];
                *flag = (*flag).max(value);
            }
            Note::Credit(ended) => {
                let credit = &mut self.pairs[mirror as usize].credit;
                *credit = (*credit).max(ended);
            }
        }
    }

    pub(crate) fn is_loopback(&self, pair: PairId) -> bool {
        matches!(
            self.pairs[pair as usize].way,
            MessagePath::Link { loopback: true, .. }
        )
    }
}
