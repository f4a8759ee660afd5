//! Memory classes: what of the callers' buffers other ranks reach.

/// Which memory the caller's buffers lie in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryClass {
    /// Only their own rank reaches them: what comes from a peer is staged.
    Ordinary,
    /// All ranks map each other's `Input` and `Output`.
    Symmetric,
}
