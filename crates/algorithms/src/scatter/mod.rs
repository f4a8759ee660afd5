//! Scatter: algorithms that give rank r block r of the root.

crate::registry::algorithms! {
    linear,
    binomial,
    leaders,
}
