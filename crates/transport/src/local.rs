//! The local endpoint, common to all its transports: identity, memory and doorbell.

use std::io;
use std::sync::Arc;

use crate::{Doorbell, EndpointId, Segment, random, random_endpoint_id};

/// One endpoint's identity, memory and doorbell. Cheap to clone: clones share the pool and the
/// doorbell.
#[derive(Clone)]
pub struct Local {
    /// Who this endpoint is.
    pub id: EndpointId,
    /// What a peer must know to connect here. It travels in the addresses, which only the
    /// rendezvous sees.
    pub token: [u8; 32],
    /// The memory that peers write to. The first [`crate::POOL_HEADER`] bytes are a header.
    pub pool: Arc<Segment>,
    /// Wakes this endpoint's sleeper. Its state lies in the header of the pool.
    pub doorbell: Arc<Doorbell>,
}

impl Local {
    /// A new endpoint, with a random identity and a pool of this many bytes, of which only the
    /// header is reserved.
    pub fn create(pool_bytes: u64) -> io::Result<Local> {
        let pool = Arc::new(Segment::create("weft-pool", pool_bytes)?);
        let doorbell = Arc::new(Doorbell::new(Arc::clone(&pool))?);
        Ok(Local {
            id: random_endpoint_id()?,
            token: random()?,
            pool,
            doorbell,
        })
    }
}
