//! weft-kernels.
