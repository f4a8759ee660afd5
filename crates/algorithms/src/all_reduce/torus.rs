//! Two-dimensional torus all-reduce: rings along rows and columns of a grid of ranks.
//!
//! Reduce-scatter along rows, all-reduce along columns, all-gather along rows: fewest bytes, as the
//! ring, in a number of steps that grows with the side of the grid and not with its area. The other
//! half of the message goes columns first at the same time, so that both dimensions are always in
//! use.
//!
//! Rows are the units of the topology, if these are equal and have consecutive ranks; otherwise the
//! grid is as square as the number of ranks allows. A prime number of ranks is one row: a ring.
//!
//! Sources: Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash",
//! 2018 (rows first); Jouppi et al., "TPU v4: an optically reconfigurable supercomputer for machine
//! learning", 2023 (all dimensions at once).

use weft_schedule::{Fraction, Schedule};

use crate::InsideComponent;
use crate::composition::hierarchy::{HierarchyLevel, Scheme};
use crate::cost::expression::{Expr, OTHER_BLOCKS, OTHERS};
use crate::cost::{Cost, Phase};
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::compose::{Entries, Offset, side_by_side};
use crate::patterns::crossing;
use crate::patterns::cuts::{Cuts, WHOLE, share};
use crate::patterns::units::Owners;
use crate::{
    About, Algorithm, Costs, Formula, Part, Parts, Requirements, ScheduleRequest, Symmetry,
    Topology, all_gather, reduce_scatter,
};

use super::ring;

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "torus",
    collective: "all-reduce",
    summary: "rings along rows and columns of a grid of ranks, half of the message each way; few steps, for large groups",
    about: About {
        how: "Rank r stands in row r / C and column r mod C of a grid. One half of the message: reduce-scatter \
              along rows, all-reduce along columns, all-gather along rows, each by a ring; the other half \
              goes columns first at the same time. Rows are the outermost units of the topology if these are \
              equal and have consecutive ranks, else the grid is as square as P allows; `torus(R)` asks for \
              R rows (the greatest divisor of P up to R). One row, as for a prime P, is a ring.",
        wins: "Large messages on many ranks: as few bytes as the ring in far fewer steps.",
        source: "Mikami et al., \"Massively distributed SGD: ImageNet/ResNet-50 training in a flash\", 2018; \
              Jouppi et al., \"TPU v4\", 2023 (all dimensions at once)",
        quote: "Mikami et al. 2018: 2 (x - 1) steps along rows with n, 2 (y - 1) along columns with n / x; here \
              half of n each way at once (Jouppi et al. 2023): together 2 (p - 1) n / p",
    },
    requires: Requirements {
        parts: Parts::Count { of: "rows", period },
        ..Requirements::NONE
    },
    symmetry: Symmetry::None,
    costs: Costs::Counted(cost, formula),
    build,
};

/// Along rows, or along columns.
const RINGS: Scheme = Scheme {
    owners: Owners::Slices,
    inner: &[InsideComponent::both(
        "ring",
        &reduce_scatter::ring::ALGORITHM,
        &all_gather::ring::ALGORITHM,
    )],
};
const HALF: Fraction = share(1, 2);

/// Rank r is in row r / columns and in column r % columns.
#[derive(Clone, Copy)]
struct TorusShape {
    rows: u32,
    columns: u32,
}

impl TorusShape {
    fn of(request: &ScheduleRequest) -> Self {
        let ranks = request.ranks;
        let wanted = match (request.parts, request.topology.even_unit()) {
            ([Part::Count(rows)], _) => *rows,
            (_, Some(unit)) if 1 < unit && unit < ranks => ranks / unit,
            _ => ranks.isqrt(),
        };
        let rows = (1..=wanted.clamp(1, ranks))
            .rev()
            .find(|rows| ranks.is_multiple_of(*rows));
        let rows = rows.unwrap_or(1);
        TorusShape {
            rows,
            columns: ranks / rows,
        }
    }

