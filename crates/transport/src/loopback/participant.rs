//! One endpoint of this process, as links within the process see it.

use std::sync::Arc;

use crate::{Local, Regions};

/// One endpoint of this process, and its exposed regions.
#[derive(Clone)]
pub(super) struct Participant {
    pub(super) local: Local,
    pub(super) regions: Arc<Regions>,
}

impl AsRef<Local> for Participant {
    fn as_ref(&self) -> &Local {
        &self.local
    }
}
