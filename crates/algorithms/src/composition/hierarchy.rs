//! Collectives in three phases: inside the units of the topology, among owners in different units,
//! and inside again.
//!
//! In every unit each share of the message has one owner. Inside a unit, contributions are combined
//! at the owners; the owners of one share, one of each unit, carry out the collective among
//! themselves; and inside, results spread from them. The exchange among the owners may be composed
//! in the same way over the next level of units.
//!
//! Units need not be equal. Where each rank of a unit owns a slice, units of 3 and of 5 ranks have
//! cuts at thirds and at fifths: every segment between two cuts has one owner in each unit. A rank
//! that owns several segments takes turns between them.

use weft_schedule::{Buffer, Collective, Rank, Schedule, Step};

use crate::patterns::builder::ProgramBuilder;
use crate::patterns::compose::{EmbeddingSite, Entries, Offset, OwnMemory, embed, interleave};
use crate::patterns::cuts::{Cuts, ShareRange, WHOLE, within};
use crate::patterns::units::{Owners, Units};
use crate::{
    Algorithm, InsideComponent, MemoryClass, Part, ScheduleRequest, Sizes, Topology, find,
};

/// How a collective is composed.
#[derive(Clone, Copy)]
pub(crate) struct Scheme {
    /// The owners of segments.
    pub(crate) owners: Owners,
    /// The components that there are for the inside of units.
    pub(crate) inner: &'static [InsideComponent],
}

/// Makes one rank's program: a component for each level of units, then the algorithm among the
/// outermost owners.
///
/// Levels that the topology does not have are left out.
pub(crate) fn build(request: &ScheduleRequest, scheme: Scheme) -> Schedule {
    match request.parts {
        [] => panic!("a composed {} needs components", request.collective),
        [top] => (algorithm(request.collective, *top).build)(&ScheduleRequest {
            parts: &[],
            ..*request
        }),
        [_, outer @ ..] if request.topology.depth() == 0 => build(
            &ScheduleRequest {
                parts: outer,
                ..*request
            },
            scheme,
        ),
        _ => build_level(request, scheme),
    }
}

fn build_level(request: &ScheduleRequest, scheme: Scheme) -> Schedule {
    let level = HierarchyLevel::new(request, scheme, WHOLE, Offset::default());
    let cuts = Cuts::of(level.grids());
    let mut entries = Entries::default();
    level.hold(&cuts, &mut entries);
    // Other ranks than the root keep their vectors, so their units' sums need a place.
    let sums = matches!(request.collective, Collective::Reduce { .. })
        .then(|| entries.add_scratch(cuts.chunks()));
    let mut b = ProgramBuilder::composed(request, cuts.grid(), entries);
    for phase in level.phases(&cuts, sums) {
        b.append(phase);
    }
    b.build()
}

/// The algorithm that a part names.
pub(crate) fn algorithm(collective: Collective, part: Part) -> &'static Algorithm {
    let name = collective.name();
    match part {
        Part::Algorithm(part) => find(name, part),
        Part::Count(_) => None,
    }
    .unwrap_or_else(|| panic!("{part} is no {name}"))
}

impl Scheme {
    /// The component that the first part names.
    pub(crate) fn component(self, part: Part) -> &'static InsideComponent {
        let named = |inner: &&InsideComponent| part == Part::Algorithm(inner.name);
        let found = self.inner.iter().find(named);
        found.unwrap_or_else(|| panic!("{part} is no component for the inside of units"))
    }
}

/// One level of units, as one of its ranks sees it.
pub(crate) struct HierarchyLevel<'a> {
    units: Units<'a>,
    window: ShareRange,
    inward: Option<InsidePhase>,
    outward: Option<InsidePhase>,
    middle: Option<Middle>,
    collective: Collective,
    at: Offset,
}

/// A phase inside units, before or after the owners' exchange.
struct InsidePhase {
    own: Option<Schedule>,
    /// One rank's program for each size of units, for facts that are the same on all ranks.
    of_sizes: Vec<Schedule>,
}

