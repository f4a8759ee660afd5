//! Errors of groups and endpoints, with hints about their remedies.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_transport::{LinkError, is_own_limit, os_code};

/// Hint for errors at a resource limit of this process.
pub const RAISE_ULIMIT_HINT: &str =
    "Raise its limits of descriptors (ulimit -n), threads or memory";

/// Hint for calls that a rule of the system refuses.
const ALLOW_CALL: &str =
    "A seccomp profile or another sandbox refuses it: see Containers in docs/how-to/operations.md";

/// The longest reason for an abort that other ranks receive, so that it fits into a message.
const REASON_CHARACTERS: usize = 4096;

/// Why an operation, a group or an endpoint failed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Error {
    /// A rank's process ended, its host vanished, or it left while it was needed.
    PeerLost {
        /// The rank, where it is known.
        rank: Option<u32>,
        /// The host that it ran on.
        host: String,
        /// The evidence of the loss.
        detail: String,
    },
    /// An operation did not end before its deadline.
    Timeout {
        /// The operation.
        operation: String,
        /// The rank or event that it waited for.
        waiting_for: String,
        /// The timeout.
        after: Duration,
    },
    /// Two ranks made different calls.
    Desync {
        /// The operation that differs: "as operation 3 of group ...".
        place: String,
        /// The two calls, each with its rank in the group of the rendezvous, in ascending order.
        calls: [(u32, String); 2],
    },
    /// The group was aborted, or the attempt cancelled.
    Aborted {
        /// The reason that the caller of abort gave.
        reason: String,
    },
    /// A setting or an argument is invalid, or the settings of two ranks do not match.
    Config(String),
    /// A peer could not prove that it belongs to the job.
    Auth(String),
    /// This machine, transport or type cannot do that.
    Unsupported(String),
    /// A defect in weft, or an unexpected refusal by the operating system.
    Internal(String),
}

impl Error {
    /// The attempt was cancelled from another thread.
    pub fn cancelled() -> Self {
        Error::Aborted {
            reason: "cancelled".into(),
        }
    }

    /// The calling thread was interrupted.
    pub fn interrupted() -> Self {
        Error::Aborted {
            reason: "interrupted".into(),
        }
    }

    /// The error that other ranks get when rank `origin` reports it.
    pub fn reported_by(&self, origin: u32) -> Self {
        match self.clone() {
            Error::Timeout {
                operation,
                waiting_for,
                after,
            } => Error::Timeout {
                operation: format!("rank {origin}: {operation}"),
                waiting_for,
                after,
            },
            Error::Aborted { reason } => {
                let reason: String = reason.chars().take(REASON_CHARACTERS).collect();
                Error::Aborted {
                    reason: format!("by rank {origin}: {reason}"),
                }
            }
            lost @ Error::PeerLost { .. } => lost.with_note(&format!("reported by rank {origin}")),
            desync @ Error::Desync { .. } => desync,
            other => Error::Aborted {
                reason: format!("rank {origin} failed: {other}"),
            },
        }
    }

    /// The operating system refuses `action` to this process.
    pub fn refused_here(action: &str, error: &io::Error) -> Self {
        Error::Config(format!(
            "this process cannot {action}: {error}{}",
            remedy(error)
        ))
    }

    /// The error for a failed link, with the peer's rank and host.
    pub fn from_link(error: LinkError, rank: Option<u32>, host: &str) -> Self {
        let lost = |detail: String| Error::PeerLost {
            rank,
            host: host.into(),
            detail,
        };
        match error {
            LinkError::Gone(why) => lost(why),
            LinkError::Absent(why) => lost(why),
            LinkError::Left => lost("it closed the connection".into()),
            LinkError::Protocol(detail) => lost(format!("it violated the protocol: {detail}")),
            // The system's text does not name the exhausted resource.
            LinkError::Io(error) if os_code(&error) == Some(libc::ETOOMANYREFS) => {
                let peer = name(rank, host);
                Error::Config(format!(
                    "this process cannot send descriptors to {peer}: too many descriptors of this \
                     user are in messages that have not been received. {RAISE_ULIMIT_HINT}"
                ))
            }
            LinkError::Io(error) if is_own_limit(&error) => {
                Error::refused_here(&format!("connect to {}", name(rank, host)), &error)
            }
            LinkError::Io(error) => lost(error.to_string()),
            LinkError::Refused(why) => Error::Auth(format!(
                "{} refused the connection: {why}",
                name(rank, host)
            )),
            LinkError::OtherUser(why) => Error::Auth(format!(
                "{} is another user's process: {why}",
                name(rank, host)
            )),
            LinkError::TimedOut(detail) => Error::Timeout {
                operation: "connecting".into(),
                waiting_for: format!("{} ({detail})", name(rank, host)),
                after: Duration::ZERO,
            },
            LinkError::Setup(message) => Error::Config(message),
            LinkError::Cancelled => Error::cancelled(),
            error @ LinkError::Unregistered => Error::Internal(error.to_string()),
        }
    }

