//! No rank leaves before every rank has entered.

crate::registry::algorithms! {
    dissemination,
    direct,
}
