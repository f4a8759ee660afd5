//! What ranks say to each other about symmetric memory that they do not map.

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
        /// What the cell must hold.
        expected: u64,
        /// What to store then.
        new: u64,
    },
}

/// A cell of a piece, by its byte offset, and what to do with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CellUpdate {
    pub(crate) offset: u64,
    pub(crate) op: CellOp,
}

/// What a rank says to another about a piece of symmetric memory of the receiver's, or in answer.
/// The `id`s are those of the rank that asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum OneSidedWord {
    /// Write the bytes that follow, then change the cell.
    Put {
        piece: u64,
        offset: u64,
        update: Option<CellUpdate>,
    },
    /// Send these bytes.
    Get {
        piece: u64,
        offset: u64,
        bytes: u64,
        id: u64,
    },
    /// Change a cell, and send what it held before.
    Atomic {
        piece: u64,
        update: CellUpdate,
        id: u64,
    },
    /// Say when everything that was said before has been done.
    Flush { id: u64 },
    /// The bytes that follow were asked for.
    Data { id: u64 },
    /// What the cell held before.
    Before { id: u64, value: u64 },
    /// Everything has been done.
    Flushed { id: u64 },
    /// The sender has freed its part of the piece that was asked for.
    Freed { id: u64 },
}

impl OneSidedWord {
    /// Whether bytes follow it.
    pub(crate) fn carries(&self) -> bool {
        matches!(self, OneSidedWord::Put { .. } | OneSidedWord::Data { .. })
    }
}
