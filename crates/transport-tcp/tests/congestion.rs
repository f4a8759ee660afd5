//! Test of the choice of congestion control: it is set on both ends of a link.

use std::os::fd::RawFd;
use std::sync::Arc;

use weft_transport::{Local, Transport};
use weft_transport_tcp::{
    CongestionChoice, CongestionControl, Interface, TcpOptions, TcpTransport,
};
use weft_transport_testing::conformance::{LinkPair, Subject};

/// Every Linux has it and permits it to every user.
const CHOSEN: &str = "reno";

fn transport(local: Local, congestion: CongestionChoice) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named("127.0.0.1".into()),
        congestion,
        ..TcpOptions::default()
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
}

/// The congestion control of the two ends of a new link: of the side that connected, and of the
/// side that accepted.
fn used(subject: &Subject) -> [String; 2] {
    let pair = LinkPair::new(subject);
    [&pair.a, &pair.b].map(|side| name(side.link.descriptor().expect("a socket")))
}

fn name(socket: RawFd) -> String {
    let mut name = [0_u8; 16];
    let mut bytes = name.len() as libc::socklen_t;
    let (place, option) = (name.as_mut_ptr().cast(), libc::TCP_CONGESTION);
    // SAFETY: the name is writable and as long as it says, and both outlive the call.
    let got = unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, option, place, &mut bytes) };
    assert_eq!(got, 0);
    let text = String::from_utf8_lossy(&name);
    text.trim_end_matches('\0').into()
}

#[test]
fn both_ends_use_the_chosen_algorithm() {
    let chosen = Subject {
        make: |local| {
            let chosen = CongestionControl::named(CHOSEN).unwrap();
            transport(local, CongestionChoice::Named(chosen))
        },
    };
    assert_eq!(used(&chosen), [CHOSEN, CHOSEN]);

    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let default = std::fs::read_to_string(path).unwrap();
    let host = Subject {
        make: |local| transport(local, CongestionChoice::Host),
    };
    assert_eq!(used(&host), [default.trim(), default.trim()]);

    // The loopback interface has the shortest round trip.
    let automatic = Subject {
        make: |local| transport(local, CongestionChoice::Automatic),
    };
    let expected = match default.trim() {
        "bbr" | "cubic" => "reno",
        other => other,
    };
    assert_eq!(used(&automatic), [expected, expected]);
}
