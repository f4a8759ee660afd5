//! Barrier: algorithms that let no rank leave before every rank has entered.

crate::registry::algorithms! {
    dissemination,
    direct,
    leaders,
}
