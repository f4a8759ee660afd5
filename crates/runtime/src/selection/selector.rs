//! Algorithm selection: per-call override, group policy, profile, defaults.

use std::collections::HashMap;
use std::sync::Arc;

use weft_algorithms::{Memory, Refusal, Selection, family};
use weft_schedule::Collective;

use super::calling_thread::ProgramTables;
use super::candidates::{Kind, Way};
use super::catalog::Catalog;
use super::decision::{Decision, DecisionKey, agreement_call};
use super::policy::{check_tiling, suitable};
use super::size_table::Line;
use super::traits::{Setting, Site};
use super::user_schedules::Own;
use crate::Error;
use crate::bootstrap::{Meeting, Policy, Profile, Row, Table};
use crate::call::{Call, Counts, Tiling, knows_all_counts};
use crate::channel::{INLINE_RANKS, Layout};
use crate::program::{Plan, Program};

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
    /// Whether this rank reaches each rank's memory.
    mapped: Vec<bool>,
    plans: HashMap<(u32, Collective, Memory, bool), Arc<Plan>>,
    decisions: HashMap<DecisionKey, Arc<Decision>>,
    /// What the calling thread runs by, where all ranks map each other's memory.
    pub(crate) calling_thread: Option<Arc<ProgramTables>>,
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
            mapped: (0..setting.ranks)
                .map(|other| meeting.maps(rank, other))
                .collect(),
            plans: HashMap::new(),
            decisions: HashMap::new(),
            calling_thread: (setting.mapped()
                && (2..=INLINE_RANKS as u32).contains(&setting.ranks))
            .then(|| Arc::new(ProgramTables::new(setting.ranks))),
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

    /// Replaces the name of an algorithm by the one that the catalog has.
    pub(crate) fn settle_name(
        &mut self,
        collective: Collective,
        name: &mut String,
    ) -> Result<(), Error> {
        let way = self
            .catalog
            .way(collective.name(), name, Tiling::default())?;
        name.clone_from(&self.catalog.at(way).name);
        Ok(())
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
                memory: Memory::Symmetric,
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
                check_tiling(row.tiling)?;
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

    /// The candidate that a call takes on memory of this class, and the class that it then uses.
    pub(super) fn candidate(
        &mut self,
        call: &Call,
        memory: Memory,
    ) -> Result<(u32, Memory), Error> {
        let collective = call.collective.name();
        let memory = match self.setting.mapped() {
            true => memory,
            false => Memory::Ordinary,
        };
        let kind = Kind {
            memory,
            per_rank: !matches!(call.counts, Counts::Equal(_)),
        };
        let bytes = call.message_elements(self.site.ranks) * call.dtype.size() as u64;
        let way = match &call.algorithm {
            Some(name) => {
                check_tiling(call.tiling)?;
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
        let memory = match self.catalog.at(way).takes_symmetric(bytes) {
            true => memory,
            false => Memory::Ordinary,
        };
        Ok((way, memory))
    }

    /// What a call runs by. `symmetric_made`: whether the group has symmetric memory at all.
    ///
    /// Depends on values that all ranks have alike, and so do its errors, but for those about names that
    /// this rank does not know. Decided once per distinct candidate; also compiles what the calling
    /// thread may run the call by.
    pub(crate) fn decide(
        &mut self,
        call: &Call,
        symmetric_made: bool,
    ) -> Result<Arc<Decision>, Error> {
        let equal = matches!(call.counts, Counts::Equal(_));
        let ordinary = self.candidate(call, Memory::Ordinary);
        // Symmetric memory matters where another candidate or another schedule runs on it.
        let symmetric = match symmetric_made && equal && self.site.ranks > 1 {
            true => self.candidate(call, Memory::Symmetric).ok(),
            false => None,
        };
        let symmetric = symmetric.filter(|chosen| ordinary.as_ref().ok() != Some(chosen));
        if symmetric.is_none() {
            ordinary.clone()?;
        }
        if let Some(tables) = self.calling_thread.clone() {
            tables.prepare(call, self);
        }
        let key = DecisionKey {
            collective: call.collective,
            per_rank: !equal,
            ordinary: ordinary.as_ref().ok().copied(),
            symmetric,
        };
        if let Some(decision) = self.decisions.get(&key) {
            return Ok(decision.clone());
        }
        let per_rank = key.per_rank;
        let mut plan = |(way, memory)| self.plan(way, call.collective, memory, per_rank);
        let decision = Arc::new(Decision {
            ordinary: ordinary.and_then(&mut plan),
            symmetric: symmetric.map(&mut plan).transpose()?,
            agreement: match self.needs_agreement(call, symmetric.is_some()) {
                true => Some(self.agreement_plan()?),
                false => None,
            },
        });
        self.decisions.insert(key, decision.clone());
        Ok(decision)
    }

    /// Whether ranks must first agree on something that only one of them knows: see
    /// `execution/operation.rs`.
    fn needs_agreement(&self, call: &Call, may_be_symmetric: bool) -> bool {
        self.site.ranks > 1
            && match &call.counts {
                Counts::PerPair { .. } => true,
                Counts::PerRank(_) => !knows_all_counts(call.collective),
                Counts::Equal(_) => may_be_symmetric,
            }
    }

    /// The plan of the small all-reduce that goes before another call, which is not the user's: it runs by
    /// default where what the policy allows needs symmetric memory.
    fn agreement_plan(&mut self) -> Result<Arc<Plan>, Error> {
        let call = agreement_call(std::ptr::null_mut(), 0, None);
        if let Some(tables) = self.calling_thread.clone() {
            tables.prepare(&call, self);
        }
        let way = match self.candidate(&call, Memory::Ordinary) {
            Ok((way, _)) => way,
            Err(_) => {
                let kind = Kind {
                    memory: Memory::Ordinary,
                    per_rank: false,
                };
                self.default_lines(call.collective, kind)?[0].way
            }
        };
        self.plan(way, call.collective, Memory::Ordinary, false)
    }

    /// The plan of a candidate, compiled at most once.
    pub(super) fn plan(
        &mut self,
        way: u32,
        collective: Collective,
        memory: Memory,
        per_rank: bool,
    ) -> Result<Arc<Plan>, Error> {
        let key = (way, collective, memory, per_rank);
        if let Some(plan) = self.plans.get(&key) {
            return Ok(plan.clone());
        }
        let candidate = self.catalog.at(way);
        let schedule = candidate.schedule(&self.site, collective, Kind { memory, per_rank })?;
        let plan = Arc::new(Plan {
            program: Program::compile(&schedule, &|rank| self.mapped[rank as usize])?,
            memory,
            short: candidate.short(memory),
            tile_bytes: candidate.tiling.tile_bytes,
            tiles_in_flight: candidate.tiles_in_flight(),
        });
        self.plans.insert(key, plan.clone());
        Ok(plan)
    }

    /// The same way with the tiling that a call asks for.
    fn retiled(&mut self, way: u32, tiling: Tiling) -> Result<u32, Error> {
        if tiling == Tiling::default() {
            return Ok(way);
        }
        check_tiling(tiling)?;
        let (collective, name) = {
            let way = self.catalog.at(way);
            (way.collective, way.name.clone())
        };
        self.catalog.way(collective, &name, tiling)
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
        let classes = [Memory::Ordinary, Memory::Symmetric];
        let means = |way: &Way| classes.iter().any(|memory| way.short(*memory) == short);
        candidates.find(means).map(|way| way.name)
    }
}

/// The collective of this name.
pub(crate) fn known_collective(name: &str) -> Result<&'static str, String> {
    let known = Collective::NAMES.iter().find(|known| **known == name);
    known.copied().ok_or_else(|| {
        format!(
            "there is no collective {name:?}; there are: {}",
            Collective::NAMES.join(", ")
        )
    })
}
