//! The end of a link, which every later call returns.

use weft_transport::LinkError;

/// How a link has ended.
#[derive(Clone, Debug)]
pub(crate) enum LinkEnd {
    /// Closed here.
    Closed,
    /// Closed by the peer.
    Left,
    /// The peer is gone, or the adapter has given up.
    Gone(String),
    /// The peer has violated the protocol.
    Protocol(String),
}

impl From<LinkError> for LinkEnd {
    fn from(error: LinkError) -> LinkEnd {
        match error {
            LinkError::Left => LinkEnd::Left,
            LinkError::Gone(why) => LinkEnd::Gone(why),
            LinkError::Protocol(what) => LinkEnd::Protocol(what),
            other => LinkEnd::Gone(other.to_string()),
        }
    }
}

impl LinkEnd {
    /// The error of calls on such a link.
    pub(crate) fn error(&self) -> LinkError {
        match self {
            LinkEnd::Closed | LinkEnd::Left => LinkError::Left,
            LinkEnd::Gone(why) => LinkError::Gone(why.clone()),
            LinkEnd::Protocol(what) => LinkError::Protocol(what.clone()),
        }
    }
}
