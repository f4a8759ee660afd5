//! Test that a child forked at any moment can make groups of its own, and drop its parent's.

mod ranks;

use std::sync::atomic::{AtomicBool, Ordering};

use ranks::{Ranks, Setup, create};
use weft_runtime::{MemoryStore, TransportChoice};

#[test]
fn children_forked_while_groups_come_and_go_make_groups_of_their_own() {
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
