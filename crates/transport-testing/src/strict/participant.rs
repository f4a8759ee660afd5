//! One endpoint of this process, for the strict links within the process.

use std::sync::Arc;

use weft_transport::{Local, Regions};

use super::registrations::StrictRegistrations;

/// One endpoint of this process, and the memory that it has exposed and registered.
#[derive(Clone)]
pub(super) struct Participant {
    pub(super) local: Local,
    pub(super) regions: Arc<Regions>,
    pub(super) registrations: Arc<StrictRegistrations>,
}

impl AsRef<Local> for Participant {
    fn as_ref(&self) -> &Local {
        &self.local
    }
}
