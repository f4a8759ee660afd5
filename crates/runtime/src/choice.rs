//! Which way a call takes: what the call says, else the group's policy, else a profile's table, else the built-in defaults.

use std::sync::Arc;

use weft_algorithms::{Reach, Selection, Topology, family, select};
use weft_schedule::Collective;

use crate::Error;
use crate::call::{COLLECTIVES, Call, Counts, collective_index, collective_name};
use crate::channel::Layout;
use crate::defaults::{SMALL_BYTES, preferences};
use crate::geometry::fits;
use crate::plan::PlanKey;
use crate::policy::{Policy, Profile, Row, Table, Tiling};
use crate::rendezvous::{Meeting, shares_memory};
use crate::ways::{Kind, Own, Setting, Site, Way};

/// Messages of up to so many bytes take this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) up_to: u64,
    pub(crate) way: u32,
    pub(crate) origin: Origin,
}

/// Who has chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Policy,
    Profile,
    Defaults,
}

/// A name that was asked for, so that it is understood only once.
struct Name {
    collective: &'static str,
    text: String,
    tiling: Tiling,
    way: u32,
}

/// Chooses for one group. Depends only on what all ranks know alike, and so do its answers.
pub(crate) struct Chooser {
    pub(crate) site: Site,
    pub(crate) setting: Setting,
    layout: Layout,
    policy: Policy,
    table: Table,
    ways: Vec<Way>,
    names: Vec<Name>,
    own: Vec<Arc<Own>>,
    /// By collective and [`Kind`], once looked up: ascending, the last without a limit.
    lines: Vec<Option<Vec<Line>>>,
}

impl Chooser {
    /// For a group that has met. Refuses a policy or profile that names what there is not, or that contradicts itself.
    pub(crate) fn new(
        meeting: &Meeting,
        rank: u32,
        layout: Layout,
        policy: &Policy,
        profile: Option<&Profile>,
    ) -> Result<Self, Error> {
        let ranks = meeting.members.len() as u32;
        let hosts: Vec<u32> = meeting.members.iter().map(|member| member.host).collect();
        let topology = topology(policy, &hosts)?;
        let setting = Setting {
            ranks,
            reach: reach(meeting, &topology),
            uneven: uneven(&topology),
            reproducible: policy.reproducible,
        };
        let mut chooser = Chooser {
            site: Site {
                rank,
                ranks,
                topology,
            },
            setting,
            layout,
            policy: policy.clone(),
            table: profile.map(|p| p.table.clone()).unwrap_or_default(),
            ways: Vec::new(),
            names: Vec::new(),
            own: Vec::new(),
            lines: vec![None; 4 * COLLECTIVES.len()],
        };
        let source = profile.map_or("", |profile| &profile.source);
        chooser.check_policy()?;
        chooser
            .check_table()
            .map_err(|why| Error::Config(format!("{source}: {why}")))?;
        Ok(chooser)
    }

    fn check_policy(&mut self) -> Result<(), Error> {
        for (collective, name) in self.policy.algorithms.clone() {
            let collective = known_collective(&collective).map_err(Error::Config)?;
            let way = self.way(collective, &name, Tiling::default())?;
            let kind = Kind {
                symmetric: true,
                per_rank: false,
            };
            if let (true, Some(why)) = (
                self.setting.reproducible,
                self.ways[way as usize].refusal(self.setting, kind),
            ) {
                return Err(self.refused(way, why));
            }
        }
        Ok(())
    }

    fn check_table(&mut self) -> Result<(), Error> {
        for (collective, rows) in self.table.clone() {
            let collective = known_collective(&collective).map_err(Error::Config)?;
            for row in &rows {
                row.tiling.check()?;
                self.way(collective, &row.algorithm, row.tiling)?;
            }
            let limits: Vec<u64> = rows.iter().map(limit).collect();
            if !limits.windows(2).all(|pair| pair[0] < pair[1]) {
                return Err(Error::Config(format!(
                    "the rows for {collective} end at {limits:?} bytes: they must ascend"
                )));
            }
        }
        Ok(())
    }

