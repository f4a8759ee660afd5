//! Which way a call takes: what the call says, else the group's policy, else a profile's table, else the built-in defaults.

use std::collections::HashMap;

use weft_algorithms::{Refusal, Selection, family};
use weft_schedule::Collective;

use crate::Error;
use crate::call::{COLLECTIVES, Call, Counts};
use crate::catalog::Catalog;
use crate::channel::Layout;
use crate::lines::Line;
use crate::own::Own;
use crate::plan::PlanKey;
use crate::policy::{Policy, Profile, Row, Table, Tiling, suitable};
use crate::rendezvous::Meeting;
use crate::setting::{Setting, Site};
use crate::ways::{Kind, Way};

/// Chooses for one group. Depends only on what all ranks know alike, and so do its answers.
pub(crate) struct Chooser {
    pub(crate) site: Site,
    pub(crate) setting: Setting,
    pub(crate) layout: Layout,
    pub(crate) policy: Policy,
    pub(crate) table: Table,
    pub(crate) catalog: Catalog,
    /// Once looked up: ascending, the last without a limit.
    pub(crate) lines: HashMap<(Collective, Kind), Vec<Line>>,
}

impl Chooser {
    /// For a group that has met. Refuses a policy or profile that names what there is not, or that contradicts itself.
    pub(crate) fn new(
        meeting: &Meeting,
        rank: u32,
        layout: Layout,
        policy: &Policy,
    ) -> Result<Self, Error> {
        let (topology, setting) = Setting::of(meeting, policy)?;
        let site = Site {
            rank,
            ranks: setting.ranks,
            topology,
        };
        let profile = suitable(&meeting.profiles, meeting, &site.domains())?;
        let mut chooser = Chooser {
            catalog: Catalog::new(site.topology.clone()),
            site,
            setting,
            layout,
            policy: policy.clone(),
            table: Table::new(),
            lines: HashMap::new(),
        };
        for (name, text) in &policy.schedules {
            let own = Own::read(name, text, meeting)?;
            chooser.catalog.add_own(own)?;
        }
        chooser.check_policy()?;
        if let Some((profile, own)) = profile {
            let added = chooser.add_profile(profile, own);
            added.map_err(|why| Error::Config(format!("{}: {why}", profile.source)))?;
        }
        Ok(chooser)
    }

    fn add_profile(&mut self, profile: &Profile, own: Vec<Own>) -> Result<(), Error> {
        for own in own {
            self.catalog.add_own(own)?;
        }
        self.table = profile.table.clone();
        self.check_table()
    }

    fn check_policy(&mut self) -> Result<(), Error> {
        for (collective, name) in self.policy.algorithms.clone() {
            let collective = known_collective(&collective).map_err(Error::Config)?;
            let way = self.catalog.way(collective, &name, Tiling::default())?;
            let kind = Kind {
                symmetric: true,
                per_rank: false,
            };
            if let (true, Some(why)) = (
                self.setting.reproducible,
                self.catalog.at(way).refusal(self.setting, kind),
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
                self.catalog.way(collective, &row.algorithm, row.tiling)?;
            }
            let limits: Vec<u64> = rows.iter().map(Row::limit).collect();
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
        let collective = call.collective.name();
        let symmetric = symmetric && self.setting.mapped();
        let kind = Kind {
            symmetric,
            per_rank: !matches!(call.counts, Counts::Equal(_)),
        };
        let bytes = call.message_elements(self.site.ranks) * call.dtype.size() as u64;
        let way = match &call.algorithm {
            Some(name) => {
                call.tiling.check()?;
                let way = self.catalog.way(collective, name, call.tiling)?;
                match self.catalog.at(way).refusal(self.setting, kind) {
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
        let symmetric = symmetric && self.catalog.at(way).takes_symmetric(bytes);
        Ok(self.key(way, call, symmetric))
    }

    /// The plan for the small call on ordinary memory that goes before another one, which is not the user's: it runs
    /// by default where what the policy allows needs symmetric memory.
    pub(crate) fn choose_agreement(&mut self, call: &Call) -> Result<PlanKey, Error> {
        self.choose(call, false).or_else(|_| {
            let kind = Kind {
                symmetric: false,
                per_rank: false,
            };
            let lines = self.default_lines(call.collective, kind)?;
            Ok(self.key(lines[0].way, call, false))
        })
    }

    fn key(&self, way: u32, call: &Call, symmetric: bool) -> PlanKey {
        PlanKey {
            way,
            root: call.collective.root().unwrap_or(0),
            symmetric,
            per_rank: !matches!(call.counts, Counts::Equal(_)),
            short: self.catalog.at(way).short(symmetric),
        }
    }

    /// The same way with the tiling that a call asks for.
    fn retiled(&mut self, way: u32, tiling: Tiling) -> Result<u32, Error> {
        if tiling == Tiling::default() {
            return Ok(way);
        }
        tiling.check()?;
        let (collective, name) = {
            let way = self.catalog.at(way);
            (way.collective, way.name.clone())
        };
        self.catalog.way(collective, &name, tiling)
    }

    /// Whether a call would run differently on symmetric memory.
    pub(crate) fn gains_from_symmetric_memory(&mut self, call: &Call) -> bool {
        let with = |chooser: &mut Self, symmetric| chooser.choose(call, symmetric).ok();
        let (ordinary, symmetric) = (with(self, false), with(self, true));
        symmetric.is_some() && ordinary != symmetric
    }

    pub(crate) fn refused(&self, way: u32, why: Refusal) -> Error {
        let way = self.catalog.at(way);
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
        let own = self
            .catalog
            .own()
            .iter()
            .filter(|own| own.requires.reproducible && own.collective.name() == collective);
        let own = own.map(|own| own.name.clone());
        able.map(Selection::name).chain(own).collect()
    }

    pub(crate) fn family(&self, collective: &str) -> Vec<Selection> {
        family(collective, &self.site.topology)
    }

    /// The name of the plan that a fingerprint of another rank tells of, as far as this rank can know it.
    pub(crate) fn name_of(&self, collective: &'static str, short: u16) -> Option<String> {
        let family = self.family(collective).into_iter();
        let standard =
            family.map(|s| Way::family(collective, s, Tiling::default(), &self.site.topology));
        let ours = (self.catalog.ways().iter()).filter(|way| way.collective == collective);
        let mut candidates = ours.cloned().chain(standard);
        let means = |way: &Way| [false, true].into_iter().any(|s| way.short(s) == short);
        candidates.find(means).map(|way| way.name)
    }
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
