//! Addresses of a call's user memory.

use std::sync::Arc;

use weft_call::Call;

/// The addresses of the user's memory on this rank and, if it is symmetric, on all ranks.
#[derive(Clone, Debug)]
pub struct Bases {
    /// This rank's `Input`.
    pub input: *const u8,
    /// This rank's `Output`.
    pub output: *mut u8,
    /// Every rank's `Input` and `Output`, as mapped here.
    pub peers: Option<Arc<[(*const u8, *mut u8)]>>,
}

impl Bases {
    /// The memory of a call that only this rank reaches.
    pub fn own(call: &Call) -> Self {
        Bases {
            input: call.input,
            output: call.output,
            peers: None,
        }
    }
}

// SAFETY: plain addresses; code that dereferences them states why it may.
unsafe impl Send for Bases {}