/// The exchange among the owners of a segment.
struct Middle {
    /// This rank's program; any rank's where it owns nothing.
    schedule: Schedule,
}

impl<'a> HierarchyLevel<'a> {
    /// The innermost level of the request's topology, for a window of the message. Its entries of
    /// temporary memory begin at `at`.
    pub(crate) fn new(
        request: &ScheduleRequest<'a>,
        scheme: Scheme,
        window: ShareRange,
        at: Offset,
    ) -> Self {
        let units = Units::new(request, scheme.owners);
        let component = scheme.component(request.parts[0]);
        let inside = |algorithm: Option<&'static Algorithm>, inward: bool| {
            let algorithm = algorithm?;
            let build = |size: u32, rank: Rank, leader: u32| {
                let collective = scheme.owners.inside(inward, leader);
                (algorithm.build)(&ScheduleRequest {
                    collective,
                    ranks: size,
                    rank,
                    memory: memory(request),
                    sizes: Sizes::Equal,
                    topology: &Topology::flat(size),
                    parts: &[],
                })
            };
            let own = (units.size() > 1).then(|| build(units.size(), units.member, units.leader()));
            let sizes = units.sizes().filter(|size| *size > 1);
            Some(InsidePhase {
                own,
                of_sizes: sizes.map(|size| build(size, 0, 0)).collect(),
            })
        };
        let (inward, outward) = (
            inside(component.inward, true),
            inside(component.outward, false),
        );
        let middle = (units.count() > 1).then(|| {
            let outer = ScheduleRequest {
                collective: units.among_owners(request.collective),
                ranks: units.count(),
                rank: units.own,
                memory: memory(request),
                topology: request.topology.outer(),
                parts: &request.parts[1..],
                ..*request
            };
            Middle {
                schedule: build(&outer, scheme),
            }
        });
        HierarchyLevel {
            units,
            window,
            inward,
            outward,
            middle,
            collective: request.collective,
            at,
        }
    }

    /// Every part's grid, and the window that it covers.
    pub(crate) fn grids(&self) -> impl Iterator<Item = (&weft_schedule::Grid, ShareRange)> {
        let inside = self.insides().flat_map(|inside| &inside.of_sizes);
        let inside = inside.map(|schedule| (&schedule.grid, self.window.clone()));
        let middle = self.middle.iter().flat_map(|middle| {
            let windows = self.segments();
            windows.map(|window| (&middle.schedule.grid, window))
        });
        inside.chain(middle)
    }

    /// Makes room for every part in temporary memory.
    pub(crate) fn hold(&self, cuts: &Cuts, entries: &mut Entries) {
        let places = [self.at, self.outward_at()];
        for (inside, at) in [&self.inward, &self.outward].into_iter().zip(places) {
            for schedule in inside.iter().flat_map(|inside| &inside.of_sizes) {
                entries.hold(schedule, &cuts.starts(&schedule.grid, &self.window), at);
            }
        }
        if let Some(middle) = &self.middle {
            for (index, window) in self.segments().enumerate() {
                let starts = cuts.starts(&middle.schedule.grid, &window);
                entries.hold(&middle.schedule, &starts, self.middle_at(index));
            }
        }
    }

    /// The first entry of the next phase.
    pub(crate) fn end(&self) -> Offset {
        let inside = self.outward_at().behind(&self.outward);
        let among = match &self.middle {
            Some(Middle { schedule }) => [schedule.scratch.len(), schedule.receive.len()],
            None => [0, 0],
        };
        let [scratch, receive] = among.map(|entries| entries as u32 * self.units.segments_of_one);
        Offset {
            scratch: inside.scratch + scratch,
            receive: inside.receive.max(self.at.receive + receive),
        }
    }

    /// The programs of the three phases. `sums` is the scratch entry for the sums of a unit's
    /// leader, if they must be separate from its own vector.
    pub(crate) fn phases(&self, cuts: &Cuts, sums: Option<u32>) -> [Vec<Step>; 3] {
        let kept = match (self.collective, sums) {
            (Collective::Reduce { root }, Some(entry))
                if self.units.size() > 1 && root != self.units.rank() =>
            {
                Buffer::Scratch { entry, base: 0 }
            }
            _ => Buffer::Output,
        };
        let inward = OwnMemory {
            read: Buffer::Output,
            written: kept,
        };
        let among = OwnMemory {
            read: kept,
            written: kept,
        };
        [
            self.inside(self.inward.as_ref(), cuts, self.at, inward),
            self.among_owners(cuts, among),
            self.inside(
                self.outward.as_ref(),
                cuts,
                self.outward_at(),
                OwnMemory::IN_PLACE,
            ),
        ]
    }

    fn inside(
        &self,
        inside: Option<&InsidePhase>,
        cuts: &Cuts,
        at: Offset,
        own: OwnMemory,
    ) -> Vec<Step> {
        let Some(schedule) = inside.and_then(|inside| inside.own.as_ref()) else {
            return Vec::new();
        };
        let place = EmbeddingSite {
            rank_of: &|member| self.units.members()[member as usize],
            starts: &cuts.starts(&schedule.grid, &self.window),
            at,
            complete: self.middle.is_none(),
            own,
        };
        embed(schedule, &place)
    }

    fn among_owners(&self, cuts: &Cuts, own: OwnMemory) -> Vec<Step> {
        let Some(Middle { schedule }) = &self.middle else {
            return Vec::new();
        };
        let programs = self.units.owned_segments().map(|index| {
            let window = self.segment(index);
            let place = EmbeddingSite {
                rank_of: &|unit| self.units.owner_in(unit, index),
                starts: &cuts.starts(&schedule.grid, &window),
                at: self.middle_at(index),
                complete: true,
                own,
            };
            embed(schedule, &place)
        });
        interleave(programs.collect())
    }

    fn insides(&self) -> impl Iterator<Item = &InsidePhase> {
        self.inward.iter().chain(&self.outward)
    }

    fn segments(&self) -> impl Iterator<Item = ShareRange> {
        (0..self.units.segments()).map(|index| self.segment(index))
    }

    fn segment(&self, index: usize) -> ShareRange {
        let segment = self.units.segment(index);
        within(&self.window, segment.start)..within(&self.window, segment.end)
    }

    fn outward_at(&self) -> Offset {
        self.at.behind(&self.inward)
    }

    /// Where a segment's entries begin. Its owners share no pair of ranks with the phases inside
    /// units, so receive entries serve both. A rank's segments follow each other, and take
    /// different places.
    fn middle_at(&self, segment: usize) -> Offset {
        let Some(Middle { schedule }) = &self.middle else {
            return self.at;
        };
        let turn = segment as u32 % self.units.segments_of_one;
        let behind = self.outward_at().behind(&self.outward);
        Offset {
            scratch: behind.scratch + turn * schedule.scratch.len() as u32,
            receive: self.at.receive + turn * schedule.receive.len() as u32,
        }
    }
}

impl Offset {
    /// Where the entries of the next part begin.
    fn behind(self, inside: &Option<InsidePhase>) -> Offset {
        let schedules = || inside.iter().flat_map(|inside| &inside.of_sizes);
        let scratch = schedules().map(|schedule| schedule.scratch.len()).max();
        let receive = schedules().map(|schedule| schedule.receive.len()).max();
        Offset {
            scratch: self.scratch + scratch.unwrap_or_default() as u32,
            receive: self.receive + receive.unwrap_or_default() as u32,
        }
    }
}

/// The memory that parts run on. Sums that a unit's leader makes for another rank are not in user
/// memory, which peers could reach.
pub(crate) fn memory(request: &ScheduleRequest) -> MemoryClass {
    match request.collective {
        Collective::Reduce { .. } => MemoryClass::Ordinary,
        _ => request.memory,
    }
}