    /// The plan for a call. `symmetric`: whether all ranks passed the same symmetric memory.
    pub(crate) fn choose(&mut self, call: &Call, symmetric: bool) -> Result<PlanKey, Error> {
        let collective = collective_name(call.collective);
        let symmetric = symmetric && self.setting.mapped();
        let kind = Kind {
            symmetric,
            per_rank: !matches!(call.counts, Counts::Equal(_)),
        };
        let bytes = call.message_elements(self.site.ranks) * call.dtype.size() as u64;
        let way = match &call.algorithm {
            Some(name) => {
                call.tiling.check()?;
                let way = self.way(collective, name, call.tiling)?;
                match self.ways[way as usize].refusal(self.setting, kind) {
                    Some(why) => return Err(self.refused(way, why)),
                    None => way,
                }
            }
            None => {
                let size = if kind.per_rank { u64::MAX } else { bytes };
                let way = self.line(call.collective, kind, size)?.way;
                self.retiled(way, call.tiling)?
            }
        };
        let symmetric = symmetric && bytes > SMALL_BYTES;
        Ok(PlanKey {
            way,
            root: crate::call::root(call.collective).unwrap_or(0),
            symmetric,
            per_rank: kind.per_rank,
            short: self.ways[way as usize].short(symmetric),
        })
    }

    /// The same way with the tiling that a call asks for.
    fn retiled(&mut self, way: u32, tiling: Tiling) -> Result<u32, Error> {
        if tiling == Tiling::default() {
            return Ok(way);
        }
        tiling.check()?;
        let (collective, name) = {
            let way = &self.ways[way as usize];
            (way.collective, way.name.clone())
        };
        self.way(collective, &name, tiling)
    }

    /// Whether a call would run differently on symmetric memory.
    pub(crate) fn gains_from_symmetric_memory(&mut self, call: &Call) -> bool {
        let with = |chooser: &mut Self, symmetric| chooser.choose(call, symmetric).ok();
        let (ordinary, symmetric) = (with(self, false), with(self, true));
        ordinary.is_some() && symmetric.is_some() && ordinary != symmetric
    }

    pub(crate) fn way_of(&self, key: PlanKey) -> &Way {
        self.way_at(key.way)
    }

    pub(crate) fn way_at(&self, way: u32) -> &Way {
        &self.ways[way as usize]
    }

    /// The line for a message of this size.
    pub(crate) fn line(
        &mut self,
        collective: Collective,
        kind: Kind,
        bytes: u64,
    ) -> Result<Line, Error> {
        let index = 4 * collective_index(collective) as usize
            + 2 * usize::from(kind.symmetric)
            + usize::from(kind.per_rank);
        if self.lines[index].is_none() {
            self.lines[index] = Some(self.draw_lines(collective, kind)?);
        }
        let lines = self.lines[index].as_deref().unwrap_or_default();
        let line = lines.iter().find(|line| bytes <= line.up_to);
        line.copied()
            .ok_or_else(|| Error::Internal("a table without a last line".into()))
    }

    /// What runs by what, for one collective and kind of call.
    fn draw_lines(&mut self, collective: Collective, kind: Kind) -> Result<Vec<Line>, Error> {
        let name = collective_name(collective);
        if let Some(forced) = self.policy.algorithms.get(name).cloned() {
            let way = self.way(name, &forced, Tiling::default())?;
            if let Some(why) = self.ways[way as usize].refusal(self.setting, kind) {
                return Err(self.refused(way, why));
            }
            let (up_to, origin) = (u64::MAX, Origin::Policy);
            return Ok(vec![Line { up_to, way, origin }]);
        }
        let defaults = self.default_lines(collective, kind)?;
        let measured = self.profile_lines(collective, kind)?;
        let mut ends: Vec<u64> = defaults.iter().chain(&measured).map(|l| l.up_to).collect();
        ends.sort_unstable();
        ends.dedup();
        let find = |lines: &[Line], up_to| lines.iter().find(|line| up_to <= line.up_to).copied();
        let merged = ends.into_iter().filter_map(|up_to| {
            let line = find(&measured, up_to)
                .filter(|line| line.way != NO_WAY)
                .or(find(&defaults, up_to))?;
            Some(Line { up_to, ..line })
        });
        Ok(merged.collect())
    }

    fn default_lines(&mut self, collective: Collective, kind: Kind) -> Result<Vec<Line>, Error> {
        let name = collective_name(collective);
        let mut lines = Vec::new();
        for (up_to, candidates) in preferences(name, self.setting) {
            let usable = |chooser: &mut Self, candidate: &&str| {
                let way = chooser.way(name, candidate, Tiling::default()).ok()?;
                chooser.usable(way, collective, kind).then_some(way)
            };
            let mut way = candidates.iter().find_map(|c| usable(self, c));
            // Whatever is there is better than nothing.
            if way.is_none() {
                let family = self.family(name);
                way = family.iter().find_map(|c| usable(self, &c.name().as_str()));
            }
            let Some(way) = way else {
                return Err(Error::Unsupported(format!(
                    "no algorithm for {name} fits this group"
                )));
            };
            let origin = Origin::Defaults;
            lines.push(Line { up_to, way, origin });
        }
        Ok(lines)
    }

