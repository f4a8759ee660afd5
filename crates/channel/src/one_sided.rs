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
pub struct CellUpdate {
    /// Where it begins there.
    pub offset: u64,
    /// How it is changed.
    pub op: CellOp,
}

/// What a rank says to another about a piece of symmetric memory of the receiver's, or in answer.
/// The `id`s are those of the rank that asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OneSidedWord {
    /// Write the bytes that follow, then change the cell.
    Put {
        /// The piece of symmetric memory.
        piece: u64,
        /// Where it begins there.
        offset: u64,
        /// A cell to change afterwards, and how.
        update: Option<CellUpdate>,
    },
    /// Send these bytes.
    Get {
        /// The piece of symmetric memory.
        piece: u64,
        /// Where it begins there.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// Its number at the sender.
        id: u64,
    },
    /// Change a cell, and send what it held before.
    Atomic {
        /// The piece of symmetric memory.
        piece: u64,
        /// A cell to change afterwards, and how.
        update: CellUpdate,
        /// Its number at the sender.
        id: u64,
    },
    /// Say when everything that was said before has been done.
    Flush {
        /// Its number at the sender.
        id: u64,
    },
    /// The bytes that follow were asked for.
    Data {
        /// Its number at the sender.
        id: u64,
    },
    /// What the cell held before.
    Before {
        /// Its number at the sender.
        id: u64,
        /// The value before.
        value: u64,
    },
    /// Everything has been done.
    Flushed {
        /// Its number at the sender.
        id: u64,
    },
    /// The sender has freed its part of the piece that was asked for.
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
