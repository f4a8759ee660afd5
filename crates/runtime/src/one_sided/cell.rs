//! Cells: 64-bit words of symmetric memory, changed and compared atomically.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_transport::Segment;

use weft_channel::CellOp;

/// A comparison of a signal with a value, both unsigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The signal equals the value.
    Equal,
    /// The signal differs from the value.
    NotEqual,
    /// The signal is greater than the value.
    Greater,
    /// The signal is greater than or equal to the value.
    GreaterOrEqual,
    /// The signal is less than the value.
    Less,
    /// The signal is less than or equal to the value.
    LessOrEqual,
}

impl Compare {
    /// All comparisons.
    pub const ALL: [Compare; 6] = [
        Compare::Equal,
        Compare::NotEqual,
        Compare::Greater,
        Compare::GreaterOrEqual,
        Compare::Less,
        Compare::LessOrEqual,
    ];

    /// Whether the comparison holds.
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

/// Changes a cell, and returns its previous value. A thread that sees the change also sees this
/// thread's earlier writes.
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
    fn comparisons_match_their_printed_form() {
        let holds = |(signal, value)| Compare::ALL.map(|compare| compare.holds(signal, value));
        assert_eq!(holds((1, 2)), [false, true, false, false, true, true]);
        assert_eq!(holds((2, 2)), [true, false, false, true, false, true]);
        assert_eq!(
            holds((u64::MAX, 2)),
            [false, true, true, true, false, false]
        );
    }

    #[test]
    fn changes_return_the_previous_value() {
        let cell = AtomicU64::new(5);
        assert_eq!(apply(&cell, CellOp::Add(u64::MAX)), 5);
        let swap = |expected| CellOp::CompareSwap { expected, new: 9 };
        assert_eq!(apply(&cell, swap(5)), 4);
        assert_eq!(apply(&cell, swap(4)), 4);
        assert_eq!(apply(&cell, CellOp::Set(1)), 9);
        assert_eq!(cell.into_inner(), 1);
    }
}