    /// Adds a note in parentheses to the error's message.
    pub fn with_note(mut self, note: &str) -> Self {
        let text = match &mut self {
            Error::PeerLost { detail, .. } => detail,
            Error::Timeout { waiting_for, .. } => waiting_for,
            Error::Desync { place, .. } => place,
            Error::Aborted { reason } => reason,
            Error::Config(what)
            | Error::Auth(what)
            | Error::Unsupported(what)
            | Error::Internal(what) => what,
        };
        *text = format!("{text} ({note})");
        self
    }
}

/// Returns a hint, preceded by ". ", for an error of a system call; empty if there is none.
pub fn remedy(error: &io::Error) -> String {
    match os_code(error) {
        // Threads are refused with EAGAIN.
        code if is_own_limit(error) || code == Some(libc::EAGAIN) => {
            format!(". {RAISE_ULIMIT_HINT}")
        }
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => format!(". {ALLOW_CALL}"),
        _ => String::new(),
    }
}

fn name(rank: Option<u32>, host: &str) -> String {
    match rank {
        Some(rank) => format!("rank {rank} on {host}"),
        None => format!("a process on {host}"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::PeerLost { rank, host, detail } => write!(
                f,
                "lost {}: {detail}. Look at that process's own output for the cause. The surviving \
                 ranks can make a new group (Group.shrink)",
                name(*rank, host)
            ),
            Error::Timeout {
                operation,
                waiting_for,
                after,
            } => {
                // Programs that restart jobs look for "timed out" and "timeout".
                write!(f, "{operation} timed out")?;
                if !after.is_zero() {
                    write!(f, " after {:.1} s", after.as_secs_f64())?;
                }
                write!(
                    f,
                    ", waiting for {waiting_for}. Is it running? If it is only slow, pass a longer \
                     timeout (WEFT_TIMEOUT); otherwise read its output, and see where it waits \
                     (py-spy dump --pid PID)"
                )
            }
            Error::Desync {
                place,
                calls: [(first, this), (second, that)],
            } => write!(
                f,
                "ranks made different calls {place}: rank {first} {this}, rank {second} {that}. \
                 All ranks of a group must make the same calls in the same order; if some have \
                 more batches than others, train in `with model.join():`"
            ),
            Error::Aborted { reason } => write!(
                f,
                "aborted: {reason}. The group stays broken; make a new one to continue"
            ),
            Error::Config(what) => write!(f, "{what}"),
            Error::Auth(what) => write!(
                f,
                "{what}. Do all ranks belong to the same job, and use the same rendezvous?"
            ),
            Error::Unsupported(what) => write!(f, "not supported: {what}"),
            Error::Internal(what) => write!(f, "internal error: {what}. Please report this"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_this_process_is_a_config_error() {
        for limit in [libc::EMFILE, libc::ETOOMANYREFS] {
            let full = std::io::Error::from_raw_os_error(limit);
            let error = Error::from_link(LinkError::Io(full), Some(1), "host-a");
            let text = error.to_string();
            assert!(matches!(error, Error::Config(_)), "{text}");
            assert!(
                text.contains("rank 1 on host-a") && text.contains("descriptors (ulimit -n)"),
                "{text}"
            );
        }
        let reset = std::io::Error::from_raw_os_error(libc::ECONNRESET);
        let error = Error::from_link(LinkError::Io(reset), Some(1), "host-a");
        assert!(matches!(error, Error::PeerLost { .. }), "{error}");
    }

    #[test]
    fn timeout_message_contains_timed_out() {
        let late = |seconds| Error::Timeout {
            operation: "rendezvous".into(),
            waiting_for: "rank 1 of 2".into(),
            after: Duration::from_secs(seconds),
        };
        assert_eq!(
            late(3).to_string(),
            "rendezvous timed out after 3.0 s, waiting for rank 1 of 2. Is it running? If it is only \
             slow, pass a longer timeout (WEFT_TIMEOUT); otherwise read its output, and see where \
             it waits (py-spy dump --pid PID)"
        );
        let immediate = late(0).to_string();
        assert!(
            immediate.contains("timed out, waiting for rank 1 of 2."),
            "{immediate}"
        );
    }
}
