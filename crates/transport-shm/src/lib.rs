//! weft-transport-shm.
