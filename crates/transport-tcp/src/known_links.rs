//! The links of an endpoint whose connections can be made anew, by their names.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use weft_transport::EndpointId;

use crate::connection::TcpConnection;
use crate::lock::lock;

/// A link's peer, and the number of the call that made it.
type LinkName = (EndpointId, u64);

/// The links that a listener knows.
#[derive(Default)]
pub(crate) struct KnownLinks(pub(crate) Mutex<HashMap<LinkName, Weak<TcpConnection>>>);

impl KnownLinks {
    /// Adds a link, and forgets those that exist no more.
    pub(crate) fn add(&self, name: LinkName, connection: &Arc<TcpConnection>) {
        let mut links = lock(&self.0);
        links.retain(|_, link| link.strong_count() > 0);
        links.insert(name, Arc::downgrade(connection));
    }

    pub(crate) fn find(&self, name: LinkName) -> Option<Arc<TcpConnection>> {
        lock(&self.0).get(&name)?.upgrade()
    }
}
