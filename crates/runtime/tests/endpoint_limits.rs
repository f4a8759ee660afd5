//! Test of an endpoint in a process with few free descriptors.

use weft_runtime::{Endpoint, EndpointOptions, TransportChoice};
use weft_transport_testing::limits::{limit_descriptors, next_descriptor};

/// More descriptors than an endpoint needs.
const LEFT_MAX: u64 = 40;

#[test]
fn endpoint_without_descriptors_reports_the_limit() {
    for transport in [TransportChoice::Shm, TransportChoice::Tcp] {
        let options = || EndpointOptions {
            transport,
            interface: Some("127.0.0.1".into()),
            pool_bytes: 1 << 20,
            ..EndpointOptions::default()
        };
        let mut refused = 0;
        for left in 0..LEFT_MAX {
            let before = limit_descriptors(next_descriptor() + left);
            let made = Endpoint::new(options());
            limit_descriptors(before);
            match made {
                Ok(endpoint) => endpoint.close(),
                Err(error) => {
                    refused += 1;
                    let text = error.to_string();
                    assert!(text.contains("ulimit -n"), "{left} left: {text}");
                }
            }
        }
        assert!(0 < refused && refused < LEFT_MAX, "{refused} refused");
    }
}