    /// The profile's rows; [`NO_WAY`] where a row cannot be used for this kind of call.
    fn profile_lines(&mut self, collective: Collective, kind: Kind) -> Result<Vec<Line>, Error> {
        let name = collective_name(collective);
        let rows = self.table.get(name).cloned().unwrap_or_default();
        let mut lines = Vec::new();
        for row in rows {
            let way = self.way(name, &row.algorithm, row.tiling)?;
            let usable = self.usable(way, collective, kind);
            lines.push(Line {
                up_to: limit(&row),
                way: if usable { way } else { NO_WAY },
                origin: Origin::Profile,
            });
        }
        Ok(lines)
    }

    fn usable(&self, way: u32, collective: Collective, kind: Kind) -> bool {
        let way = &self.ways[way as usize];
        way.refusal(self.setting, kind).is_none() && self.fits(way, collective, kind)
    }

    /// Whether the temporary memory of a single element per chunk fits into a slot.
    pub(crate) fn fits(&self, way: &Way, collective: Collective, kind: Kind) -> bool {
        let schedule = way.schedule(&self.site, collective, kind.symmetric, kind.per_rank);
        schedule.is_ok_and(|schedule| fits(&schedule, self.layout))
    }

    /// The way of this name, with this tiling.
    pub(crate) fn way(
        &mut self,
        collective: &'static str,
        text: &str,
        tiling: Tiling,
    ) -> Result<u32, Error> {
        let known = self.names.iter().find(|name| {
            name.collective == collective && name.tiling == tiling && name.text == text
        });
        if let Some(known) = known {
            return Ok(known.way);
        }
        let own =
            |own: &&Arc<Own>| collective_name(own.collective) == collective && own.name == text;
        let way = match self.own.iter().find(own) {
            Some(own) => Way::own(own.clone(), tiling),
            None => {
                let selection = select(collective, text);
                Way::family(
                    collective,
                    selection.map_err(|why| Error::Config(self.with_own(collective, why)))?,
                    tiling,
                )
            }
        };
        let same = |known: &Way| {
            known.collective == collective && known.name == way.name && known.tiling == tiling
        };
        let position = self.ways.iter().position(same).unwrap_or_else(|| {
            self.ways.push(way);
            self.ways.len() - 1
        }) as u32;
        self.names.push(Name {
            collective,
            text: text.into(),
            tiling,
            way: position,
        });
        Ok(position)
    }

    /// An unknown name's message, with the users' own schedules.
    fn with_own(&self, collective: &str, why: String) -> String {
        let own: Vec<&str> = (self.own.iter())
            .filter(|own| collective_name(own.collective) == collective)
            .map(|own| own.name.as_str())
            .collect();
        match own.is_empty() {
            true => why,
            false => format!("{why}; and schedules of your own: {}", own.join(", ")),
        }
    }

    fn refused(&self, way: u32, why: &str) -> Error {
        let way = &self.ways[way as usize];
        let able = match self.setting.reproducible && !way.requires.reproducible {
            true => format!(
                ", which reproducible=True asks for; it is honoured by: {}",
                self.reproducible(way.collective).join(", ")
            ),
            false => String::new(),
        };
        Error::Config(format!(
            "algorithm {:?} for {} {why}{able}",
            way.name, way.collective
        ))
    }

    fn reproducible(&self, collective: &str) -> Vec<String> {
        let family = self.family(collective);
        let able = family.iter().filter(|c| c.requires().reproducible);
        able.map(Selection::name).collect()
    }

    pub(crate) fn family(&self, collective: &str) -> Vec<Selection> {
        family(collective, &self.site.topology)
    }

    /// The name of the plan that a fingerprint of another rank tells of, as far as this rank can know it.
    pub(crate) fn name_of(&self, collective: &'static str, short: u16) -> Option<String> {
        let family = self.family(collective).into_iter();
        let standard = family.map(|s| Way::family(collective, s, Tiling::default()));
        let ours = (self.ways.iter()).filter(|way| way.collective == collective);
        let mut candidates = ours.cloned().chain(standard);
        let means = |way: &Way| [false, true].into_iter().any(|s| way.short(s) == short);
        candidates.find(means).map(|way| way.name)
    }

