//! The local endpoint, common to all its transports: identity, memory and doorbell.

use std::io;
use std::sync::Arc;

use crate::{Doorbell, EndpointId, Segment, random, random_endpoint_id};

/// One endpoint's identity, memory and doorbell. Cheap to clone: clones share the pool and the
/// doorbell.
#[derive(Clone)]
pub struct Local {
    /// The identity of this endpoint.
    pub id: EndpointId,
    /// The secret that a peer needs to connect here. It is part of the addresses, which only the
    /// rendezvous sees.
    pub token: [u8; 32],
    /// The memory that peers write to. The first [`crate::POOL_HEADER`] bytes are a header.
    pub pool: Arc<Segment>,
    /// Wakes this endpoint's sleeper. Its state is in the header of the pool.
    pub doorbell: Arc<Doorbell>,
}

impl Local {
    /// Makes an endpoint with a random identity and a pool of this many bytes, of which only the
    /// header is allocated.
    ///
    /// # Errors
    /// If the system refuses memory, a descriptor or random numbers.
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
