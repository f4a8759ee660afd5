//! Broadcast: algorithms that give every rank the root's vector.

crate::registry::algorithms! {
    binomial,
    double_tree,
    scatter_all_gather,
    mapped,
    leaders,
}
