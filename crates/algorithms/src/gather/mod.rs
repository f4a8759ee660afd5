//! The root gets every rank's block.

crate::registry::algorithms! {
    linear,
    binomial,
}
