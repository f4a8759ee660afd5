//! Every rank gets every rank's block.

pub(crate) mod bruck;
pub(crate) mod direct;
pub(crate) mod doubling;
pub(crate) mod mapped;
pub(crate) mod ring;
