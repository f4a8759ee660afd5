//! Test of an endpoint whose process has no descriptor left when a peer calls.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::FromRawFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use weft_transport::{EndpointId, Link, LinkEvents, Local, Transport};
use weft_transport_tcp::{Interface, TcpOptions, TcpTransport};
use weft_transport_testing::limits::limit_descriptors;

const PATIENCE: Duration = Duration::from_secs(20);

/// Counts the reports of waiting callers.
#[derive(Default)]
struct ExhaustionCount {
    times: Mutex<u32>,
    changed: Condvar,
}

impl LinkEvents for ExhaustionCount {
    fn accept(&self, _: EndpointId) -> bool {
        false
    }

    fn connected(&self, _: Arc<dyn Link>) {}

    fn exhausted(&self) {
        *self.times.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

impl ExhaustionCount {
    fn wait_for(&self, times: u32) {
        let count = self.times.lock().unwrap();
        let enough = |count: &mut u32| *count < times;
        let waited = (self.changed).wait_timeout_while(count, PATIENCE, enough);
        let (_count, late) = waited.unwrap();
        assert!(!late.timed_out(), "no report of waiting callers");
    }
}

/// A socket that is not connected yet.
fn socket() -> i32 {
    // SAFETY: plain system call.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    assert!(socket >= 0);
    socket
}

fn call(socket: i32, port: u16) -> TcpStream {
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    let len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the address is readable, and `len` says how long it is.
    let connected = unsafe { libc::connect(socket, (&raw const address).cast(), len) };
    assert_eq!(connected, 0);
    // SAFETY: this test has made it, and nothing else owns it.
    unsafe { TcpStream::from_raw_fd(socket) }
}

#[test]
fn callers_wait_while_descriptors_are_missing() {
    let options = TcpOptions {
        interface: Interface::Named("127.0.0.1".into()),
        ..TcpOptions::default()
    };
    let transport = TcpTransport::new(Local::create(1 << 20).unwrap(), options).unwrap();
    let reports = Arc::new(ExhaustionCount::default());
    transport.listen(reports.clone()).unwrap();
    let address = transport.address();
    let port = u16::from_le_bytes([address[0], address[1]]);
    let socket = socket();

    let before = limit_descriptors(3);
    let mut caller = call(socket, port);
    reports.wait_for(3);
    limit_descriptors(before);
    // Once there is room it is accepted, and dropped, as it is a stranger.
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    caller.write_all(&[0; 64]).unwrap();
    let ended = match caller.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    };
    assert!(ended, "the caller still waits");
}
