//! Point-to-point messages: matching and flow.

mod mailbox;

pub(crate) use mailbox::{Mailbox, Posted, Route, Source, Target};
