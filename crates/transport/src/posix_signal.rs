//! Actions on a signal of the operating system. A thread of their own runs them: a signal handler
//! may do hardly anything, and only wakes that thread.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::fork::Descriptor;
use crate::{PerProcess, checked, failed, last_failure};

/// The descriptor that the handler writes to; a forked child's copy has no effect.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// The previous action of the signal.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();
/// The handled signal. A forked child has no thread that waits for it, until it installs one.
static HANDLED: PerProcess<Mutex<Option<i32>>> = PerProcess::new(Mutex::default);

/// Runs an action whenever this process receives a signal. A handler that was installed before is
/// called first. Only one signal can be handled, by one action: the same signal again changes
/// nothing.
///
/// # Errors
/// If another signal is handled already, or the system refuses a descriptor, a thread or the
/// handler.
pub fn on_posix_signal(signal: i32, action: Box<dyn Fn() + Send>) -> io::Result<()> {
    let mut handled = HANDLED.get().lock().unwrap_or_else(PoisonError::into_inner);
    match *handled {
        Some(known) if known == signal => return Ok(()),
        Some(known) => {
            let text = format!("this process already handles signal {known}, its only one");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        None => {}
    }
    let event = event()?;
    WAKE.store(event.as_raw_fd(), Ordering::SeqCst);
    install(signal)?;
    *handled = Some(signal);
    let waits = std::thread::Builder::new().name("weft-signal".into());
    let waiting = waits.spawn(move || {
        while waited(&event) {
            action();
        }
    });
    waiting.map_err(|error| failed("starting the thread weft-signal", error))?;
    Ok(())
}

/// An event counter of the kernel, which the handler increments.
fn event() -> io::Result<Descriptor> {
    Descriptor::make(|| {
        // SAFETY: plain system call.
        let event = checked("eventfd2", unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
        // SAFETY: the descriptor is new and not owned elsewhere.
        Ok(unsafe { OwnedFd::from_raw_fd(event) })
    })
}

/// Sleeps until the handler has incremented the counter. Returns false if waiting fails.
fn waited(event: &Descriptor) -> bool {
    let mut count = 0_u64;
    loop {
        // SAFETY: eight writable bytes.
        let read = unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) };
        if read >= 0 || last_failure("read").kind() != io::ErrorKind::Interrupted {
            return read == 8;
        }
    }
}

fn install(signal: i32) -> io::Result<()> {
    let mut new = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all of its fields are numbers, sets of bits, or absent handlers: zeros are valid.
    let mut former = unsafe { new.assume_init() };
    let new = new.write(former);
    new.sa_sigaction = handle as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: both point to valid structures.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut former) };
    checked("rt_sigaction", asked)?;
    // Before the handler can run.
    let _ = FORMER.set(former);
    // SAFETY: the handler makes only calls that are safe in one.
    let installed = unsafe { libc::sigaction(signal, new, std::ptr::null_mut()) };
    checked("rt_sigaction", installed).map(drop)
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the address is this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let one = 1_u64;
    let wake = WAKE.load(Ordering::SeqCst);
    // SAFETY: eight readable bytes. Writing to a counter is safe in a handler.
    unsafe { libc::write(wake, (&raw const one).cast(), 8) };
    if let Some(former) = FORMER.get() {
        pass_on(former, signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

fn pass_on(
    former: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let handler = former.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return;
    }
    if former.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: by its flags, it is a handler of this form.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: by its flags, it is a handler of this form.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
        handler(signal);
    }
}
