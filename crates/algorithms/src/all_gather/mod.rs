//! All-gather: algorithms that give every rank the blocks of all ranks.

crate::registry::algorithms! {
    ring,
    doubling,
    bruck,
    bruck_radix_4,
    direct,
    mapped,
    multi_rail,
}
