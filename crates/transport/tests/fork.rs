//! Test that forked children keep none of the library's descriptors.
#![cfg(not(loom))]

use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weft_transport::fork::{self, Descriptor};
use weft_transport::{PerProcess, on_posix_signal};

/// Forks, runs this in the child, and returns the child's exit status.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only makes system calls, then exits without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            let status = child();
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) }
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

/// Whether the descriptor is the null device.
fn is_null(descriptor: RawFd) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the place is writable and of the right type.
    let result = unsafe { libc::fstat(descriptor, status.as_mut_ptr()) };
    // SAFETY: all zeros is a valid value, too.
    let status = unsafe { status.assume_init() };
    result == 0 && status.st_rdev == libc::makedev(1, 3)
}

// One test: the cases look at process-wide state.
#[test]
fn children_hold_nothing_of_their_parents() {
    let (kept, mut other_end) = UnixStream::pair().unwrap();
    let (passed_on, _alive) = UnixStream::pair().unwrap();
    let kept = Descriptor::make(|| Ok(kept)).unwrap();
    let passed_on = Descriptor::make(|| Ok(passed_on)).unwrap();
    let numbers = [kept.as_raw_fd(), passed_on.as_raw_fd()];
    let generation = fork::generation();

    let status = in_child(|| {
        let disowned = numbers.iter().all(|&number| is_null(number));
        // A child's own children are handled as well.
        let nested = in_child(|| i32::from(fork::generation() != generation + 2));
        i32::from(!(disowned && nested == 0 && fork::generation() == generation + 1))
    });
    assert_eq!(status, 0, "the child holds its parent's descriptors");
    assert_eq!(fork::generation(), generation);
    assert!(
        !numbers.iter().any(|&number| is_null(number)),
        "the parent lost its descriptors"
    );

    drop(passed_on);
    let again = std::fs::File::open("/proc/self/status").unwrap();
    assert_eq!(again.as_raw_fd(), numbers[1], "the lowest free number");
    let status = in_child(|| i32::from(is_null(numbers[1])));
    assert_eq!(status, 0, "what is not registered is inherited");

    forks_wait_for_makers_of_descriptors();
    child_does_not_inherit_locks();
    a_child_can_handle_the_signal_that_its_parent_handles();

    // A child that lives on does not keep the connection open.
    // SAFETY: the child only waits for its signal.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: limits the child's life if its parent dies.
        unsafe { libc::alarm(20) };
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    drop(kept);
    other_end
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert_eq!(
        other_end.read(&mut [0]).unwrap(),
        0,
        "the child kept the connection open"
    );
    // SAFETY: ends the child that was made above.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: no status is requested.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

/// While one thread makes and registers descriptors without pause, no child finds one that it could
/// use.
fn forks_wait_for_makers_of_descriptors() {
    let sockets = || (3..64).filter(|&number| is_socket(number)).count() as i32;
    let unregistered = in_child(sockets);
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let made = Descriptor::make_all(|| {
                    let (one, other) = UnixStream::pair()?;
                    std::thread::yield_now();
                    Ok(vec![one, other])
                });
                drop(made.unwrap());
            }
        });
        let most = (0..200).map(|_| in_child(sockets)).max();
        done.store(true, Ordering::Relaxed);
        most
    });
    assert_eq!(
        most,
        Some(unregistered),
        "a child holds a socket of its parent"
    );
}

fn child_does_not_inherit_locks() {
    static COUNT: PerProcess<Mutex<i32>> = PerProcess::new(Mutex::default);
    let mut count = COUNT.get().lock().unwrap();
    *count = 7;
    let found = in_child(|| COUNT.get().try_lock().map_or(-1, |count| *count));
    assert_eq!(found, 0, "the child's value is new, and not locked");
    drop(count);
    assert_eq!(*COUNT.get().lock().unwrap(), 7);
}

fn a_child_can_handle_the_signal_that_its_parent_handles() {
    let handled = |counted: &'static AtomicU32| {
        let count = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        on_posix_signal(libc::SIGUSR1, Box::new(count)).unwrap();
        // SAFETY: the signal is handled.
        unsafe { libc::raise(libc::SIGUSR1) };
        let since = Instant::now();
        while counted.load(Ordering::SeqCst) == 0 && since.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        counted.load(Ordering::SeqCst)
    };
    static PARENTS: AtomicU32 = AtomicU32::new(0);
    static CHILDS: AtomicU32 = AtomicU32::new(0);
    assert_eq!(handled(&PARENTS), 1);
    let status = in_child(|| i32::from(handled(&CHILDS) != 1));
    assert_eq!(status, 0, "the child's action did not run");
    assert_eq!(
        PARENTS.load(Ordering::SeqCst),
        1,
        "the parent's action ran in the child"
    );
}

fn is_socket(descriptor: RawFd) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the place is writable and of the right type.
    let result = unsafe { libc::fstat(descriptor, status.as_mut_ptr()) };
    // SAFETY: all zeros is a valid value, too.
    let status = unsafe { status.assume_init() };
    result == 0 && status.st_mode & libc::S_IFMT == libc::S_IFSOCK
}
