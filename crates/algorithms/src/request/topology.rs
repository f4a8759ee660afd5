//! Topology of a group: levels of units of ranks that are close to each other.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use weft_schedule::Rank;

/// The ranks of a group in nested units, innermost first: NUMA nodes, hosts, racks.
///
/// The innermost levels may be known to be inside hosts: see [`Topology::domains`]. A choice that
/// names fewer components than there are levels is meant for the outer ones, and such levels are
/// left out for it.
///
/// Invariant: ranks that share a unit share one at every level further out.
#[derive(Clone, Debug)]
pub struct Topology {
    ranks: u32,
    /// By level, then by rank: the lowest rank of the rank's unit.
    levels: Vec<Vec<Rank>>,
    /// The number of innermost levels that are known to be inside hosts: all of them, if there is
    /// one host.
    inside: usize,
    /// Worked out when the first rank's program needs it: for all ranks together it takes no longer
    /// than for one.
    innermost: OnceLock<Arc<Innermost>>,
}

/// Properties of the innermost level of a topology that has any.
#[derive(Debug)]
struct Innermost {
    /// As [`Topology::units`] of level 0.
    units: Vec<Vec<Rank>>,
    /// Every size that they have, ascending.
    sizes: Vec<u32>,
    outer: Topology,
}

impl PartialEq for Topology {
    fn eq(&self, other: &Self) -> bool {
        (self.ranks, self.inside, &self.levels) == (other.ranks, other.inside, &other.levels)
    }
}

impl Eq for Topology {}

impl Topology {
    /// No unit is known: every rank is as far from all others.
    pub fn flat(ranks: u32) -> Self {
        Topology::new(ranks, Vec::new(), 0)
    }

    fn new(ranks: u32, levels: Vec<Vec<Rank>>, inside: usize) -> Self {
        Topology {
            ranks,
            levels,
            inside,
            innermost: OnceLock::new(),
        }
    }

    /// One level: ranks with the same number are on one host.
    pub fn hosts(host_of_rank: &[u32]) -> Self {
        Topology::new(
            host_of_rank.len() as u32,
            vec![lowest_ranks(host_of_rank)],
            0,
        )
    }

    /// Levels inside hosts, innermost first, then the hosts. Ranks of one host with the same number
    /// share a domain.
    ///
    /// Levels that divide no host, or leave every rank alone, say nothing and are left out; so is
    /// the level of the hosts, if there are domains on one host.
    ///
    /// # Errors
    /// As [`Topology::levels`].
    pub fn domains(domain_of_rank: &[Vec<u32>], host_of_rank: &[u32]) -> Result<Self, String> {
        let ranks = host_of_rank.len();
        let mut levels: Vec<Vec<u32>> = Vec::new();
        for (level, domains) in domain_of_rank.iter().enumerate() {
            if domains.len() != ranks {
                return Err(format!(
                    "level {level} of the domains names {} ranks, but there are {ranks}",
                    domains.len()
                ));
            }
            let apart: Vec<(u32, u32)> = (host_of_rank.iter().copied())
                .zip(domains.iter().copied())
                .collect();
            levels.push(lowest_ranks(&apart));
        }
        levels.push(lowest_ranks(host_of_rank));
        let mut topology = Topology::levels(levels)?;
        let (domains, hosts) = topology.levels.split_at(domain_of_rank.len());
        let mut kept: Vec<Vec<Rank>> = Vec::new();
        for level in domains {
            let alone = (0..).zip(level).all(|(rank, lowest)| rank == *lowest);
            if !alone && *level != hosts[0] && kept.last() != Some(level) {
                kept.push(level.clone());
            }
        }
        let one_host = hosts[0].iter().all(|lowest| *lowest == 0);
        topology.inside = kept.len();
        if !one_host || kept.is_empty() {
            kept.extend_from_slice(hosts);
        }
        topology.levels = kept;
        Ok(topology)
    }

