//! Test that a child forked at any moment of a link's making or end holds none of its sockets: it
//! would hide the death of its parent.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_transport_tcp::{Interface, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{Subject, connect, listening};

const SUBJECT: Subject = Subject {
    make: |local| {
        let options = TcpOptions {
            interface: Interface::Named("127.0.0.1".into()),
            ..TcpOptions::default()
        };
        Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
    },
};

#[test]
fn forked_children_hold_no_socket_of_links() {
    let ((_local, _transport), _events) = listening(&SUBJECT);
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (b, events) = listening(&SUBJECT);
                let (a, _) = listening(&SUBJECT);
                connect(&a, &b).expect("a connection").expect("a link");
                events.next_link();
            }
        });
        let most = (0..1000).map(|_| sockets_of_a_child()).max();
        done.store(true, Ordering::Relaxed);
        most
    });
    assert_eq!(most, Some(0), "a child holds sockets of its parent");
}

/// How many sockets a forked child finds that it could use.
fn sockets_of_a_child() -> i32 {
    // SAFETY: the child only makes system calls, then exits without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            let found = (3..128).filter(|&number| is_connection(number)).count();
            // SAFETY: ends the child.
            unsafe { libc::_exit(found as i32) }
        }
        pid => {
            assert!(pid > 0);
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            libc::WEXITSTATUS(status)
        }
    }
}

/// Excludes the socket by which the C library asks the kernel for interfaces, which is no
/// connection.
fn is_connection(descriptor: RawFd) -> bool {
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut bytes = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let place = name.as_mut_ptr().cast();
    // SAFETY: the place is writable for `bytes` bytes, and both outlive the call.
    let result = unsafe { libc::getsockname(descriptor, place, &mut bytes) };
    // SAFETY: all zeros is a valid value, too.
    let name = unsafe { name.assume_init() };
    result == 0 && i32::from(name.ss_family) != libc::AF_NETLINK
}
