//! Messages between ranks about symmetric memory that they do not map.

use serde::{Deserialize, Serialize};

/// A change of a 64-bit cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CellOp {
    /// Stores the value.
    Set(u64),
    /// Adds, wrapping around.
    Add(u64),
    /// Stores the new value if the cell holds the expected one.
    CompareSwap {
        /// The value that the cell must hold.
        expected: u64,
        /// The value to store then.
        new: u64,
    },
}

/// A cell of a piece, by its byte offset, and its change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellUpdate {
    /// Its offset in the piece.
    pub offset: u64,
    /// The change.
    pub op: CellOp,
}

/// A message about a piece of symmetric memory of the receiver, or an answer. The `id`s are those
/// of the requesting rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OneSidedWord {
    /// Write the bytes that follow, then change the cell.
    Put {
        /// The piece of symmetric memory.
        piece: u64,
        /// The offset in the piece.
        offset: u64,
        /// A cell to change afterwards, and its change.
        update: Option<CellUpdate>,
    },
    /// Send these bytes.
    Get {
        /// The piece of symmetric memory.
        piece: u64,
        /// The offset in the piece.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
        /// Its number at the sender.
        id: u64,
    },
    /// Change a cell, and return its former value.
    Atomic {
        /// The piece of symmetric memory.
        piece: u64,
        /// The cell, and its change.
        update: CellUpdate,
        /// Its number at the sender.
        id: u64,
    },
    /// Report when all earlier messages have been executed.
    Flush {
        /// Its number at the sender.
        id: u64,
    },
    /// The requested bytes, which follow.
    Data {
        /// Its number at the sender.
        id: u64,
    },
    /// The cell's former value.
    Before {
        /// Its number at the sender.
        id: u64,
        /// The former value.
        value: u64,
    },
    /// All earlier messages have been executed.
    Flushed {
        /// Its number at the sender.
        id: u64,
    },
    /// The sender has freed its part of the requested piece.
    Freed {
        /// Its number at the sender.
        id: u64,
    },
}

impl OneSidedWord {
    /// Whether bytes follow it.
    pub fn carries(&self) -> bool {
        matches!(self, OneSidedWord::Put { .. } | OneSidedWord::Data { .. })
    }
}
