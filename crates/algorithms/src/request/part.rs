//! The choices that an algorithm leaves open.

use std::fmt;

/// One choice that an algorithm leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// The name of an algorithm that it is composed of.
    Algorithm(&'static str),
    /// How many there are of something, such as servers.
    Count(u32),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Algorithm(name) => f.write_str(name),
            Part::Count(count) => write!(f, "{count}"),
        }
    }
}
