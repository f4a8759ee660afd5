//! Size table: the choices for all sizes of one kind of call.

/// Messages of up to so many bytes run by this candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeRow {
    pub(crate) up_to: u64,
    pub(crate) candidate: u32,
    pub(crate) origin: Origin,
}

/// Who has chosen an algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The group's options or the configuration.
    Policy,
    /// The profile.
    Profile,
    /// Nobody: it is the built-in default.
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
