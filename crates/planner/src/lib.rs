//! Planner: answers to requests of the tools about algorithms, schedules and machines.
//!
//! [`algorithms`] lists all algorithms, [`family`] those that a group can use; [`plan`] makes a
//! schedule, [`verify`] checks schedules in text form; [`simulate`] returns the times of calls on a
//! machine, and [`price`] does so for many jobs and machines. Requests and answers are types that
//! serde reads and writes. Nothing here does I/O or knows the time.
//!
//! ```
//! use weft_planner::{FamilyRequest, family};
//!
//! let two_hosts = FamilyRequest {
//!     collective: "all-reduce".to_owned(),
//!     ranks_per_host: vec![2, 2],
//!     domains: Vec::new(),
//! };
//! let names = family(&two_hosts)?;
//! assert!(names.contains(&"multi-rail(slice-reduce, ring)".to_owned()));
//! assert!(!names.contains(&"slice-reduce".to_owned()));
//! # Ok::<(), weft_planner::PlannerError>(())
//! ```
#![forbid(unsafe_code)]

mod algorithms;
mod call;
mod error;
mod family;
mod machine;
mod placement;
mod plan;
mod price;
mod simulate;
mod trace;
mod verify;

pub use algorithms::{AlgorithmAbout, AlgorithmFormula, AlgorithmInfo, AlgorithmNeeds, algorithms};
pub use call::CallRequest;
pub use error::PlannerError;
pub use family::{FamilyRequest, family};
pub use placement::{Domains, Hosts};
pub use plan::{PlanAnswer, PlanRequest, plan};
pub use price::{JobRequest, PriceAnswer, PriceMethod, PriceRequest, price};
pub use simulate::{NamedSchedule, SimulateAnswer, SimulateRequest, Simulated, simulate};
pub use trace::TraceEvent;
pub use verify::{Findings, ProblemReport, Verdict, VerifyRequest, verify};
