//! Test that a child that is forked at any moment can make groups, and drop its parent's.

mod ranks;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use ranks::{Ranks, Setup, create};
use weft_runtime::{MemoryStore, TransportChoice};
use weft_transport::last_failure;

const NAME: &str = "children_forked_at_any_moment_can_make_groups";
const FAULTS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// The name of the program that this test starts. It does not start another one, regardless of its
/// signals are: a sanitizer handles them although they were ignored.
const AGAIN: &str = "forks-with-ignored-faults";

/// Runs in a process like Python's. If Rust's standard library has started the program, and handles
/// these signals, every thread takes a lock of the library when it begins and ends. A child that
/// inherits the held lock cannot start a thread.
#[test]
fn children_forked_at_any_moment_can_make_groups() {
    if std::env::args().next().as_deref() == Some(AGAIN) {
        return fork_while_groups_come_and_go();
    }
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.arg0(AGAIN).args(["--exact", NAME, "--nocapture"]);
    // SAFETY: `signal` is safe between fork and exec. Ignored signals stay ignored after exec.
    unsafe { test.pre_exec(|| FAULTS.iter().try_for_each(|fault| ignore(*fault))) };
    assert!(test.status().unwrap().success(), "see above");
}

fn ignore(signal: i32) -> std::io::Result<()> {
    // SAFETY: no handler is passed.
    let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
    if before == libc::SIG_ERR {
        Err(last_failure("signal"))
    } else {
        Ok(())
    }
}

fn fork_while_groups_come_and_go() {
    let setup = Setup::from(TransportChoice::Tcp);
    let parents = create(&setup, &MemoryStore::new(), 0, 1).unwrap();
    let done = AtomicBool::new(false);
    let statuses: Vec<i32> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    Ranks::run_immediately(setup.clone(), 2, |_| ());
                }
            });
        }
        let children = (0..60).map(|_| {
            in_child(|| {
                let own = create(&setup, &MemoryStore::new(), 0, 1);
                // SAFETY: the child has one thread, and does not use the value any more.
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

/// Forks, runs `child` in the child, and returns its status: 0 on success.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only uses code that supports forks, then exits without unwinding.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(10) };
            let status = child();
            // SAFETY: ends the child immediately.
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
