//! Unix sockets that keep packet boundaries (`SOCK_SEQPACKET`), with names in the abstract
//! namespace. No call blocks except [`wait`].

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use weft_transport::fork::Descriptor;
use weft_transport::{checked, failed};

/// The longest packet: a tag and the longest message.
pub(crate) const PACKET_BYTES_MAX: usize = 1 + 64 * 1024;

/// How many descriptors one packet can carry.
pub(crate) const DESCRIPTORS_MAX: usize = 16;

const FLAGS: i32 = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
const BACKLOG: i32 = 1024;

/// Room for the control data of [`DESCRIPTORS_MAX`] descriptors, aligned as the kernel wants it.
type ControlBuffer = [u64; 16];

/// A socket that listens under this name.
pub(crate) fn listen(name: &[u8]) -> io::Result<Descriptor> {
    let socket = open()?;
    let (address, len) = abstract_address(name)?;
    // SAFETY: the address outlives the call, and `len` of its bytes are used.
    checked("bind", unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len)
    })?;
    // SAFETY: plain system call.
    checked("listen", unsafe {
        libc::listen(socket.as_raw_fd(), BACKLOG)
    })?;
    Ok(socket)
}

/// Starts a connection to the socket of this name. `WouldBlock`: the listener's backlog is full,
/// and a new call should be made later.
pub(crate) fn connect(name: &[u8]) -> io::Result<Descriptor> {
    let socket = open()?;
    let (address, len) = abstract_address(name)?;
    // SAFETY: the address outlives the call, and `len` of its bytes are used.
    checked("connect", unsafe {
        libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len)
    })?;
    Ok(socket)
}

/// The next waiting connection of a listening socket.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<Descriptor> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let (no_address, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
    Descriptor::make(|| {
        // SAFETY: no address is requested.
        let raw = unsafe { libc::accept4(listener.as_raw_fd(), no_address, no_len, flags) };
        checked("accept4", raw).map(adopt)
    })
}

/// Sends one packet, all of it or nothing.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    parts: [&[u8]; 2],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a message carries at most {DESCRIPTORS_MAX} descriptors"),
        ));
    }
    let mut slices = parts.map(IoSlice::new);
    let mut control: ControlBuffer = [0; 16];
    let mut header = empty_header();
    header.msg_iov = slices.as_mut_ptr().cast();
    header.msg_iovlen = slices.len() as _;
    if !descriptors.is_empty() {
        write_descriptors(&mut header, &mut control, descriptors);
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    loop {
        // SAFETY: the header points to slices and control data that outlive the call.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags) };
        match checked("sendmsg", sent) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(drop),
        }
    }
}

/// Receives one packet into the buffer, replacing its contents. No bytes: the other end is closed.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<Vec<Descriptor>> {
    Descriptor::make_all(|| receive_packet(socket, buffer))
}

fn receive_packet(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<Vec<OwnedFd>> {
    buffer.clear();
    buffer.reserve(PACKET_BYTES_MAX);
    let room = &mut buffer.spare_capacity_mut()[..PACKET_BYTES_MAX];
    let mut slice = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    let mut control: ControlBuffer = [0; 16];
    let mut header = empty_header();
    header.msg_iov = &mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<ControlBuffer>() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    let len = loop {
        // SAFETY: the header points to writable memory of the lengths it says, which outlives the
        // call.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        match checked("recvmsg", len) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result? as usize,
        }
    };
    // SAFETY: the kernel wrote this many bytes, which is at most the room.
    unsafe { buffer.set_len(len) };
    let descriptors = read_descriptors(&header);
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        // The buffer has room for the most descriptors of a packet: this process could not accept
        // them.
        return Err(failed(
            "recvmsg",
            io::Error::from_raw_os_error(libc::EMFILE),
        ));
    }
    if header.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a packet is too long",
        ));
    }
    Ok(descriptors)
}

/// Waits until the socket is readable, or at its end. False on timeout.
pub(crate) fn wait(socket: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut entry = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the one entry outlives the call.
    match checked("poll", unsafe { libc::poll(&mut entry, 1, milliseconds) }) {
        Ok(count) => Ok(count > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

fn open() -> io::Result<Descriptor> {
    Descriptor::make(|| {
        // SAFETY: plain system call.
        let raw = unsafe { libc::socket(libc::AF_UNIX, FLAGS, 0) };
        checked("socket(AF_UNIX)", raw).map(adopt)
    })
}

/// A name that begins with a zero byte is in the abstract namespace: it has no file, and disappears
/// with its socket.
fn abstract_address(name: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros is a valid address structure.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    if name.len() + 1 > address.sun_path.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the socket's name is too long",
        ));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (place, byte) in address.sun_path[1..].iter_mut().zip(name) {
        *place = *byte as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, len as libc::socklen_t))
}

