//! Every rank gets every rank's block.

crate::registry::algorithms! {
    ring,
    doubling,
    bruck,
    direct,
    mapped,
}
