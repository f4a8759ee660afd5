//! weft-transport-tcp.
