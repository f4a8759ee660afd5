//! All-gather: algorithms that give every rank the blocks of all ranks.

crate::registry::algorithms! {
    ring,
    doubling,
    bruck,
    direct,
    mapped,
    multi_rail,
}
