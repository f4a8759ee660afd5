//! The thread that answers programs of this user on this host.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, ThreadId};
use std::time::Duration;

use weft_flight::{LocalSocket, RecordedJob};
use weft_transport::fork::{self, Descriptor};
use weft_transport_tcp::{poll, poll_entry};

/// The request of a caller.
const QUESTION: &[u8; 7] = b"status\n";
/// The time to wait for a request.
const READ_TIMEOUT: Duration = Duration::from_millis(500);
/// A caller that does not take its answer for this long gets none.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait at most before looking again; an event ends the wait.
const LOOK: Duration = Duration::from_secs(60);
/// How long the end waits for the thread.
const END_MAX: Duration = Duration::from_secs(2);
/// After a failure, as without descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// The server of an engine.
#[derive(Default)]
pub(in crate::progress) enum StatusService {
    /// There was no group yet.
    #[default]
    NotStarted,
    /// It serves a job until its last group is closed, unless the system refused what it needs.
    Started(RecordedJob, Option<StatusServer>),
    /// The endpoint is closed.
    Ended,
}

/// Serves the status of the job until it is dropped.
pub(crate) struct StatusServer {
    /// Its end is the thread's.
    lifeline: Descriptor<UnixStream>,
    /// The thread is the sender's owner.
    ended: Receiver<()>,
    thread: ThreadId,
    generation: u64,
}

impl StatusServer {
    /// Starts a thread, which first makes its socket by `listen` and answers by `report`; None
    /// where the system refuses what it needs, since nobody's training depends on it.
    pub(super) fn start(
        listen: impl FnOnce() -> Option<LocalSocket> + Send + 'static,
        report: impl Fn() -> Option<String> + Send + 'static,
    ) -> Option<StatusServer> {
        let [lifeline, watched] = Descriptor::pair().ok()?;
        let (owned, ended) = channel::<()>();
        let serve_until_ended = move || {
            let _owned = owned;
            if let Some(socket) = listen() {
                serve(&socket, &report, &watched);
            }
        };
        let thread = thread::Builder::new().name("weft-status".into());
        let thread = thread.spawn(serve_until_ended).ok()?;
        Some(StatusServer {
            lifeline,
            ended,
            thread: thread.thread().id(),
            generation: fork::generation(),
        })
    }

    /// Ends the thread, and with it its socket, without waiting for it.
    pub(super) fn stop(&self) {
        // Fails only where it has ended.
        let _ = self.lifeline.shutdown(Shutdown::Both);
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        // In a forked child the thread is the parent's.
        if self.generation != fork::generation() {
            return;
        }
        self.stop();
        // The thread itself drops the last reference to the engine where that ends under it. A
        // slow disk, where it makes its socket, holds nobody up.
        if self.thread != thread::current().id() {
            let _ = self.ended.recv_timeout(END_MAX);
        }
    }
}

fn serve(
    socket: &LocalSocket,
    report: &dyn Fn() -> Option<String>,
    lifeline: &Descriptor<UnixStream>,
) {
    loop {
        let mut events = [
            poll_entry(lifeline.as_raw_fd(), libc::POLLIN),
            poll_entry(socket.as_raw_fd(), libc::POLLIN),
        ];
        let polled = poll(&mut events, LOOK);
        if events[0].revents != 0 {
            return;
        }
        let answered = match polled {
            Ok(_) if events[1].revents == 0 => Ok(()),
            Ok(_) => answer(socket, report),
            Err(error) => Err(error),
        };
        if answered.is_err() {
            thread::sleep(PAUSE);
        }
    }
}

fn answer(socket: &LocalSocket, report: &dyn Fn() -> Option<String>) -> io::Result<()> {
    let Some(stream) = socket.accept()? else {
        return Ok(());
    };
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut question = [0; QUESTION.len()];
    // Callers that only look who listens ask nothing, and those that have gone need no answer.
    if (&*stream).read_exact(&mut question).is_ok()
        && question == *QUESTION
        && let Some(report) = report()
    {
        let _ = (&*stream).write_all(report.as_bytes());
    }
    Ok(())
}
