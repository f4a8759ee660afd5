//! What comes in on a link: news over its connection, and frames by its rails.

use std::sync::atomic::Ordering;

use weft_transport::{Inbox, LinkError};

use super::{Fate, RdmaLink};
use crate::frame::Frame;
use crate::keys::KEYS_MAX;
use crate::lock::lock;
use crate::news::News;

impl RdmaLink {
    /// Takes in whatever has arrived. The caller has the turn.
    pub(super) fn take_in(&self, inbox: &mut dyn Inbox) {
        let ended = self.check().is_err();
        if !ended {
            self.take_news();
        }
        // Further rails first: messages of the ordinary one wait for what went by them before.
        for (number, rail) in self.rails.iter().enumerate().rev() {
            if !ended {
                let armed = rail.completions.rearm().map_err(LinkError::from);
                let polled = armed.and_then(|()| rail.poll(&mut lock(&rail.state)));
                // What came before it failed is still taken in.
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

    /// Takes in what has come over the connection for control.
    pub(super) fn take_news(&self) {
        let Some(control) = self.control() else {
            return;
        };
        // News count in the order in which they were told.
        let turn = lock(&self.hearing);
        let mut inbox = NewsInbox::default();
        let received = control.receive(&mut inbox);
        for bytes in inbox.0 {
            self.apply(&bytes);
        }
        drop(turn);
        if let Err(error) = received {
            // What had arrived before the end counts: it lies in the rings.
            for rail in &self.rails {
                let _ = rail.poll(&mut lock(&rail.state));
            }
            self.note(error);
        }
    }

    /// Takes note of one of the peer's news.
    pub(crate) fn apply(&self, bytes: &[u8]) {
        let Some(news) = News::decode(bytes) else {
            return self.end(Fate::Protocol("news that make no sense".into()));
        };
        let of_keys = news.is_of_keys();
        match news {
            News::Keys {
                region,
                range,
                memory,
            } => {
                if !lock(&self.keys).insert(region, range, memory) {
                    let text = format!("keys of more than {KEYS_MAX} ranges of memory");
                    return self.end(Fate::Protocol(text));
                }
            }
            News::Void { region, range } => lock(&self.keys).remove(region, &range),
            News::Ask { region, range } => {
                let may = lock(&self.granted).allow(region, &range);
                match may {
                    // Where it cannot be told, the link's end tells.
                    Ok(_) => drop(self.tell(&News::Answer)),
                    Err(error) => self.end(error.into()),
                }
            }
            News::Answer => {
                let oldest = lock(&self.asked).pop_front();
                match oldest {
                    None => self.end(Fate::Protocol("an answer to nothing".into())),
                    Some((rail, ticket)) => lock(&self.rails[rail].state).is_answered(ticket),
                }
            }
            News::Offer(_) | News::Ready | News::Refused(_) => {
                self.end(Fate::Protocol("an offer in the middle of a link".into()));
            }
        }
        if of_keys {
            self.news.fetch_add(1, Ordering::Release);
        }
    }

    /// Takes in the frames of a rail, up to a message, which it returns.
    fn take_frame(&self, number: usize) -> Result<Option<Vec<u8>>, LinkError> {
        let rail = &self.rails[number];
        let mut state = lock(&rail.state);
        let mut signalled = false;
        let taken = loop {
            let frame = state.next_frame(|bytes| self.carry_out(bytes, &mut signalled));
            match frame {
                Ok(Some(Carried::Done)) => {}
                Ok(Some(Carried::Message(message))) => break Ok(Some(message)),
                Ok(None) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        rail.taken.store(state.frames_taken(), Ordering::Release);
        let told = state.tell_room();
        drop(state);
        if signalled {
            self.doorbell.ring();
        }
        told?;
        taken
    }

    /// Carries out a frame; None if it must wait for something else.
    fn carry_out(&self, bytes: &[u8], signalled: &mut bool) -> Result<Option<Carried>, LinkError> {
        let frame = Frame::decode(bytes);
        match frame.ok_or_else(|| LinkError::Protocol("a frame without sense".into()))? {
            Frame::Mark => Ok(Some(Carried::Done)),
            Frame::Inject {
                region,
                offset,
                bytes,
                signal,
            } => {
                let granted = lock(&self.granted);
                granted.store((region, offset, bytes), signal)?;
                *signalled |= signal.is_some();
                Ok(Some(Carried::Done))
            }
            Frame::Message {
                news,
                behind,
                bytes,
            } => {
                let due = self.is_due(news, &behind);
                Ok(due.then(|| Carried::Message(bytes.to_vec())))
            }
        }
    }

    /// Whether everything that a message is behind has come.
    fn is_due(&self, news: u64, behind: &[u64]) -> bool {
        let mut rails = self.rails[1..].iter().zip(behind);
        self.news.load(Ordering::Acquire) >= news
            && rails.all(|(rail, count)| rail.taken.load(Ordering::Acquire) >= *count)
    }
}

/// What became of a frame.
enum Carried {
    Done,
    Message(Vec<u8>),
}

#[derive(Default)]
struct NewsInbox(Vec<Vec<u8>>);

impl Inbox for NewsInbox {
    fn message(&mut self, bytes: &[u8]) {
        self.0.push(bytes.to_vec());
    }
}
