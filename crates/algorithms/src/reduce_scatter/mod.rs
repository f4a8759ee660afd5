//! Reduce-scatter: algorithms that give rank r the reduction of all ranks' block r.

crate::registry::algorithms! {
    ring,
    halving,
    direct,
    slice_reduce,
    slice_tree,
    multi_rail,
}