    fn is_line(self) -> bool {
        self.rows == 1 || self.columns == 1
    }
}

/// Rows are interchangeable; in a ring, all ranks.
fn period(request: &ScheduleRequest) -> Option<u32> {
    let shape = TorusShape::of(request);
    Some(if shape.is_line() { 1 } else { shape.columns })
}

fn cost(request: &ScheduleRequest) -> Cost {
    let shape = TorusShape::of(request);
    if shape.is_line() {
        return ring::ALGORITHM.cost(request);
    }
    let TorusShape { rows, columns } = shape;
    let (along_row, along_column) = (0..request.ranks)
        .map(|rank| {
            let (row, column) = (rank / columns, rank % columns);
            let right = row * columns + (column + 1) % columns;
            let below = (row + 1) % rows * columns + column;
            ((rank, right), (rank, below))
        })
        .unzip::<_, _, Vec<_>, Vec<_>>();
    let [along_row, along_column] =
        [along_row, along_column].map(|messages| crossing::of(request, messages));
    let rounds = rows.max(columns) - 1;
    let others = |ranks: u32| f64::from(ranks - 1) / f64::from(ranks) / 2.0;
    // The data along rows and along columns in these rounds, of both halves.
    let phase = |in_row: f64, in_column: f64| Phase {
        crossing: (along_row * in_row + along_column * in_column) / f64::from(rounds),
        ..Phase::exchange(rounds, 2, (in_row + in_column) / f64::from(2 * rounds))
    };
    let reducing = |phase: Phase| Phase {
        reduced: 2.0 * phase.received,
        ..phase
    };
    let gathering = |phase: Phase| Phase {
        copied: request.staged(phase.received),
        ..phase
    };
    let outer = phase(others(columns), others(rows));
    let inner = phase(
        others(columns) / f64::from(rows),
        others(rows) / f64::from(columns),
    );
    let phases = [
        reducing(outer),
        reducing(inner),
        gathering(inner),
        request.entry(),
        gathering(outer),
    ];
    Cost::of(request, phases)
}

fn formula(request: &ScheduleRequest) -> Formula {
    let shape = TorusShape::of(request);
    let steps = match shape.is_line() {
        true => OTHERS * 2,
        false => Expr::from(4 * (shape.rows.max(shape.columns) - 1)),
    };
    Formula::sum(steps, OTHER_BLOCKS * 2)
        .steps_described("4 (max(R, C) − 1), or 2 (P − 1) with one row")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let shape = TorusShape::of(request);
    if shape.is_line() {
        return (ring::ALGORITHM.build)(request);
    }
    let labelled = |label: &dyn Fn(u32) -> u32| {
        let labels: Vec<u32> = (0..request.ranks).map(label).collect();
        Topology::hosts(&labels)
    };
    let rows = labelled(&|rank| rank / shape.columns);
    let columns = labelled(&|rank| rank % shape.columns);
    let parts = [Part::Algorithm("ring"); 2];
    let asked = |topology| ScheduleRequest {
        topology,
        parts: &parts,
        ..*request
    };
    let rows_first =
        HierarchyLevel::new(&asked(&rows), RINGS, WHOLE.start..HALF, Offset::default());
    let columns_first =
        HierarchyLevel::new(&asked(&columns), RINGS, HALF..WHOLE.end, rows_first.end());

    let cuts = Cuts::of(rows_first.grids().chain(columns_first.grids()));
    let mut entries = Entries::default();
    rows_first.hold(&cuts, &mut entries);
    columns_first.hold(&cuts, &mut entries);
    let mut b = ProgramBuilder::composed(request, cuts.grid(), entries);
    // In each phase one half uses rows and the other columns: they have no pair of ranks in common.
    let phases = rows_first
        .phases(&cuts, None)
        .into_iter()
        .zip(columns_first.phases(&cuts, None));
    for (of_rows, of_columns) in phases {
        b.append(side_by_side(of_rows, of_columns));
    }
    b.build()
}
