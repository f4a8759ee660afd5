//! Policies and profiles that fit a group.

use weft_bootstrap::{Meeting, Policy, Profile, Schedules};
use weft_call::Tiling;
use weft_channel::ChannelLayout;

use super::user_schedules::UserSchedule;
use crate::Error;

/// The parts of a policy that a derived group inherits: schedules that are valid there, and
/// algorithms that do not name other schedules.
pub(crate) fn inherited(mut policy: Policy, meeting: &Meeting) -> Policy {
    let suits = |name: &str, text: &str| UserSchedule::read(name, text, meeting).is_ok();
    let all = std::mem::take(&mut policy.schedules);
    let (kept, left) = (all.into_iter()).partition(|(name, text)| suits(name, text));
    policy.schedules = kept;
    let left: Schedules = left;
    policy.algorithms.retain(|_, name| !left.contains_key(name));
    policy
}

/// A profile that fits a group, and its schedules.
pub(crate) type FittingProfile<'a> = (&'a Profile, Vec<UserSchedule>);

/// The schedules of a profile, or why the group cannot use it.
fn suited(
    profile: &Profile,
    meeting: &Meeting,
    domains: &[Vec<u32>],
) -> Result<Vec<UserSchedule>, Error> {
    let here = meeting.ranks_per_host();
    if !profile.ranks_per_host.is_empty() && profile.ranks_per_host != here {
        return Err(Error::Config(format!(
            "{} was made for hosts with {:?} ranks; this group's hosts have {here:?}",
            profile.source, profile.ranks_per_host
        )));
    }
    if !profile.domains.is_empty() && profile.domains != domains {
        return Err(Error::Config(format!(
            "{} was made for ranks with the domains {:?}; this group's are {domains:?}",
            profile.source, profile.domains
        )));
    }
    let user_schedules =
        (profile.schedules.iter()).map(|(name, text)| UserSchedule::read(name, text, meeting));
    user_schedules
        .collect::<Result<_, _>>()
        .map_err(|why| Error::Config(format!("{}: {why}", profile.source)))
}

/// The first profile that fits the group; profiles for its domains precede those for any.
pub(crate) fn suitable<'a>(
    profiles: &'a [Profile],
    meeting: &Meeting,
    domains: &[Vec<u32>],
) -> Result<Option<FittingProfile<'a>>, Error> {
    let particular = |profile: &&Profile| !profile.domains.is_empty();
    let any = profiles.iter().filter(|profile| !particular(profile));
    for profile in profiles.iter().filter(particular).chain(any) {
        match suited(profile, meeting, domains) {
            Ok(user_schedules) => return Ok(Some((profile, user_schedules))),
            Err(why) if profile.required => return Err(why),
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Rejects a tiling that the executor does not support.
pub(super) fn check_tiling(tiling: Tiling, layout: ChannelLayout) -> Result<(), Error> {
    if tiling.tile_bytes == Some(0) {
        return Err(Error::Config("tile_bytes=0: at least 1 is needed".into()));
    }
    match tiling.tiles_in_flight {
        Some(tiles) if tiles == 0 || tiles as usize > layout.slots => Err(Error::Config(format!(
            "tiles_in_flight={tiles}: 1 to {} are possible",
            layout.slots
        ))),
        _ => Ok(()),
    }
}
