//! Budget of one advance of operations.

/// The work that one advance may do before other operations get their turn.
pub(crate) struct Budget {
    /// The remaining bytes that may be read or written.
    pub(crate) bytes: u64,
    /// Buffer for the addresses of steps with many operands.
    pub(crate) addresses: Vec<*mut u8>,
}

// SAFETY: the addresses are plain values, which are overwritten before each use.
unsafe impl Send for Budget {}
