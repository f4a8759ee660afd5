//! The conformance suite over TCP: links of one connection, and of several.

use std::sync::Arc;

use weft_transport::{Local, Transport};
use weft_transport_tcp::{Interface, TcpOptions, TcpTransport};

fn transport(local: Local, connections: usize) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named("127.0.0.1".into()),
        connections: Some(connections),
        ..TcpOptions::default()
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
}

mod one {
    use weft_transport::conformance::Subject;

    weft_transport::conformance_tests!(Subject {
        make: |local| super::transport(local, 1),
    });
}

mod several {
    use weft_transport::conformance::Subject;

    weft_transport::conformance_tests!(Subject {
        make: |local| super::transport(local, 3),
    });
}
