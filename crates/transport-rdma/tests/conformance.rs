//! The conformance suite over verbs: links of one rail, and of two devices.
#![cfg(feature = "devices")]

use std::sync::Arc;

use weft_transport::{Local, Transport};
use weft_transport_rdma::{RdmaOptions, RdmaTransport};
use weft_transport_tcp::{Interface, TcpOptions};

fn transport(local: Local, devices: Option<&str>) -> Arc<dyn Transport> {
    let options = RdmaOptions {
        control: TcpOptions {
            interface: Interface::Named("127.0.0.1".into()),
            ..TcpOptions::default()
        },
        devices: devices.map(str::to_owned),
        gid_index: None,
        traffic_class: None,
    };
    Arc::new(RdmaTransport::new(local, options).expect("an RDMA device"))
}

mod one_rail {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(Subject {
        make: |local| super::transport(local, None),
    });
}

mod two_rails {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(Subject {
        make: |local| super::transport(local, Some("all")),
    });
}
