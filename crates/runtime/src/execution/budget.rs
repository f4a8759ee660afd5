//! The budget of one advance of operations.

/// What one advance may use up, so that other operations get their turn.
pub(crate) struct Budget {
    /// Bytes that may still be read or written.
    pub(crate) bytes: u64,
    /// Room for the addresses of steps with many operands.
    pub(crate) addresses: Vec<*mut u8>,
}

// SAFETY: the addresses are plain ones, written anew before each use.
unsafe impl Send for Budget {}
