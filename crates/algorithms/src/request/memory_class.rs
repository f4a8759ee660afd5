//! Memory classes: the parts of callers' buffers that other ranks reach.

/// The memory of the caller's buffers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MemoryClass {
    /// Only their own rank reaches them: data from a peer is staged.
    Ordinary,
    /// All ranks map each other's `Input` and `Output`.
    Symmetric,
}
