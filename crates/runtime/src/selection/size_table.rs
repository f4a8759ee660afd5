//! Size table: the choices for all message sizes of one kind of call.

/// A row: the largest message in bytes, and its candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeRow {
    pub(crate) up_to: u64,
    pub(crate) candidate: u32,
    pub(crate) origin: Origin,
}

/// The origin of a choice of algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The group's options or the configuration.
    Policy,
    /// The profile.
    Profile,
    /// The built-in default.
    Defaults,
}

impl Origin {
    /// `policy`, `profile` or `default`.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Policy => "policy",
            Origin::Profile => "profile",
            Origin::Defaults => "default",
        }
    }
}
