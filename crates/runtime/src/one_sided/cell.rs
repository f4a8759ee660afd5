//! Cells: 64-bit words of symmetric memory, changed and compared atomically.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_transport::Segment;

use weft_channel::CellOp;

/// How a signal is compared with a value, both without a sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The signal is the value.
    Equal,
    /// It is another.
    NotEqual,
    /// It is greater.
    Greater,
    /// It is at least the value.
    GreaterOrEqual,
    /// It is less.
    Less,
    /// It is at most the value.
    LessOrEqual,
}

impl Compare {
    /// All of them.
    pub const ALL: [Compare; 6] = [
        Compare::Equal,
        Compare::NotEqual,
        Compare::Greater,
        Compare::GreaterOrEqual,
        Compare::Less,
        Compare::LessOrEqual,
    ];

    /// Whether it holds.
    #[inline]
    pub fn holds(self, signal: u64, value: u64) -> bool {
        match self {
            Compare::Equal => signal == value,
            Compare::NotEqual => signal != value,
            Compare::Greater => signal > value,
            Compare::GreaterOrEqual => signal >= value,
            Compare::Less => signal < value,
            Compare::LessOrEqual => signal <= value,
        }
    }
}

impl fmt::Display for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compare::Equal => "==",
            Compare::NotEqual => "!=",
            Compare::Greater => ">",
            Compare::GreaterOrEqual => ">=",
            Compare::Less => "<",
            Compare::LessOrEqual => "<=",
        })
    }
}

/// The cell at an offset, if there is one.
#[inline]
pub(crate) fn cell_of(segment: &Segment, offset: u64) -> Option<&AtomicU64> {
    segment.checked_word(offset)
}

/// Changes a cell; returns what it held before. What this thread wrote earlier is there for whoever
/// sees the change.
#[inline]
pub(crate) fn apply(cell: &AtomicU64, op: CellOp) -> u64 {
    match op {
        CellOp::Set(value) => cell.swap(value, Ordering::AcqRel),
        CellOp::Add(value) => cell.fetch_add(value, Ordering::AcqRel),
        CellOp::CompareSwap { expected, new } => cell
            .compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_else(|before| before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_those_that_they_print() {
        let holds = |(signal, value)| Compare::ALL.map(|compare| compare.holds(signal, value));
        assert_eq!(holds((1, 2)), [false, true, false, false, true, true]);
        assert_eq!(holds((2, 2)), [true, false, false, true, false, true]);
        assert_eq!(
            holds((u64::MAX, 2)),
            [false, true, true, true, false, false]
        );
    }

    #[test]
    fn changes_tell_what_was_there() {
        let cell = AtomicU64::new(5);
        assert_eq!(apply(&cell, CellOp::Add(u64::MAX)), 5);
        let swap = |expected| CellOp::CompareSwap { expected, new: 9 };
        assert_eq!(apply(&cell, swap(5)), 4);
        assert_eq!(apply(&cell, swap(4)), 4);
        assert_eq!(apply(&cell, CellOp::Set(1)), 9);
        assert_eq!(cell.into_inner(), 1);
    }
}
