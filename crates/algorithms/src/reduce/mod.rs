//! The root gets the reduction of all ranks' vectors.

crate::registry::algorithms! {
    binomial,
    double_tree,
    direct,
    slice_reduce,
    leaders,
}
