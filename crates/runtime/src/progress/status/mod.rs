//! The status of a job while it runs: the operations of every rank, gathered over the group's
//! links.
//!
//! [Note: Inquiries] A program of the user's connects to a socket of one rank (`server.rs`). That
//! rank begins an inquiry: it asks its control neighbours in the job's first group, each rank asks
//! its own when it first receives the inquiry, and sends its status to the rank that asked, which
//! forwards others' statuses. So a rank that does not answer does not block the others' answers, as
//! long as the control links connect these. Progress threads do all of this: it works while a
//! rank's Python is stuck. A rank whose process is stopped does not answer, and is named.
//!
//! Nothing is sent, counted or measured while nobody asks. Where an operation has waited for a
//! tenth of its timeout, the lowest of the ranks that wait begins an inquiry by itself, and prints
//! the verdict.

mod answering;
mod inquiries;
mod report;
mod server;
mod snapshot;
mod verdict;
mod wait_time;
mod watchdog;

pub(super) use inquiries::{Inquiries, Watchdog};
pub(super) use server::StatusService;
pub(super) use wait_time::{WaitTime, WaitingThread};
