//! The conformance suite over loopback.

use std::sync::Arc;

use weft_transport::LoopbackTransport;
use weft_transport_testing::conformance::Subject;

weft_transport_testing::conformance_tests!(Subject {
    make: |local| Arc::new(LoopbackTransport::new(local)),
});
