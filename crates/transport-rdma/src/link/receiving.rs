//! The receiving side of a link: control messages over its connection, and frames over its rails.

use std::sync::atomic::Ordering;

use weft_transport::{Inbox, LinkError};

use super::{LinkEnd, RdmaLink};
use crate::control::LinkControl;
use crate::frame::RingFrame;
use crate::keys::KEYS_MAX;
use crate::lock::lock;

impl RdmaLink {
    /// Receives everything that has arrived. The caller must hold the turn.
    pub(super) fn receive_all(&self, inbox: &mut dyn Inbox) {
        let ended = self.check().is_err();
        if !ended {
            self.receive_control();
        }
        // Further rails first: messages of the ordinary one wait for earlier frames on them.
        for (number, rail) in self.rails.iter().enumerate().rev() {
            if !ended {
                let armed = rail.completions.rearm().map_err(LinkError::from);
                let polled = armed.and_then(|()| rail.poll(&mut lock(&rail.state)));
                // Frames that arrived before it failed are still processed.
                if let Err(error) = polled {
                    self.note(error);
                }
            }
            loop {
                match self.take_frame(number) {
                    Ok(Some(message)) => inbox.message(&message),
                    Ok(None) => break,
                    Err(error) => {
                        self.end(error.into());
                        break;
                    }
                }
            }
        }
    }

    /// Receives control messages over the connection.
    pub(super) fn receive_control(&self) {
        let Some(control) = self.control() else {
            return;
        };
        // Control messages take effect in their order.
        let turn = lock(&self.control_turn);
        let mut inbox = ControlInbox::default();
        let received = control.receive(&mut inbox);
        for bytes in inbox.0 {
            self.apply(&bytes);
        }
        drop(turn);
        if let Err(error) = received {
            // Frames that had arrived before the end count: they are in the rings.
            for rail in &self.rails {
                let _ = rail.poll(&mut lock(&rail.state));
            }
            self.note(error);
        }
    }

    /// Applies one of the peer's control messages.
    pub(crate) fn apply(&self, bytes: &[u8]) {
        let Some(message) = LinkControl::decode(bytes) else {
            return self.end(LinkEnd::Protocol("a malformed control message".into()));
        };
        let changes_keys = message.changes_keys();
        match message {
            LinkControl::Keys {
                region,
                range,
                memory,
            } => {
                if !lock(&self.keys).insert(region, range, memory) {
                    let text = format!("keys for more than {KEYS_MAX} ranges of memory");
                    return self.end(LinkEnd::Protocol(text));
                }
            }
            LinkControl::Void { region, range } => lock(&self.keys).remove(region, &range),
            LinkControl::Ask { region, range } => {
                let may = lock(&self.granted).allow(region, &range);
                match may {
                    // If the answer cannot be sent, the peer detects the link's end.
                    Ok(_) => drop(self.send_control(&LinkControl::Answer)),
                    Err(error) => self.end(error.into()),
                }
            }
            LinkControl::Answer => {
                let oldest = lock(&self.asked).pop_front();
                match oldest {
                    None => self.end(LinkEnd::Protocol("an answer without a question".into())),
                    Some((rail, ticket)) => lock(&self.rails[rail].state).is_answered(ticket),
                }
            }
            LinkControl::Offer(_) | LinkControl::Ready | LinkControl::Refused(_) => {
                self.end(LinkEnd::Protocol("an offer in the middle of a link".into()));
            }
        }
        if changes_keys {
            self.key_changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Processes the frames of a rail, up to a message, which it returns.
    fn take_frame(&self, number: usize) -> Result<Option<Vec<u8>>, LinkError> {
        let rail = &self.rails[number];
        let mut state = lock(&rail.state);
        let mut signalled = false;
        let taken = loop {
            let frame = state.next_frame(|bytes| self.execute(bytes, &mut signalled));
            match frame {
                Ok(Some(Executed::Done)) => {}
                Ok(Some(Executed::Message(message))) => break Ok(Some(message)),
                Ok(None) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        rail.taken.store(state.frames_taken(), Ordering::Release);
        let reported = state.report_room();
        drop(state);
        if signalled {
            self.doorbell.ring();
        }
        reported?;
        taken
    }

    /// Executes a frame; None if it must wait for other data.
    fn execute(&self, bytes: &[u8], signalled: &mut bool) -> Result<Option<Executed>, LinkError> {
        let frame = RingFrame::decode(bytes);
        match frame.ok_or_else(|| LinkError::Protocol("a malformed frame".into()))? {
            RingFrame::Mark => Ok(Some(Executed::Done)),
            RingFrame::Inject {
                region,
                offset,
                bytes,
                signal,
            } => {
                let granted = lock(&self.granted);
                granted.store((region, offset, bytes), signal)?;
                *signalled |= signal.is_some();
                Ok(Some(Executed::Done))
            }
            RingFrame::Message {
                key_changes,
                behind,
                bytes,
            } => {
                let due = self.is_due(key_changes, &behind);
                Ok(due.then(|| Executed::Message(bytes.to_vec())))
            }
        }
    }

    /// Whether everything that a message waits for has arrived.
    fn is_due(&self, key_changes: u64, behind: &[u64]) -> bool {
        let mut rails = self.rails[1..].iter().zip(behind);
        self.key_changes.load(Ordering::Acquire) >= key_changes
            && rails.all(|(rail, count)| rail.taken.load(Ordering::Acquire) >= *count)
    }
}

/// The result of a frame.
enum Executed {
    Done,
    Message(Vec<u8>),
}

#[derive(Default)]
struct ControlInbox(Vec<Vec<u8>>);

impl Inbox for ControlInbox {
    fn message(&mut self, bytes: &[u8]) {
        self.0.push(bytes.to_vec());
    }
}
