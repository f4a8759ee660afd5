//! Every rank gets every rank's block.

crate::registry::algorithms! {
    ring,
    doubling,
    bruck,
    bruck_radix_4,
    direct,
    mapped,
}
