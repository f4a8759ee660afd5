//! Algorithm selection: per-call override, group policy, profile, defaults.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_algorithms::{MemoryClass, Refusal, Selection, family};
use weft_bootstrap::{Meeting, Policy, Profile, ProfileRow, ProfileTable};
use weft_call::{Call, Counts, Tiling};
use weft_channel::{ChannelLayout, INLINE_RANKS};
use weft_program::{Plan, Program};
use weft_schedule::{Collective, WireFormat};

use super::calling_thread::ProgramTables;
use super::candidates::{CallKind, Candidate};
use super::catalog::Catalog;
use super::decision::{Decision, DecisionKey, agreement_call};
use super::policy::{check_tiling, suitable};
use super::size_table::SizeRow;
use super::traits::{GroupTraits, Site};
use super::user_schedules::UserSchedule;
use crate::Error;

/// The choice of algorithms for one group. Depends only on values that are the same on all ranks.
/// Its maps have a few entries, and are asked for every call: comparing is faster than hashing.
pub(crate) struct Selector {
    pub(crate) site: Site,
    pub(crate) traits: GroupTraits,
    pub(crate) layout: ChannelLayout,
    pub(crate) policy: Policy,
    pub(crate) table: ProfileTable,
    pub(crate) catalog: Catalog,
    /// The lines, once looked up: ascending, the last without a limit.
    pub(crate) lines: BTreeMap<(Collective, CallKind), Vec<SizeRow>>,
    /// Whether this rank maps each rank's memory.
    mapped: Vec<bool>,
    plans: BTreeMap<(u32, Collective, CallKind), Arc<Plan>>,
    decisions: BTreeMap<DecisionKey, Arc<Decision>>,
    /// The programs for the calling thread, if all ranks map each other's memory.
    pub(crate) calling_thread: Option<Arc<ProgramTables>>,
}

impl Selector {
    /// A selector for a group that has met. Rejects a policy or profile with unknown names or
    /// contradictions.
    pub(crate) fn new(
        meeting: &Meeting,
        rank: u32,
        layout: ChannelLayout,
        policy: &Policy,
    ) -> Result<Self, Error> {
        let (topology, traits) = GroupTraits::of(meeting, policy)?;
        let site = Site {
            rank,
            ranks: traits.ranks,
            topology,
        };
        let profile = suitable(&meeting.profiles, meeting, &site.domains())?;
        let mut selector = Selector {
            catalog: Catalog::new(site.topology.clone()),
            site,
            traits,
            layout,
            policy: policy.clone(),
            table: ProfileTable::new(),
            lines: BTreeMap::new(),
            mapped: (0..traits.ranks)
                .map(|other| meeting.maps(rank, other))
                .collect(),
            plans: BTreeMap::new(),
            decisions: BTreeMap::new(),
            calling_thread: (traits.mapped() && (2..=INLINE_RANKS as u32).contains(&traits.ranks))
                .then(|| Arc::new(ProgramTables::new(traits.ranks))),
        };
        for (name, text) in &policy.schedules {
            let schedule = UserSchedule::read(name, text, meeting)?;
            selector.catalog.add_user_schedule(schedule)?;
        }
        selector.check_policy()?;
        if let Some((profile, user_schedules)) = profile {
            let added = selector.add_profile(profile, user_schedules);
            added.map_err(|why| Error::Config(format!("{}: {why}", profile.source)))?;
        }
        Ok(selector)
    }

    /// Replaces the name of an algorithm by the catalog's spelling.
    pub(crate) fn normalize_name(
        &mut self,
        collective: Collective,
        name: &mut String,
    ) -> Result<(), Error> {
        let candidate = self
            .catalog
            .candidate(collective.name(), name, Tiling::default())?;
        name.clone_from(&self.catalog.at(candidate).name);
        Ok(())
    }

    fn add_profile(
        &mut self,
        profile: &Profile,
        user_schedules: Vec<UserSchedule>,
    ) -> Result<(), Error> {
        for schedule in user_schedules {
            self.catalog.add_user_schedule(schedule)?;
        }
        self.table = profile.table.clone();
        self.check_table()
    }

