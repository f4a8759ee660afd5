//! One endpoint of this process, as links within the process see it.

use std::sync::Arc;

use super::registrations::Registrations;
use crate::{Local, Regions};

/// One endpoint of this process, and what it exposes.
#[derive(Clone)]
pub(crate) struct Participant {
    pub(crate) local: Local,
    pub(crate) regions: Arc<Regions>,
    pub(crate) registrations: Arc<Registrations>,
}
