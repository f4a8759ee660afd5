//! Every rank gets the root's vector.

pub(crate) mod binomial;
pub(crate) mod mapped;