    fn check_policy(&mut self) -> Result<(), Error> {
        self.check_reproducible(self.policy.wire)?;
        for (collective, name) in self.policy.algorithms.clone() {
            let collective = known_collective(&collective).map_err(Error::Config)?;
            let candidate = self
                .catalog
                .candidate(collective, &name, Tiling::default())?;
            let kind = CallKind {
                memory: MemoryClass::Symmetric,
                per_rank: false,
                wire: WireFormat::Full,
            };
            if let (true, Some(why)) = (
                self.traits.reproducible,
                self.catalog.at(candidate).refusal(self.traits, kind),
            ) {
                return Err(self.refused(candidate, why));
            }
        }
        Ok(())
    }

    fn check_table(&mut self) -> Result<(), Error> {
        for (collective, rows) in self.table.clone() {
            let collective = known_collective(&collective).map_err(Error::Config)?;
            for row in &rows {
                check_tiling(row.tiling, self.layout)?;
                self.catalog
                    .candidate(collective, &row.algorithm, row.tiling)?;
            }
            let limits: Vec<u64> = rows.iter().map(ProfileRow::limit).collect();
            if !limits.windows(2).all(|pair| pair[0] < pair[1]) {
                return Err(Error::Config(format!(
                    "the rows for {collective} end at {limits:?} bytes: they must ascend"
                )));
            }
        }
        Ok(())
    }

    /// The candidate for a call on memory of this class, and the class that it then uses.
    pub(super) fn candidate(
        &mut self,
        call: &Call,
        memory: MemoryClass,
    ) -> Result<(u32, MemoryClass), Error> {
        let collective = call.collective.name();
        let memory = match self.traits.mapped() {
            true => memory,
            false => MemoryClass::Ordinary,
        };
        let kind = CallKind {
            memory,
            per_rank: !matches!(call.counts, Counts::Equal(_)),
            wire: self.wire(call)?,
        };
        let bytes = call.message_bytes(self.site.ranks);
        let candidate = match &call.algorithm {
            Some(name) => {
                check_tiling(call.tiling, self.layout)?;
                let candidate = self.catalog.candidate(collective, name, call.tiling)?;
                match self.catalog.at(candidate).refusal(self.traits, kind) {
                    Some(why) => return Err(self.refused(candidate, why)),
                    None => candidate,
                }
            }
            None => {
                let size = if kind.per_rank { u64::MAX } else { bytes };
                let candidate = self.line(call.collective, kind, size)?.candidate;
                self.retiled(candidate, call.tiling)?
            }
        };
        let chosen = self.catalog.at(candidate);
        if !chosen.takes(call.dtype) {
            return Err(Error::Config(format!(
                "the schedule {:?} converts elements to encodings that are not for {}",
                chosen.name, call.dtype
            )));
        }
        let memory = match chosen.takes_symmetric(bytes) {
            true => memory,
            false => MemoryClass::Ordinary,
        };
        Ok((candidate, memory))
    }

    /// The wire format of a call: `Full` if all ranks share memory.
    pub(super) fn wire(&self, call: &Call) -> Result<WireFormat, Error> {
        let wire = call.wire.unwrap_or_default();
        self.check_reproducible(wire)?;
        Ok(match self.traits.mapped() {
            true => WireFormat::Full,
            false => wire,
        })
    }

    /// Rejects a format with which sums would depend on the placement of ranks.
    fn check_reproducible(&self, wire: WireFormat) -> Result<(), Error> {
        match self.traits.reproducible && wire != WireFormat::Full {
            true => Err(Error::Config(format!(
                "wire=\"{wire}\": with reproducible=True everything travels in full precision"
            ))),
            false => Ok(()),
        }
    }