    /// Any number of levels, innermost first; at each, ranks with the same number share a unit.
    ///
    /// # Errors
    /// There is no level, levels differ in their number of ranks, or a unit is not within one unit
    /// of the next level.
    pub fn levels(unit_of_rank: Vec<Vec<u32>>) -> Result<Self, String> {
        let Some(innermost) = unit_of_rank.first() else {
            return Err("a topology of levels needs at least one".to_owned());
        };
        let ranks = innermost.len();
        if let Some((level, units)) =
            (unit_of_rank.iter().enumerate()).find(|(_, units)| units.len() != ranks)
        {
            return Err(format!(
                "level {level} of the topology names {} ranks, but level 0 names {ranks}",
                units.len()
            ));
        }
        let levels: Vec<Vec<Rank>> = unit_of_rank
            .iter()
            .map(|units| lowest_ranks(units))
            .collect();
        for (level, pair) in levels.windows(2).enumerate() {
            let apart = |rank: &usize| pair[1][*rank] != pair[1][pair[0][*rank] as usize];
            if let Some(rank) = (0..ranks).find(apart) {
                return Err(format!(
                    "ranks {} and {rank} share a unit at level {level} of the topology, but not at level {}",
                    pair[0][rank],
                    level + 1
                ));
            }
        }
        Ok(Topology::new(ranks as u32, levels, 0))
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The number of levels.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The number of levels that are known to be inside hosts.
    pub fn levels_inside_hosts(&self) -> usize {
        self.inside
    }

    /// The topology for a choice with components for this many levels: without the innermost levels
    /// that it has none for, as far as they are inside hosts.
    pub fn seen_by(&self, levels: usize) -> Cow<'_, Topology> {
        match self.inside.min(self.levels.len().saturating_sub(levels)) {
            0 => Cow::Borrowed(self),
            left_out => Cow::Owned(Topology::new(
                self.ranks,
                self.levels[left_out..].to_vec(),
                self.inside - left_out,
            )),
        }
    }

    /// Whether all units are known to be inside one host.
    pub(crate) fn is_one_host(&self) -> bool {
        self.inside > 0 && self.inside == self.levels.len()
    }

    /// The level whose units are joined by a network, if there may be one.
    pub(crate) fn hosts_level(&self) -> Option<usize> {
        match self.is_one_host() {
            true => None,
            false => self.levels.len().checked_sub(1),
        }
    }

    /// Whether there are several units, of which one at least has several ranks.
    pub(crate) fn is_nested(&self) -> bool {
        let lone = |level: &Vec<Rank>| {
            let units = (0..).zip(level).filter(|(rank, lowest)| rank == *lowest);
            units.count() as u32
        };
        let among = 2..self.ranks;
        self.levels.iter().any(|level| among.contains(&lone(level)))
    }

    /// The size of the outermost units, if at every level all units are of one size and their ranks
    /// are consecutive.
    pub(crate) fn even_unit(&self) -> Option<u32> {
        let units = self.levels.iter().map(|level| {
            let unit = level.iter().take_while(|lowest| **lowest == 0).count() as u32;
            let mut ranks = (0..).zip(level);
            let even = ranks.all(|(rank, lowest)| rank - rank % unit == *lowest);
            (even && self.ranks.is_multiple_of(unit)).then_some(unit)
        });
        units.collect::<Option<Vec<u32>>>()?.pop()
    }

    /// The size of rank 0's unit at `level`.
    pub(crate) fn unit_size(&self, level: usize) -> u32 {
        let unit = self.levels[level].iter().filter(|lowest| **lowest == 0);
        unit.count() as u32
    }

    /// The lowest rank of a rank's unit at `level`, which stands for the unit.
    ///
    /// # Panics
    /// If there is no such level or rank.
    pub fn unit_of(&self, level: usize, rank: Rank) -> Rank {
        self.levels[level][rank as usize]
    }

    /// The innermost units as [`Topology::units`] lists them, and every size that they have,
    /// ascending. There must be a level.
    pub(crate) fn innermost_units(&self) -> (&[Vec<Rank>], &[u32]) {
        let innermost = self.innermost();
        (&innermost.units, &innermost.sizes)
    }

    /// The topology of the innermost units, each counted as one rank. There must be a level. Behind
    /// the last one, every rank is a unit of its own; or none is known, inside a host.
    pub(crate) fn outer(&self) -> &Topology {
        &self.innermost().outer
    }

    fn innermost(&self) -> &Innermost {
        self.innermost.get_or_init(|| {
            let units = self.units(0);
            let sizes: BTreeSet<u32> = units.iter().map(|unit| unit.len() as u32).collect();
            let lowest: Vec<Rank> = units.iter().map(|unit| unit[0]).collect();
            Arc::new(Innermost {
                outer: self.of_units(&lowest),
                sizes: sizes.into_iter().collect(),
                units,
            })
        })
    }

    fn of_units(&self, lowest: &[Rank]) -> Topology {
        if self.levels.len() == 1 && self.is_one_host() {
            return Topology::flat(lowest.len() as u32);
        }
        let outer = if self.levels.len() > 1 {
            &self.levels[1..]
        } else {
            &self.levels
        };
        let levels = outer.iter().map(|level| {
            let unit_of_unit: Vec<u32> = lowest.iter().map(|unit| level[*unit as usize]).collect();
            lowest_ranks(&unit_of_unit)
        });
        Topology::new(
            lowest.len() as u32,
            levels.collect(),
            self.inside.saturating_sub(1),
        )
    }

