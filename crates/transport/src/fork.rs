//! Protection of this process's descriptors: from forked children, and from output to closed
//! standard streams (see `standard_streams.rs`).
//!
//! Peers detect the death of a process when the kernel closes its sockets. A child made by `fork`
//! holds copies of them, and would hide the death of its parent for as long as it lives. So every
//! descriptor is registered here, and a `pthread_atfork` handler replaces the child's copies by
//! `/dev/null`. They are replaced rather than closed so that their numbers stay taken: objects that
//! the child inherited may still drop their descriptors, and must not close another's.
//!
//! The handler runs between `fork` and the child's next action, so it may use only
//! async-signal-safe calls and atomics: the registry is a bitmap indexed by descriptor number.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::{checked, failed, gate, standard_streams};

const WORDS: usize = 16 * 1024;
const WORD_BITS: usize = 64;

static REGISTERED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static WORDS_USED: AtomicUsize = AtomicUsize::new(0);
static NULL_DEVICE: AtomicI32 = AtomicI32::new(-1);
static GENERATION: AtomicU64 = AtomicU64::new(0);
static INSTALL: Mutex<()> = Mutex::new(());

/// Keeps the making of descriptors and forks apart.
static GATE: AtomicU64 = AtomicU64::new(0);

/// The number of forks between this process and the one that loaded the library. An object of
/// another generation belongs to an ancestor: its descriptors are void here, and its shared memory
/// must not be written.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Joins a thread that was started in this generation. Returns without waiting in a forked child,
/// which has no such thread, and on the thread itself.
pub fn join(thread: JoinHandle<()>, started_in: u64) {
    if started_in == generation() && thread.thread().id() != thread::current().id() {
        // A panic was reported by the thread itself.
        let _ = thread.join();
    }
}

/// Runs this while no thread can fork: a fork between the making of a descriptor and its
/// registration would give the child an unregistered copy.
fn shielded<T>(make_and_register: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            gate::leave(&GATE);
        }
    }
    gate::enter(&GATE);
    let _leave = Leave;
    make_and_register()
}

/// Keeps descriptors that this or another thread opens meanwhile off the numbers 0 to 2, where the
/// program has closed them. For objects that cannot be a [`Descriptor`]: files of the standard
/// library, and descriptors that other libraries open.
#[derive(Debug)]
pub struct AboveStandardStreams {
    generation: u64,
}

impl AboveStandardStreams {
    /// Reserves the numbers.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn new() -> io::Result<Self> {
        install()?;
        shielded(standard_streams::hold)?;
        Ok(Self {
            generation: generation(),
        })
    }
}

impl Drop for AboveStandardStreams {
    fn drop(&mut self) {
        if self.generation == generation() {
            shielded(standard_streams::release);
        }
    }
}

/// Runs a call that opens descriptors, while no thread can fork, and none of them gets the number
/// of a standard stream.
fn opened<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            standard_streams::release();
        }
    }
    shielded(|| {
        standard_streams::hold()?;
        let _release = Release;
        call()
    })
}

/// A descriptor, or an owner of one (such as a `TcpStream`), that forked children do not inherit
/// and whose number is never a standard stream's. Closed on drop.
#[derive(Debug)]
pub struct Descriptor<T: AsFd = OwnedFd> {
    owned: ManuallyDrop<T>,
    registration: ManuallyDrop<DescriptorRegistration>,
}

impl<T: AsFd + From<OwnedFd>> Descriptor<T> {
    /// Makes a descriptor, by a system call that does not block: no thread can fork meanwhile. The
    /// call must not fork, and must not make or drop another `Descriptor`.
    ///
    /// # Errors
    /// As the call, and if the descriptor's number exceeds a million.
    pub fn make(call: impl FnOnce() -> io::Result<T>) -> io::Result<Self> {
        Self::make_in_place(|| above_standard_streams(call()?))
    }

    /// Like [`make`](Self::make), for a call that makes several.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    pub fn make_all(call: impl FnOnce() -> io::Result<Vec<T>>) -> io::Result<Vec<Self>> {
        install()?;
        let made: Vec<_> = opened(|| {
            let made = call()?.into_iter();
            made.map(|one| above_standard_streams(one).map(Self::registered))
                .collect::<io::Result<_>>()
        })?;
        made.into_iter().map(NewDescriptor::taken_over).collect()
    }
}

impl<T: AsFd> Descriptor<T> {
    /// Like [`make`](Self::make), for objects whose number cannot be changed.
    ///
    /// # Errors
    /// As for [`make`](Self::make), and if the number is below 3 because the program has closed a
    /// standard stream at this moment.
    pub fn make_in_place(call: impl FnOnce() -> io::Result<T>) -> io::Result<Self> {
        install()?;
        let made = opened(|| call().map(Self::registered))?;
        made.taken_over()
    }

    fn registered(owned: T) -> NewDescriptor<T> {
        NewDescriptor {
            registration: DescriptorRegistration::new(owned.as_fd()),
            owned,
        }
    }
}

impl Descriptor {
    /// A descriptor for several others, to wait for them together (`epoll`).
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn epoll() -> io::Result<Self> {
        Self::make(|| {
            // SAFETY: plain system call.
            let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            adopt("epoll_create1", made)
        })
    }

