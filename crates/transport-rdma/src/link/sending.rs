//! The sending side of a link: its operations on a rail, and its streams, one per rail.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_transport::{
    FlushState, INJECT_BYTES_MAX, Iovec, LinkError, RegionKey, Signal, Stream, Submission, Ticket,
};

use super::checks::{check_put, invalid};
use super::{RAIL_SHIFT, RailStream, RdmaLink};
use crate::control::LinkControl;
use crate::frame::RingFrame;
use crate::lock::lock;
use crate::rail::{OperationKind, Question, RailState};
use crate::verbs::LocalMemory;

impl RdmaLink {
    pub(super) fn put_by(
        &self,
        rail: usize,
        (region, offset): (RegionKey, u64),
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        let registered = &self.rails[rail].registered;
        let mut own = Vec::with_capacity(1);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            own.extend(registered.source(*piece)?);
        }
        let len = own.iter().map(|part| u64::from(part.bytes)).sum();
        let range = offset..check_put(offset, len, signal)?;
        if len == 0 {
            let signalled = signal.map_or(Ok(()), |signal| {
                self.frame(rail, &RingFrame::signal(signal))
            });
            return signalled.map(|()| Submission::Done);
        }
        // Messages wait for data on a further rail by the number of its frames.
        let mark = (rail > 0).then_some(RingFrame::Mark);
        let frame = signal.map(RingFrame::signal).or(mark);
        self.start(rail, OperationKind::Write, (region, range), own, frame)
    }

    fn inject_by(
        &self,
        rail: usize,
        (region, offset): (RegionKey, u64),
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        if bytes.len() > INJECT_BYTES_MAX {
            return Err(invalid("more bytes than can be injected (256)"));
        }
        check_put(offset, bytes.len() as u64, signal)?;
        if bytes.is_empty() && signal.is_none() {
            return self.check();
        }
        let frame = RingFrame::Inject {
            region,
            offset,
            bytes,
            signal,
        };
        self.frame(rail, &frame)
    }

    /// Sends a frame, now or once there is room.
    pub(super) fn frame(&self, rail: usize, frame: &RingFrame<'_>) -> Result<(), LinkError> {
        self.on(rail, |state| state.frame(frame))
    }

    /// Starts an operation on the peer's memory, unless too many are under way.
    pub(super) fn start(
        &self,
        rail: usize,
        action: OperationKind,
        place: (RegionKey, Range<u64>),
        own: Vec<LocalMemory>,
        frame: Option<RingFrame<'_>>,
    ) -> Result<Submission, LinkError> {
        let ticket = self.on(rail, |state| state.operation(action, place, own, frame))?;
        Ok(match ticket {
            None => Submission::Full,
            Some(ticket) => Submission::UnderWay(Ticket(ticket | ((rail as u64) << RAIL_SHIFT))),
        })
    }

    /// Runs an action on a rail's state, if the link is usable, and sends as much as possible.
    fn on<T>(&self, rail: usize, action: impl FnOnce(&mut RailState) -> T) -> Result<T, LinkError> {
        let mut state = lock(&self.rails[rail].state);
        self.check()?;
        let polled = self.rails[rail].poll(&mut state);
        let result = action(&mut state);
        let advanced = polled.and_then(|()| state.advance(&lock(&self.keys)));
        self.rails[rail]
            .under_way
            .store(state.under_way(), Ordering::Relaxed);
        drop(state);
        match advanced {
            Ok(None) => Ok(result),
            Ok(Some(question)) => self.ask(rail, question).map(|()| result),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Asks the peer about a place for which there are no keys.
    fn ask(&self, rail: usize, question: Question) -> Result<(), LinkError> {
        let mut asked = lock(&self.asked);
        self.send_control(&LinkControl::Ask {
            region: question.region,
            range: question.range,
        })?;
        asked.push_back((rail, question.ticket));
        Ok(())
    }

    /// Sends what is queued.
    pub(super) fn advance_all(&self) -> Result<FlushState, LinkError> {
        let mut state = FlushState::Done;
        for number in 0..self.rails.len() {
            self.on(number, |_| ())?;
            if !lock(&self.rails[number].state).is_sent() {
                state = FlushState::Pending;
            }
        }
        let Some(control) = self.control() else {
            return self.check().map(|()| state);
        };
        let flushed = control.flush()?;
        let writing = flushed == FlushState::Pending;
        if self.control_writing.swap(writing, Ordering::Relaxed) != writing {
            self.watched.set_writing(self.control_descriptor, writing)?;
        }
        Ok(match flushed {
            FlushState::Pending => FlushState::Pending,
            FlushState::Done => state,
        })
    }
}

impl Stream for RdmaLink {
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.inject(RegionKey::POOL, 0, &[], Some(signal))
    }

    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        self.inject_by(0, (region, offset), bytes, signal)
    }

    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        self.put_by(0, (region, offset), pieces, signal)
    }
}

impl RailStream {
    fn link(&self) -> Result<Arc<RdmaLink>, LinkError> {
        self.link.upgrade().ok_or(LinkError::Left)
    }
}

impl Stream for RailStream {
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.inject(RegionKey::POOL, 0, &[], Some(signal))
    }

    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        let link = self.link()?;
        link.inject_by(self.rail, (region, offset), bytes, signal)
    }

    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        let link = self.link()?;
        link.put_by(self.rail, (region, offset), pieces, signal)
    }
}