    /// The ranks of each unit at `level`, in order; the units are ordered by their lowest rank.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn units(&self, level: usize) -> Vec<Vec<Rank>> {
        let mut units: Vec<Vec<Rank>> = Vec::new();
        let mut index_of = vec![0; self.ranks as usize];
        for (rank, &lowest) in self.levels[level].iter().enumerate() {
            if lowest as usize == rank {
                index_of[rank] = units.len();
                units.push(Vec::new());
            }
            units[index_of[lowest as usize]].push(rank as Rank);
        }
        units
    }
}

/// For each rank the lowest one with the same number.
fn lowest_ranks<T: Copy + Eq + Hash>(unit_of_rank: &[T]) -> Vec<Rank> {
    let mut lowest = HashMap::new();
    let ranks = 0..unit_of_rank.len() as Rank;
    ranks
        .zip(unit_of_rank)
        .map(|(rank, unit)| *lowest.entry(*unit).or_insert(rank))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Topology;

    #[test]
    fn units_are_ordered_by_their_lowest_rank() {
        let topology = Topology::hosts(&[7, 3, 7, 3, 9]);
        assert_eq!((topology.ranks(), topology.depth()), (5, 1));
        assert_eq!(topology.units(0), [vec![0, 2], vec![1, 3], vec![4]]);
        assert_eq!(topology.unit_of(0, 3), 1);
    }

    #[test]
    fn a_flat_topology_has_no_level() {
        assert_eq!(Topology::flat(3).depth(), 0);
    }

    #[test]
    fn domains_count_within_their_hosts() {
        let topology = Topology::domains(&[vec![0, 0, 1, 0, 0, 1]], &[0, 0, 0, 3, 3, 3]).unwrap();
        assert_eq!((topology.depth(), topology.levels_inside_hosts()), (2, 1));
        assert_eq!(
            topology.units(0),
            [vec![0, 1], vec![2], vec![3, 4], vec![5]]
        );
        let outer = topology.seen_by(1);
        assert_eq!((outer.depth(), outer.levels_inside_hosts()), (1, 0));
        assert_eq!(outer.units(0), [vec![0, 1, 2], vec![3, 4, 5]]);
        assert_eq!(topology.seen_by(2).as_ref(), &topology);
        assert_eq!(topology.seen_by(3).as_ref(), &topology);
    }

    #[test]
    fn domains_without_information_are_left_out() {
        let hosts = [0, 0, 0, 0];
        let found = |levels: &[[u32; 4]]| {
            let levels: Vec<Vec<u32>> = levels.iter().map(|level| level.to_vec()).collect();
            Topology::domains(&levels, &hosts).map(|topology| topology.levels_inside_hosts())
        };
        assert_eq!(found(&[]), Ok(0));
        assert_eq!(found(&[[5, 5, 5, 5]]), Ok(0));
        assert_eq!(found(&[[0, 1, 2, 3]]), Ok(0));
        assert_eq!(found(&[[0, 1, 2, 3], [0, 0, 1, 1], [7, 7, 9, 9]]), Ok(1));
        assert!(found(&[[0, 0, 1, 1], [0, 1, 1, 1]]).is_err());
        let two = Topology::domains(&[vec![0, 0, 1, 1]], &hosts).unwrap();
        assert_eq!((two.depth(), two.outer()), (1, &Topology::flat(2)));
        assert_eq!(two.seen_by(0).as_ref(), &Topology::flat(4));
        assert_eq!(
            Topology::domains(&[vec![0]], &hosts).unwrap_err(),
            "level 0 of the domains names 1 ranks, but there are 4"
        );
    }

    #[test]
    fn levels_must_nest() {
        let nested = Topology::levels(vec![vec![0, 0, 1, 2], vec![5, 5, 5, 6]]).unwrap();
        assert_eq!(nested.units(1), [vec![0, 1, 2], vec![3]]);
        assert_eq!(
            Topology::levels(vec![vec![0, 0, 1, 1], vec![0, 0, 0, 1]]).unwrap_err(),
            "ranks 2 and 3 share a unit at level 0 of the topology, but not at level 1"
        );
        assert_eq!(
            Topology::levels(vec![vec![0, 0], vec![0]]).unwrap_err(),
            "level 1 of the topology names 1 ranks, but level 0 names 2"
        );
        assert!(Topology::levels(vec![]).is_err());
    }
}
