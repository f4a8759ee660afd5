//! Gather: algorithms that give the root every rank's block.

crate::registry::algorithms! {
    linear,
    binomial,
    leaders,
}
