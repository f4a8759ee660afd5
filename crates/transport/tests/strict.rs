//! The conformance suite over the strict loopback.
#![cfg(all(feature = "conformance", not(loom)))]

use std::sync::Arc;

use weft_transport::LoopbackTransport;
use weft_transport::conformance::Subject;

weft_transport::conformance_tests!(Subject {
    make: |local| Arc::new(LoopbackTransport::strict(local)),
});
