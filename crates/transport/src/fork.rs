//! Protection of this process's descriptors from forked children.
//!
//! The death of a process is seen by its peers when the kernel closes its sockets. A child made by
//! `fork` holds copies of them, and would hide the death of its parent for as long as it lives. So
//! every descriptor is registered here, and a `pthread_atfork` handler replaces the child's copies
//! by `/dev/null`. They are replaced rather than closed so that their numbers stay taken: what the
//! child inherited may still drop its descriptors, and must not hit somebody else's.
//!
//! The handler runs between `fork` and whatever the child does next, so it may use nothing but
//! async-signal-safe calls and atomics: the registry is a bitmap indexed by descriptor number.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

const WORDS: usize = 16 * 1024;
const WORD_BITS: usize = 64;

static REGISTERED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static WORDS_USED: AtomicUsize = AtomicUsize::new(0);
static NULL_DEVICE: AtomicI32 = AtomicI32::new(-1);
static GENERATION: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();

/// How many threads are between making a descriptor and registering it, plus [`FORK`] for each fork
/// under way.
static GATE: AtomicU64 = AtomicU64::new(0);
const FORK: u64 = 1 << 32;

/// How many forks lie between this process and the one that loaded the library. What was made in
/// another generation belongs to an ancestor: its descriptors are void here, and its shared memory
/// must not be written.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Runs this while no thread can fork. It is for making a descriptor and registering it: a fork in
/// between would give the child an unregistered copy. It must not take long, must not fork, and
/// must not do this again or drop a [`Descriptor`].
pub fn shielded<T>(make_and_register: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            GATE.fetch_sub(1, Ordering::Release);
        }
    }
    while !enter() {
        std::thread::yield_now();
    }
    let _leave = Leave;
    make_and_register()
}

fn enter() -> bool {
    let gate = GATE.load(Ordering::Relaxed);
    let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
    gate < FORK
        && GATE
            .compare_exchange(gate, gate + 1, success, failure)
            .is_ok()
}

/// A descriptor that forked children do not inherit. Closed on drop.
#[derive(Debug)]
pub struct Descriptor {
    owned: ManuallyDrop<OwnedFd>,
    registration: ManuallyDrop<Registration>,
}

impl Descriptor {
    /// Registers a descriptor and takes it over.
    pub fn new(owned: OwnedFd) -> io::Result<Descriptor> {
        let registration = Registration::new(owned.as_fd())?;
        Ok(Descriptor {
            owned: ManuallyDrop::new(owned),
            registration: ManuallyDrop::new(registration),
        })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        shielded(|| {
            // First this: once the number is free for others, it must not be registered any more.
            // SAFETY: dropped here and nowhere else, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.registration) };
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.owned) };
        });
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.owned.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.owned.as_raw_fd()
    }
}

/// Registers a descriptor that somebody else owns (a `TcpStream`, say) for as long as this value
/// lives.
///
/// It must be dropped before the descriptor is closed: in a struct, declare it above the owner.
#[derive(Debug)]
pub struct Registration {
    descriptor: RawFd,
}

impl Registration {
    /// Registers a descriptor. Fails if its number is beyond a million.
    pub fn new(descriptor: BorrowedFd<'_>) -> io::Result<Registration> {
        install()?;
        let descriptor = descriptor.as_raw_fd();
        let (word, bit) = place(descriptor);
        if word >= WORDS {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        WORDS_USED.fetch_max(word + 1, Ordering::Relaxed);
        REGISTERED[word].fetch_or(bit, Ordering::Relaxed);
        Ok(Registration { descriptor })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let (word, bit) = place(self.descriptor);
        REGISTERED[word].fetch_and(!bit, Ordering::Relaxed);
    }
}

fn place(descriptor: RawFd) -> (usize, u64) {
    let number = descriptor as usize;
    (number / WORD_BITS, 1 << (number % WORD_BITS))
}

fn install() -> io::Result<()> {
    INSTALL.call_once(|| {
        // SAFETY: the path is a NUL-terminated literal.
        let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if null < 0 {
            return;
        }
        // SAFETY: the handlers are plain functions; the child's uses only atomics and
        // async-signal-safe calls.
        if unsafe {
            {
                libc::pthread_atfork(
                    Some(hold_makers),
                    Some(release_makers),
                    Some(disown_in_child),
                )
            }
        } == 0
        {
            NULL_DEVICE.store(null, Ordering::Relaxed);
        }
    });
    if NULL_DEVICE.load(Ordering::Relaxed) < 0 {
        return Err(io::Error::other(
            "cannot install the fork handler: /dev/null cannot be opened, or memory is short",
        ));
    }
    Ok(())
}

/// Runs before a fork: waits until nobody is in the middle of making a descriptor, and keeps others
/// from beginning.
extern "C" fn hold_makers() {
    GATE.fetch_add(FORK, Ordering::Relaxed);
    while !GATE.load(Ordering::Acquire).is_multiple_of(FORK) {
        std::thread::yield_now();
    }
}

/// Runs in the parent after a fork.
extern "C" fn release_makers() {
    GATE.fetch_sub(FORK, Ordering::Relaxed);
}

/// Runs in a forked child before anything else.
extern "C" fn disown_in_child() {
    GATE.store(0, Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let null = NULL_DEVICE.load(Ordering::Relaxed);
    let used = WORDS_USED.load(Ordering::Relaxed);
    for (index, word) in REGISTERED[..used].iter().enumerate() {
        let mut bits = word.load(Ordering::Relaxed);
        while bits != 0 {
            let number = index * WORD_BITS + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            disown(null, number as RawFd);
        }
    }
}

fn disown(null: RawFd, descriptor: RawFd) {
    // SAFETY: plain system call. The number is registered, so it is ours to replace.
    let replaced = unsafe { libc::dup3(null, descriptor, libc::O_CLOEXEC) };
    if replaced < 0 {
        // SAFETY: as above. The process closed our null device: closing is the best that is left.
        unsafe { libc::close(descriptor) };
    }
}
