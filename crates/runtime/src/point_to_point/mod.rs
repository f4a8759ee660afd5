//! Point-to-point messages: matching and flow.

mod matching;

pub(crate) use matching::{MessageMatching, Posted, ReceiveTarget, Route, SendSource};
