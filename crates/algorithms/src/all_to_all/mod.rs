//! Rank j gets chunk j of every rank.

crate::registry::algorithms! {
    pairwise,
    direct,
    bruck,
}
