//! The root gets every rank's block.

pub(crate) mod linear;
