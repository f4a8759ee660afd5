//! The conformance suite over TCP.

use std::sync::Arc;

use weft_transport::conformance::Subject;
use weft_transport_tcp::{Interface, TcpOptions, TcpTransport};

weft_transport::conformance_tests!(Subject {
    make: |local| {
        let options = TcpOptions {
            interface: Interface::Named("127.0.0.1".into()),
            ..TcpOptions::default()
        };
        Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
    },
});
