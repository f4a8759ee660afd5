//! Rank r gets block r of the root.

pub(crate) mod binomial;
pub(crate) mod linear;
