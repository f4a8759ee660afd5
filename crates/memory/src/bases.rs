//! The addresses of a call's user memory.

use std::sync::Arc;

use weft_call::Call;

/// Where the user's memory lies, on this rank and, where it is symmetric, on all.
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
    /// The memory that a call names, reached by this rank alone.
    pub fn own(call: &Call) -> Self {
        Bases {
            input: call.input,
            output: call.output,
            peers: None,
        }
    }
}

// SAFETY: plain addresses; whoever dereferences them answers for the access.
unsafe impl Send for Bases {}