    /// A counter that wakes threads that wait for it (`eventfd`). Reading it never blocks.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn event() -> io::Result<Self> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: plain system call.
        Self::make(|| adopt("eventfd2", unsafe { libc::eventfd(0, flags) }))
    }

    /// A duplicate of a descriptor.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn copy_of(other: BorrowedFd<'_>) -> io::Result<Self> {
        Self::make(|| (other.try_clone_to_owned()).map_err(|e| failed("fcntl(F_DUPFD_CLOEXEC)", e)))
    }
}

impl Descriptor<UnixStream> {
    /// Two connected sockets.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn pair() -> io::Result<[Self; 2]> {
        let ends = Self::make_all(|| {
            let pair = UnixStream::pair().map_err(|error| failed("socketpair", error));
            pair.map(|(one, other)| vec![one, other])
        })?;
        Ok(ends.try_into().expect("a pair is two"))
    }
}

/// Moves a descriptor above the numbers of the standard streams. It had such a number only if the
/// program used one of them for a moment, so that no placeholder could be there.
fn above_standard_streams<T: AsFd + From<OwnedFd>>(made: T) -> io::Result<T> {
    if made.as_fd().as_raw_fd() >= standard_streams::FIRST_PRIVATE {
        return Ok(made);
    }
    // The standard library asks for a number from 3 on.
    let copy = made.as_fd().try_clone_to_owned();
    copy.map(T::from)
        .map_err(|error| failed("fcntl(F_DUPFD_CLOEXEC)", error))
}

/// Takes ownership of a descriptor that a system call has just returned.
fn adopt(call: &'static str, returned: RawFd) -> io::Result<OwnedFd> {
    let descriptor = checked(call, returned)?;
    // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A newly made descriptor. It is dropped outside of the shield that it was made in.
struct NewDescriptor<T> {
    registration: io::Result<DescriptorRegistration>,
    owned: T,
}

impl<T: AsFd> NewDescriptor<T> {
    fn taken_over(self) -> io::Result<Descriptor<T>> {
        Ok(Descriptor {
            registration: ManuallyDrop::new(self.registration?),
            owned: ManuallyDrop::new(self.owned),
        })
    }
}

impl<T: AsFd> Drop for Descriptor<T> {
    fn drop(&mut self) {
        shielded(|| {
            // First the registration: once the number is free for others, it must not be registered
            // any more.
            // SAFETY: dropped here and nowhere else, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.registration) };
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.owned) };
        });
    }
}

impl<T: AsFd> Deref for Descriptor<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.owned
    }
}

impl<T: AsFd> AsFd for Descriptor<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.owned.as_fd()
    }
}

impl<T: AsFd> AsRawFd for Descriptor<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Keeps a descriptor registered for as long as this value lives.
#[derive(Debug)]
struct DescriptorRegistration {
    descriptor: RawFd,
}

impl DescriptorRegistration {
    fn new(descriptor: BorrowedFd<'_>) -> io::Result<DescriptorRegistration> {
        let descriptor = descriptor.as_raw_fd();
        let (word, bit) = place(descriptor);
        if word >= WORDS || descriptor < standard_streams::FIRST_PRIVATE {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        WORDS_USED.fetch_max(word + 1, Ordering::Relaxed);
        REGISTERED[word].fetch_or(bit, Ordering::Relaxed);
        Ok(DescriptorRegistration { descriptor })
    }
}

impl Drop for DescriptorRegistration {
    fn drop(&mut self) {
        let (word, bit) = place(self.descriptor);
        REGISTERED[word].fetch_and(!bit, Ordering::Relaxed);
    }
}

fn place(descriptor: RawFd) -> (usize, u64) {
    let number = descriptor as usize;
    (number / WORD_BITS, 1 << (number % WORD_BITS))
}

/// Installs the fork handlers once. After a failure, the next call tries again.
fn install() -> io::Result<()> {
    let installed = || NULL_DEVICE.load(Ordering::Relaxed) >= 0;
    if installed() {
        return Ok(());
    }
    let _one_by_one = INSTALL.lock().unwrap_or_else(PoisonError::into_inner);
    if installed() {
        return Ok(());
    }
    let null = opened(|| {
        // SAFETY: the path is a NUL-terminated literal.
        let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        adopt("open /dev/null", null)
    })?;
    // SAFETY: the handlers are plain functions; the child's uses only atomics and async-signal-safe
    // calls.
    let refused = unsafe {
        libc::pthread_atfork(
            Some(hold_makers),
            Some(release_makers),
            Some(disown_in_child),
        )
    };
    if refused != 0 {
        return Err(failed(
            "pthread_atfork",
            io::Error::from_raw_os_error(refused),
        ));
    }
    NULL_DEVICE.store(null.into_raw_fd(), Ordering::Relaxed);
    Ok(())
}

/// Runs before a fork: waits until no thread is making a descriptor, and blocks further makers.
extern "C" fn hold_makers() {
    gate::hold(&GATE);
}

/// Runs in the parent after a fork.
extern "C" fn release_makers() {
    gate::release(&GATE);
}

/// Runs in a forked child before anything else.
extern "C" fn disown_in_child() {
    GATE.store(0, Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    standard_streams::release_in_child();
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
        // SAFETY: as above. The process closed our null device, so the descriptor is only closed.
        unsafe { libc::close(descriptor) };
    }
}
