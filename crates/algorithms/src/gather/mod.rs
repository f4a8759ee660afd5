//! The root gets every rank's block.

pub(crate) mod binomial;
pub(crate) mod linear;
