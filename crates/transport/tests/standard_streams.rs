//! Tests that descriptors 0 to 2 stay as the program has them, open or closed.
#![cfg(not(loom))]

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use weft_transport::fork::{AboveStandardStreams, Descriptor};

/// Runs this in a forked child, whose descriptors 0 to 2 are closed according to the bits, and
/// returns the child's exit status.
fn with_closed(closed: u8, check: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child makes system calls only, then exits without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            for number in numbers(closed) {
                // SAFETY: the child's own copy.
                unsafe { libc::close(number) };
            }
            let status = check();
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert!(libc::WIFEXITED(status), "{status}");
            libc::WEXITSTATUS(status)
        }
    }
}

fn numbers(bits: u8) -> impl Iterator<Item = RawFd> {
    (0..3).filter(move |number| bits & 1 << number != 0)
}

/// Whether a descriptor is open, by a system call on it.
fn is_open(number: RawFd) -> bool {
    // SAFETY: plain system call.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

fn can_be_written(number: RawFd) -> bool {
    // SAFETY: one readable byte.
    unsafe { libc::write(number, b"x".as_ptr().cast(), 1) >= 0 }
}

#[test]
fn opened_descriptors_are_above_standard_streams() {
    for closed in 0..8 {
        let status = with_closed(closed, || {
            let [one, other] = Descriptor::pair().unwrap();
            let event = Descriptor::event().unwrap();
            let made = [one.as_raw_fd(), other.as_raw_fd(), event.as_raw_fd()];
            let above = made.iter().all(|&number| number > 2);
            let untouched = numbers(closed).all(|number| !is_open(number));
            i32::from(!(above && untouched))
        });
        assert_eq!(status, 0, "closed: {closed:#b}");
    }
}

#[test]
fn output_to_closed_streams_is_lost() {
    let status = with_closed(0b111, || {
        let made = Descriptor::make_all(|| {
            let (one, other) = UnixStream::pair()?;
            assert!(!(0..3).any(can_be_written));
            Ok(vec![one, other])
        });
        let above = AboveStandardStreams::new().unwrap();
        let nested = Descriptor::event().unwrap();
        let kept = (0..3).all(is_open) && !(0..3).any(can_be_written);
        drop(above);
        i32::from(!(kept && made.is_ok() && nested.as_raw_fd() > 2 && !(0..3).any(is_open)))
    });
    assert_eq!(status, 0);
}

#[test]
fn a_stream_opened_meanwhile_stays() {
    let status = with_closed(0b010, || {
        let above = AboveStandardStreams::new().unwrap();
        // SAFETY: plain system call.
        unsafe { libc::dup2(2, 1) };
        drop(above);
        i32::from(!is_open(1))
    });
    assert_eq!(status, 0);
}

#[test]
fn forked_children_can_reuse_the_numbers() {
    let status = with_closed(0b111, || {
        let _above = AboveStandardStreams::new().unwrap();
        with_closed(0, || i32::from((0..3).any(is_open)))
    });
    assert_eq!(status, 0);
}
