//! Reduce: algorithms that give the root the reduction of all ranks' vectors.

crate::registry::algorithms! {
    binomial,
    double_tree,
    direct,
    slice_reduce,
    leaders,
}
