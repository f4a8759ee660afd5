//! Test that a child forked at any moment can make groups of its own, and drop its parent's.

mod ranks;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use ranks::{Ranks, Setup, create};
use weft_runtime::{MemoryStore, TransportChoice};
use weft_transport::last_failure;

const NAME: &str = "children_forked_while_groups_come_and_go_make_groups_of_their_own";
const FAULTS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Runs in a process as Python's are. Where Rust's standard library has begun the program, and
/// handles these signals, every thread takes a lock of the library's as it begins and ends; a child
/// that inherits the lock while it is held can begin no thread.
#[test]
fn children_forked_while_groups_come_and_go_make_groups_of_their_own() {
    if FAULTS.iter().all(|fault| is_ignored(*fault)) {
        return fork_while_groups_come_and_go();
    }
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", NAME, "--nocapture"]);
    // SAFETY: `signal` is safe between fork and exec. What is ignored stays so over exec.
    unsafe { test.pre_exec(|| FAULTS.iter().try_for_each(|fault| ignore(*fault))) };
    assert!(test.status().unwrap().success(), "see above");
}

fn ignore(signal: i32) -> std::io::Result<()> {
    // SAFETY: no handler is given.
    let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
    if before == libc::SIG_ERR {
        Err(last_failure("signal"))
    } else {
        Ok(())
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: a `sigaction` may be all zeros.
    let mut found = unsafe { std::mem::zeroed::<libc::sigaction>() };
    // SAFETY: the call only writes into `found`, which outlives it.
    let status = unsafe { libc::sigaction(signal, std::ptr::null(), &mut found) };
    assert_eq!(status, 0);
    found.sa_sigaction == libc::SIG_IGN
}

fn fork_while_groups_come_and_go() {
    let setup = Setup::from(TransportChoice::Tcp);
    let parents = create(&setup, &MemoryStore::new(), 0, 1).unwrap();
    let done = AtomicBool::new(false);
    let statuses: Vec<i32> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    Ranks::run_at_once(setup.clone(), 2, |_| ());
                }
            });
        }
        let children = (0..60).map(|_| {
            in_child(|| {
                let own = create(&setup, &MemoryStore::new(), 0, 1);
                // SAFETY: the child has one thread, and looks at the value no more.
                drop(unsafe { std::ptr::read(&parents) });
                i32::from(own.is_err())
            })
        });
        let statuses = children.filter(|status| *status != 0).collect();
        done.store(true, Ordering::Relaxed);
        statuses
    });
    assert!(statuses.is_empty(), "children failed or hung: {statuses:?}");
}

/// Forks, runs this in the child, and returns how the child ended: 0 if well.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child goes on with what is made to bear it, then exits without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: a child that hangs ends by this.
            unsafe { libc::alarm(10) };
            let status = child();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(status) }
        }
        pid => {
            assert!(pid > 0);
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            status
        }
    }
}
