//! Point-to-point messages: matching and flow.

mod flow;
mod matching;

pub(crate) use matching::{MessageMatching, Posted, ReceiveTarget, Route, SendSource};
