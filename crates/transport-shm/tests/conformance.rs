//! The conformance suite over shared memory.

use std::sync::Arc;

use weft_transport::conformance::Subject;
use weft_transport_shm::ShmTransport;

weft_transport::conformance_tests!(Subject {
    make: |local| Arc::new(ShmTransport::new(local).expect("a transport")),
    checks_writes: false,
    passes_descriptors: true,
});