fn empty_header() -> libc::msghdr {
    // SAFETY: all zeros is a valid header: no address, no data, no control data.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn write_descriptors(
    header: &mut libc::msghdr,
    control: &mut ControlBuffer,
    descriptors: &[BorrowedFd<'_>],
) {
    let bytes = size_of_val(descriptors) as u32;
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: pure arithmetic.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
    // SAFETY: the header's control data is long enough for one entry.
    let entry = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: `entry` points to the beginning of `control`, which is writable, long enough and
    // aligned.
    let entry = unsafe { &mut *entry };
    entry.cmsg_level = libc::SOL_SOCKET;
    entry.cmsg_type = libc::SCM_RIGHTS;
    // SAFETY: pure arithmetic.
    entry.cmsg_len = unsafe { libc::CMSG_LEN(bytes) } as _;
    // SAFETY: the data follow the entry's header, within `control`.
    let data = unsafe { libc::CMSG_DATA(entry) };
    // SAFETY: a borrowed descriptor is its number in memory, and `control` has room for all of
    // them.
    unsafe { std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast(), data, bytes as usize) };
}

/// Takes ownership of all descriptors of a packet.
fn read_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the kernel filled in the header and its control data.
    let mut entry = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !entry.is_null() {
        // SAFETY: not null, so it points to a whole entry within the control data.
        let current = unsafe { &*entry };
        if current.cmsg_level == libc::SOL_SOCKET && current.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: pure arithmetic.
            let header_len = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = (current.cmsg_len as usize - header_len) / size_of::<RawFd>();
            // SAFETY: the data follow the entry's header.
            let data = unsafe { libc::CMSG_DATA(entry) }.cast::<RawFd>();
            for index in 0..count {
                let place = data.wrapping_add(index);
                // SAFETY: one of the `count` descriptors that the entry holds, perhaps not aligned.
                descriptors.push(adopt(unsafe { place.read_unaligned() }));
            }
        }
        // SAFETY: `entry` is an entry of this header.
        entry = unsafe { libc::CMSG_NXTHDR(header, entry) };
    }
    descriptors
}

fn adopt(raw: RawFd) -> OwnedFd {
    // SAFETY: only called with descriptors that the kernel has just made for us.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (Descriptor, Descriptor) {
        let name = format!(
            "weft-test-{:?}",
            weft_transport::random_endpoint_id().unwrap()
        );
        let listener = listen(name.as_bytes()).unwrap();
        let here = connect(name.as_bytes()).unwrap();
        (here, accept(listener.as_fd()).unwrap())
    }

    #[test]
    fn packets_keep_their_boundaries() {
        let (a, b) = pair();
        send(a.as_fd(), [b"x", b""], &[]).unwrap();
        send(a.as_fd(), [b"yz", &[7; 64 * 1024 - 1]], &[]).unwrap();
        let mut buffer = Vec::new();
        receive(b.as_fd(), &mut buffer).unwrap();
        assert_eq!(buffer, b"x");
        receive(b.as_fd(), &mut buffer).unwrap();
        assert_eq!(
            (buffer.len(), &buffer[..3]),
            (PACKET_BYTES_MAX, &b"yz\x07"[..])
        );
        let nothing = receive(b.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(a);
        receive(b.as_fd(), &mut buffer).unwrap();
        assert!(buffer.is_empty());
    }

    #[test]
    fn the_most_descriptors_are_passed() {
        let (a, b) = pair();
        let many = [a.as_fd(); DESCRIPTORS_MAX];
        send(a.as_fd(), [b"fds", b""], &many).unwrap();
        let mut buffer = Vec::new();
        let received = receive(b.as_fd(), &mut buffer).unwrap();
        assert_eq!(received.len(), DESCRIPTORS_MAX);
        send(received[3].as_fd(), [b"from a copy", b""], &[]).unwrap();
        receive(b.as_fd(), &mut buffer).unwrap();
        assert_eq!(buffer, b"from a copy");
        let too_many = [a.as_fd(); DESCRIPTORS_MAX + 1];
        assert!(send(a.as_fd(), [b"fds", b""], &too_many).is_err());
    }

    #[test]
    fn overlong_packet_is_an_error() {
        let (a, b) = pair();
        send(a.as_fd(), [&[1; PACKET_BYTES_MAX], &[1; 1000]], &[]).unwrap();
        let error = receive(b.as_fd(), &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn unused_name_is_refused() {
        let error = connect(b"weft-test-unused-name").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
