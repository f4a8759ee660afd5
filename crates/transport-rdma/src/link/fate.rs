//! The end of a link: what every later call is told.

use weft_transport::LinkError;

/// How a link has ended.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// Closed here.
    Closed,
    /// Closed by the peer.
    Left,
    /// The peer is gone, or the adapter has given up.
    Gone(String),
    /// The peer has broken the protocol.
    Protocol(String),
}

impl From<LinkError> for Fate {
    fn from(error: LinkError) -> Fate {
        match error {
            LinkError::Left => Fate::Left,
            LinkError::Gone(why) => Fate::Gone(why),
            LinkError::Protocol(what) => Fate::Protocol(what),
            other => Fate::Gone(other.to_string()),
        }
    }
}

impl Fate {
    /// What a call on such a link returns.
    pub(crate) fn error(&self) -> LinkError {
        match self {
            Fate::Closed | Fate::Left => LinkError::Left,
            Fate::Gone(why) => LinkError::Gone(why.clone()),
            Fate::Protocol(what) => LinkError::Protocol(what.clone()),
        }
    }
}
