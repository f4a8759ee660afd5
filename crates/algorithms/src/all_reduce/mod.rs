//! All-reduce: algorithms that give every rank the reduction of all ranks' vectors.

crate::registry::algorithms! {
    ring,
    direct,
    two_shot,
    slice_reduce,
    slice_tree,
    recursive_doubling,
    halving_doubling,
    double_tree,
    gather_to_root,
    multi_rail,
    leaders,
    torus,
    parameter_server,
}