    /// Decides the plans of a call. `symmetric_made`: whether the group has any symmetric memory.
    ///
    /// Result and errors depend only on values that are the same on all ranks, except for errors
    /// about names that this rank does not know. Decides once per distinct candidate; also compiles
    /// the call's programs for the calling thread.
    pub(crate) fn decide(
        &mut self,
        call: &Call,
        symmetric_made: bool,
    ) -> Result<Arc<Decision>, Error> {
        let equal = matches!(call.counts, Counts::Equal(_));
        let ordinary = self.candidate(call, MemoryClass::Ordinary);
        // Symmetric memory matters where another candidate or another schedule runs on it.
        let symmetric = match symmetric_made && call.knows_all_blocks() && self.site.ranks > 1 {
            true => self.candidate(call, MemoryClass::Symmetric).ok(),
            false => None,
        };
        let symmetric = symmetric.filter(|chosen| ordinary.as_ref().ok() != Some(chosen));
        if symmetric.is_none() {
            ordinary.clone()?;
        }
        self.prepare_calling_thread(call);
        let key = DecisionKey {
            collective: call.collective,
            per_rank: !equal,
            ordinary: ordinary.as_ref().ok().copied(),
            symmetric,
            wire: self.wire(call)?,
        };
        let chosen = [key.ordinary, key.symmetric];
        if let Some(decision) = self.decisions.get(&key).cloned() {
            self.find_sums(call, chosen, key)?;
            return Ok(decision);
        }
        let DecisionKey { per_rank, wire, .. } = key;
        let mut plan = |(candidate, memory)| {
            let kind = CallKind {
                memory,
                per_rank,
                wire,
            };
            self.plan(candidate, call.collective, kind)
        };
        let decision = Arc::new(Decision {
            ordinary: ordinary.and_then(&mut plan),
            symmetric: symmetric.map(&mut plan).transpose()?,
            agreement: match self.needs_agreement(call, symmetric.is_some()) {
                true => Some(self.agreement_plan()?),
                false => None,
            },
        });
        self.decisions.insert(key, decision.clone());
        self.find_sums(call, chosen, key)?;
        Ok(decision)
    }

    /// Determines the sums in transit of the chosen plans, for averages of 16-bit floats: see
    /// [Note: Sums in transit] of the kernels. Two ranks have none.
    fn find_sums(
        &mut self,
        call: &Call,
        chosen: [Option<(u32, MemoryClass)>; 2],
        DecisionKey { per_rank, wire, .. }: DecisionKey,
    ) -> Result<(), Error> {
        if !call.averages_halves() || !call.collective.reduces() {
            return Ok(());
        }
        for (candidate, memory) in chosen.into_iter().flatten() {
            let kind = CallKind {
                memory,
                per_rank,
                wire,
            };
            let plan = self.plan(candidate, call.collective, kind)?;
            let candidate = self.catalog.at(candidate);
            plan.program
                .find_sums(|| candidate.schedules(&self.site, call.collective, kind))?;
        }
        Ok(())
    }

    /// Whether the ranks must first agree on a value that only one of them knows: see
    /// [Note: Agreement of values] in `execution/operation.rs`.
    fn needs_agreement(&self, call: &Call, may_be_symmetric: bool) -> bool {
        self.site.ranks > 1 && (may_be_symmetric || !call.knows_all_blocks())
    }

    /// The plan of the small all-reduce before another call. As it is not the user's, it runs by
    /// the default algorithm if the policy's needs symmetric memory.
    fn agreement_plan(&mut self) -> Result<Arc<Plan>, Error> {
        let call = agreement_call(std::ptr::null_mut(), 0, None);
        self.prepare_calling_thread(&call);
        let kind = CallKind {
            memory: MemoryClass::Ordinary,
            per_rank: false,
            wire: WireFormat::Full,
        };
        let candidate = match self.candidate(&call, MemoryClass::Ordinary) {
            Ok((candidate, _)) => candidate,
            Err(_) => self.default_lines(call.collective, kind)?[0].candidate,
        };
        self.plan(candidate, call.collective, kind)
    }

