//! Numbers of signals on the calling-thread path, and when one has come.
//!
//! The flag of a slot counts up over all operations that use it. See [Note: Ranks in step].

use weft_transport::{flag_value, has_come};

use crate::sync::AtomicU64;

/// The signals of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    /// The operation's number among the inline ones.
    number: u64,
    /// Which slot it uses of every pair of ranks.
    slot: u64,
    /// How many signals go before those of the program.
    pub(crate) shift: u32,
}

impl Signals {
    /// Of an operation of a group with so many slots.
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

    /// The value of the flag once this signal has come. The first of all signals of an operation
    /// brings a header with it.
    pub(crate) fn value(&self, id: u32) -> (u64, bool) {
        let id = id + self.shift;
        (flag_value(self.number, id), id == 0)
    }

    /// Whether this signal has come, by its flag; and then, whether it brought the header. What
    /// came before it is visible afterwards.
    pub(crate) fn has_come(&self, flag: &AtomicU64, id: u32) -> Option<bool> {
        let (value, first) = self.value(id);
        has_come(flag, value).then_some(first)
    }
}

/// What a rank does about another in [`tell_all`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tell {
    Signal(u32),
    Wait(u32),
}

/// Signals to each of so many ranks, then waits for each: from step `next` on, as far as it goes.
/// What is waited for, or nothing once all have come.
pub(crate) fn tell_all<B, E>(
    ranks: u32,
    next: &mut usize,
    mut act: impl FnMut(Tell) -> Result<Option<B>, E>,
) -> Result<Option<B>, E> {
    let ranks = ranks as usize;
    while *next < 2 * ranks {
        let rank = (*next % ranks) as u32;
        let blocked = act(match *next < ranks {
            true => Tell::Signal(rank),
            false => Tell::Wait(rank),
        })?;
        if blocked.is_some() {
            return Ok(blocked);
        }
        *next += 1;
    }
    Ok(None)
}
