//! Rank r gets block r of the root.

crate::registry::algorithms! {
    linear,
    binomial,
}
