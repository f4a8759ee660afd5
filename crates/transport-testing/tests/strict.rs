//! The conformance suite over the strict loopback.

use std::sync::Arc;

use weft_transport_testing::StrictTransport;
use weft_transport_testing::conformance::Subject;

weft_transport_testing::conformance_tests!(Subject {
    make: |local| Arc::new(StrictTransport::new(local)),
});
