//! The conformance suite over TCP: links of one connection, of several, and encrypted ones; the
//! same while their connections are reset again and again.

use std::sync::Arc;

use weft_transport::{Local, Transport};
use weft_transport_tcp::{Cipher, Encryption, Interface, Resumption, TcpOptions, TcpTransport};

fn transport(local: Local, connections: usize, encryption: Encryption) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named("127.0.0.1".into()),
        connections: Some(connections),
        encryption,
        // Regardless of what other tests send.
        resumption: Resumption::On,
        ..TcpOptions::default()
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
}

mod one {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(Subject {
        make: |local| super::transport(local, 1, super::Encryption::Off),
    });
}

mod several {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(Subject {
        make: |local| super::transport(local, 3, super::Encryption::Off),
    });
}

mod aes_gcm {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(Subject {
        make: |local| super::transport(local, 1, super::Encryption::Only(super::Cipher::AesGcm)),
    });
}

mod chacha20_poly1305 {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(Subject {
        make: |local| {
            let encryption = super::Encryption::Only(super::Cipher::ChaCha20Poly1305);
            super::transport(local, 1, encryption)
        },
    });
}

mod several_encrypted {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(Subject {
        make: |local| super::transport(local, 3, super::Encryption::Best),
    });
}

mod one_reset {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(
        Subject {
            make: |local| super::transport(local, 1, super::Encryption::Off),
        },
        weft_transport_testing::reset
    );
}

mod several_reset {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(
        Subject {
            make: |local| super::transport(local, 3, super::Encryption::Off),
        },
        weft_transport_testing::reset
    );
}

mod several_encrypted_reset {
    use weft_transport_testing::conformance::Subject;

    weft_transport_testing::conformance_tests!(
        Subject {
            make: |local| super::transport(local, 3, super::Encryption::Best),
        },
        weft_transport_testing::reset
    );
}