    /// The plan of a candidate, compiled at most once.
    pub(super) fn plan(
        &mut self,
        candidate: u32,
        collective: Collective,
        kind: CallKind,
    ) -> Result<Arc<Plan>, Error> {
        let key = (candidate, collective, kind);
        if let Some(plan) = self.plans.get(&key) {
            return Ok(plan.clone());
        }
        let candidate = self.catalog.at(candidate);
        let schedule = candidate.schedule(&self.site, collective, kind)?;
        let plan = Arc::new(Plan {
            program: Program::compile(&schedule, &|rank| self.mapped[rank as usize])?,
            memory: kind.memory,
            identity: candidate.plan(kind.memory, kind.wire),
            tile_bytes: candidate.tiling.tile_bytes,
            wire: kind.wire.encoding(),
            tiles_in_flight: candidate.tiles_in_flight(self.layout),
        });
        self.plans.insert(key, plan.clone());
        Ok(plan)
    }

    /// The same candidate with the tiling that a call requests.
    fn retiled(&mut self, candidate: u32, tiling: Tiling) -> Result<u32, Error> {
        if tiling == Tiling::default() {
            return Ok(candidate);
        }
        check_tiling(tiling, self.layout)?;
        let (collective, name) = {
            let candidate = self.catalog.at(candidate);
            (candidate.collective, candidate.name.clone())
        };
        self.catalog.candidate(collective, &name, tiling)
    }

    pub(crate) fn refused(&self, candidate: u32, why: Refusal) -> Error {
        let candidate = self.catalog.at(candidate);
        let able = match self.traits.reproducible && !candidate.requires.reproducible {
            true => format!(
                ", which reproducible=True requires; algorithms that support it: {}",
                self.reproducible(candidate.collective).join(", ")
            ),
            false => String::new(),
        };
        Error::Config(format!(
            "algorithm {:?} for {} {why}{able}",
            candidate.name, candidate.collective
        ))
    }

    fn reproducible(&self, collective: &str) -> Vec<String> {
        let family = self.family(collective);
        let able = family.iter().filter(|c| c.requires().reproducible);
        let user_schedules = self
            .catalog
            .user_schedules()
            .iter()
            .filter(|one| one.requires.reproducible && one.collective.name() == collective);
        let user_schedules = user_schedules.map(|one| one.name.clone());
        able.map(Selection::name).chain(user_schedules).collect()
    }

    pub(crate) fn family(&self, collective: &str) -> Vec<Selection> {
        family(collective, &self.site.topology)
    }

    /// The plans that were added since the last call: collectives, the plans' hashes in
    /// fingerprints, and their names.
    pub(crate) fn new_plans(&mut self) -> Vec<(&'static str, u64, String)> {
        let new = self.catalog.new_candidates().iter();
        let kinds = [MemoryClass::Ordinary, MemoryClass::Symmetric]
            .map(|memory| WireFormat::ALL.map(|wire| (memory, wire)));
        let plans = new.flat_map(|candidate| {
            kinds.as_flattened().iter().map(|(memory, wire)| {
                let plan = candidate.plan(*memory, *wire);
                (candidate.collective, plan, candidate.name.clone())
            })
        });
        plans.collect()
    }

    /// The name of the plan in another rank's fingerprint, if this rank can know it.
    pub(crate) fn name_of(&self, collective: &'static str, plan: u64) -> Option<String> {
        let family = self.family(collective).into_iter();
        let standard = family
            .map(|s| Candidate::family(collective, s, Tiling::default(), &self.site.topology));
        let ours = (self.catalog.candidates().iter())
            .filter(|candidate| candidate.collective == collective);
        let mut candidates = ours.cloned().chain(standard);
        let classes = [MemoryClass::Ordinary, MemoryClass::Symmetric];
        let kinds = classes.map(|memory| WireFormat::ALL.map(|wire| (memory, wire)));
        let means = |candidate: &Candidate| {
            let mut kinds = kinds.iter().flatten();
            kinds.any(|(memory, wire)| candidate.plan(*memory, *wire) == plan)
        };
        candidates.find(means).map(|candidate| candidate.name)
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
