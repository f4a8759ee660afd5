//! weft-runtime.
