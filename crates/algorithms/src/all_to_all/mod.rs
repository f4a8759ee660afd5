//! All-to-all: algorithms that give rank j chunk j of every rank.

crate::registry::algorithms! {
    pairwise,
    direct,
    bruck,
    multi_rail,
}
