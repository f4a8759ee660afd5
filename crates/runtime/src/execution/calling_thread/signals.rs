//! Numbers of signals on the calling-thread path, and the check whether one has arrived.
//!
//! The flag of a slot counts up over all operations that use it. See [Note: Ranks in step].

use weft_transport::{flag_value, has_reached};

use crate::sync::AtomicU64;

/// The signals of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    /// The operation's number among the inline ones.
    number: u64,
    /// The slot that it uses of every pair of ranks.
    slot: u64,
    /// The number of signals before those of the program.
    pub(crate) shift: u32,
}

impl Signals {
    /// The signals of an operation in a group with `slots` slots.
    pub(crate) fn new(number: u64, slots: u64) -> Self {
        Signals {
            number,
            slot: number % slots,
            shift: 0,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn slot(&self) -> u64 {
        self.slot
    }

    /// The value of the flag once this signal has arrived, and whether it carries a header, as the
    /// first signal of an operation does.
    pub(crate) fn value(&self, id: u32) -> (u64, bool) {
        let id = id + self.shift;
        (flag_value(self.number, id), id == 0)
    }

    /// Checks by its flag whether a signal has arrived. If so, returns whether it carried the
    /// header; data that was sent before it is visible then.
    pub(crate) fn has_arrived(&self, flag: &AtomicU64, id: u32) -> Option<bool> {
        let (value, first) = self.value(id);
        has_reached(flag, value).then_some(first)
    }
}

/// A step of [`exchange_signals`] with another rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExchangeStep {
    Signal(u32),
    Wait(u32),
}

/// Signals to each rank, then waits for each, from step `next` on, as far as possible. Returns what
/// it waits for, or `None` once all signals have arrived.
pub(crate) fn exchange_signals<B, E>(
    ranks: u32,
    next: &mut usize,
    mut act: impl FnMut(ExchangeStep) -> Result<Option<B>, E>,
) -> Result<Option<B>, E> {
    let ranks = ranks as usize;
    while *next < 2 * ranks {
        let rank = (*next % ranks) as u32;
        let blocked = act(match *next < ranks {
            true => ExchangeStep::Signal(rank),
            false => ExchangeStep::Wait(rank),
        })?;
        if blocked.is_some() {
            return Ok(blocked);
        }
        *next += 1;
    }
    Ok(None)
}
