//! A socket at which programs of this user on this host ask a rank.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use weft_transport::fork::Descriptor;
use weft_transport::{effective_user, peer_credentials};

use super::directory::PrivateDirectory;

/// A listening socket in a directory that only this user can enter; its file goes with it.
#[derive(Debug)]
pub struct LocalSocket {
    listener: Descriptor<UnixListener>,
    directory: PrivateDirectory,
    name: String,
}

impl LocalSocket {
    pub(super) fn listen(directory: PrivateDirectory, name: &str) -> io::Result<Self> {
        Ok(LocalSocket {
            listener: directory.listen(name)?,
            directory,
            name: name.into(),
        })
    }

    /// The descriptor, to wait for callers.
    pub fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// The next caller; None if it is a process of another user than this one and root.
    ///
    /// # Errors
    ///
    /// The system call fails: there are too few descriptors, or the caller is gone.
    pub fn accept(&self) -> io::Result<Option<Descriptor<UnixStream>>> {
        let stream = Descriptor::make(|| self.listener.accept().map(|(stream, _)| stream))?;
        let user = peer_credentials(stream.as_fd())?.uid;
        Ok((user == effective_user() || user == 0).then_some(stream))
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        self.directory.remove(&self.name);
        self.directory.remove_if_empty();
    }
}
