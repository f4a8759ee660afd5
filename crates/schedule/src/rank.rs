//! The number of a rank.

/// A rank within the group that the schedule is made for.
pub type Rank = u32;