    /// The user's schedules of this name, for this collective and root.
    pub(crate) fn add_own(&mut self, own: Arc<Own>) -> Result<(), Error> {
        let collective = collective_name(own.collective);
        let taken = (self.own.iter())
            .any(|known| collective_name(known.collective) == collective && known.name == own.name);
        if taken || select(collective, &own.name).is_ok() {
            return Err(Error::Config(format!(
                "the name {:?} is taken for {collective}: choose another one",
                own.name
            )));
        }
        self.own.push(own);
        Ok(())
    }

    pub(crate) fn own(&self) -> &[Arc<Own>] {
        &self.own
    }
}

/// Stands for a row of a profile that cannot be used.
const NO_WAY: u32 = u32::MAX;

fn limit(row: &Row) -> u64 {
    row.up_to_bytes.unwrap_or(u64::MAX)
}

/// The collective of this name.
pub(crate) fn known_collective(name: &str) -> Result<&'static str, String> {
    let known = COLLECTIVES.iter().find(|known| **known == name);
    known.copied().ok_or_else(|| {
        format!(
            "there is no collective {name:?}; there are: {}",
            COLLECTIVES.join(", ")
        )
    })
}

/// The levels that the user has told, else the hosts.
fn topology(policy: &Policy, hosts: &[u32]) -> Result<Topology, Error> {
    if policy.levels.is_empty() {
        return Ok(match hosts.iter().all(|host| *host == hosts[0]) {
            true => Topology::flat(hosts.len() as u32),
            false => Topology::hosts(hosts),
        });
    }
    let ranks = policy.levels[0].len();
    if ranks != hosts.len() {
        return Err(Error::Config(format!(
            "topology: level 0 names {ranks} ranks, but the group has {}",
            hosts.len()
        )));
    }
    Topology::levels(policy.levels.clone()).map_err(Error::Config)
}

/// What ranks map of each other.
fn reach(meeting: &Meeting, topology: &Topology) -> Reach {
    let ranks = meeting.members.len() as u32;
    let joined = |a: u32, b: u32| a == b || shares_memory(meeting.kind(a, b));
    if (1..ranks).all(|rank| joined(0, rank)) {
        return Reach::All;
    }
    let within =
        topology.depth() > 0 && (0..ranks).all(|rank| joined(topology.unit_of(0, rank), rank));
    match within {
        true => Reach::Unit,
        false => Reach::None,
    }
}

/// Whether there are several innermost units, and several ranks in one of them.
fn uneven(topology: &Topology) -> bool {
    if topology.depth() == 0 {
        return false;
    }
    let units = topology.units(0);
    units.len() > 1 && units.iter().any(|unit| unit.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every setting that a group can be in.
    fn settings() -> Vec<Setting> {
        let mut settings = Vec::new();
        for ranks in [1, 2, 9, 40] {
            for reach in [Reach::None, Reach::Unit, Reach::All] {
                for (uneven, reproducible) in
                    [(false, false), (true, false), (false, true), (true, true)]
                {
                    settings.push(Setting {
                        ranks,
                        reach,
                        uneven,
                        reproducible,
                    });
                }
            }
        }
        settings
    }

    #[test]
    fn defaults_name_what_there_is_and_have_no_gap() {
        for setting in settings() {
            for collective in COLLECTIVES {
                let preferences = preferences(collective, setting);
                let limits: Vec<u64> = preferences.iter().map(|(up_to, _)| *up_to).collect();
                assert!(limits.windows(2).all(|pair| pair[0] < pair[1]));
                assert_eq!(limits.last(), Some(&u64::MAX));
                for name in preferences.iter().flat_map(|(_, names)| *names) {
                    select(collective, name).unwrap();
                }
            }
        }
    }

    #[test]
    fn defaults_have_an_algorithm_for_every_call() {
        for setting in settings() {
            for collective in COLLECTIVES {
                for (_, names) in preferences(collective, setting) {
                    let usable = |name: &&str| {
                        let selection = select(collective, name).unwrap();
                        let way = Way::family(collective, selection, Tiling::default());
                        let kind = Kind {
                            symmetric: false,
                            per_rank: false,
                        };
                        way.refusal(setting, kind).is_none()
                    };
                    assert!(
                        names.iter().any(usable),
                        "{collective} {names:?} {setting:?}"
                    );
                }
            }
        }
    }
}
