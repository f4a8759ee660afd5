//! No rank leaves before every rank has entered.

pub(crate) mod direct;
pub(crate) mod dissemination;
