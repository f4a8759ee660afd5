//! weft-algorithms.
