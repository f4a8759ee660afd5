//! Requests for schedules, with memory, topology and parts.

mod memory_class;
mod part;
mod schedule_request;
mod topology;

pub use memory_class::MemoryClass;
pub use part::Part;
pub use schedule_request::{ScheduleRequest, Sizes};
pub use topology::Topology;
