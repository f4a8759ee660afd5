//! What the literature says each algorithm costs.
//!
//! `p` ranks and a message of `n`; literature that gives each rank `m` in an all-gather means `n / p`. Rounds of the literature are steps here,
//! with two differences: a step counts only if it waits for the one before, where a round of a tree also counts a parent's second
//! message; and with symmetric memory a rank may have to be told first that its peer has entered.

use weft_algorithms::{Algorithm, Memory};
use weft_schedule::Share;

/// What is moved between ranks: by the rank that moves most, and by all.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    pub(crate) most: Share,
    pub(crate) total: Share,
}

/// What an algorithm costs.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    pub(crate) steps: u32,
    pub(crate) sent: Moved,
    pub(crate) read: Moved,
}

/// A share of the message: how many of how many parts.
type Parts = (u64, u64);

fn moved(most: Parts, total: Parts) -> Moved {
    Moved {
        most: Share::new(most.0, most.1),
        total: Share::new(total.0, total.1),
    }
}

fn nothing() -> Moved {
    moved((0, 1), (0, 1))
}

/// The formulas in terms of the number of ranks.
struct Terms {
    p: u64,
    /// Of ⌊log2 p⌋ and ⌈log2 p⌉.
    floor_log: u32,
    ceil_log: u32,
    /// 1 where ranks must be told that their peers have entered.
    entry: u32,
    symmetric: bool,
}

impl Terms {
    /// Every rank moves as much.
    fn each(&self, (parts, of): Parts) -> Moved {
        moved((parts, of), (parts * self.p, of))
    }

    /// Every rank moves all blocks but one.
    fn each_all_but_one(&self) -> Moved {
        self.each((self.p - 1, self.p))
    }
}

/// What is expected of an algorithm with this many ranks, in this memory.
pub(crate) fn textbook(algorithm: &Algorithm, ranks: u32, memory: Memory) -> Expected {
    let symmetric = memory == Memory::Symmetric;
    let terms = Terms {
        p: u64::from(ranks),
        floor_log: ranks.ilog2(),
        ceil_log: ranks.next_power_of_two().ilog2(),
        entry: u32::from(symmetric),
        symmetric,
    };
    let (steps, sent, read) = match algorithm.collective {
        _ if ranks == 1 => (0, nothing(), nothing()),
        "all-reduce" => all_reduce(algorithm.name, &terms),
        "reduce" | "reduce-scatter" => reduce(algorithm, &terms),
        _ => move_only(algorithm, &terms),
    };
    Expected { steps, sent, read }
}

fn unknown(collective: &str, name: &str) -> ! {
    panic!("{collective} {name} has no line in the textbook")
}

fn all_reduce(name: &str, terms: &Terms) -> (u32, Moved, Moved) {
    let &Terms { p, symmetric, .. } = terms;
    match name {
        // Patarasuk and Yuan 2009, section 3: 2 (p - 1) steps, 2 (p - 1) n / p.
        "ring" => (2 * (p as u32 - 1), terms.each((2 * (p - 1), p)), nothing()),
        // The ring's formula; Chan et al. 2007 has no line for two directions at once.
        "bidirectional-ring" => (2 * (p as u32 - 1), terms.each((2 * (p - 1), p)), nothing()),
        // Thakur, Rabenseifner and Gropp 2005, section 4.5: log2 p rounds of n, and two more of n where ranks are too many. Unless they
        // are more than half as many as the others, no chain of signals begins with one and ends with another.
        "recursive-doubling" => {
            let (rounds, too_many) = (u64::from(terms.floor_log), p - (1 << terms.floor_log));
            let more = u64::from(too_many > 0);
            let total = (p - too_many) * rounds + 2 * too_many;
            let sent = moved((rounds + more, 1), (total, 1));
            let folds = more as u32 + u32::from(2 * too_many > 1 << terms.floor_log);
            (terms.floor_log + folds, sent, nothing())
        }
        // Thakur, Rabenseifner and Gropp 2005, section 4.5: 2 log2 p rounds, 2 (p - 1) n / p, for a power of two. For others Rabenseifner and
        // Träff 2004 have less than 3 n; here it is at most 2.5 n, and the rank at hand moves what `eliminating` says.
        "halving-doubling" => {
            let sent = eliminating(p, terms.floor_log);
            (2 * terms.floor_log, sent, nothing())
        }
        // Thakur, Rabenseifner and Gropp 2005, section 4.5, and for other numbers Rabenseifner and Träff 2004, binary blocks: no rank
        // sends more than 2 n.
        "halving-doubling-blocks" => {
            let sent = by_blocks(p, terms.floor_log);
            (2 * terms.floor_log, sent, nothing())
        }
        // Chan et al. 2007, minimum spanning tree reduce and broadcast: ⌈log2 p⌉ rounds of n each.
        "binomial" => {
            let sent = moved((u64::from(terms.ceil_log), 1), (2 * (p - 1), 1));
            (2 * terms.floor_log, sent, nothing())
        }
        // Sanders, Speck and Träff 2009, section 3: two trees of depth log2 p, each for n / 2. An inner node of one tree and leaf of the other sends
        // (1 + 2 + 1) n / 2; with a top or fewer children, less.
        "double-tree" => {
            let most = if p > 3 { 4 } else { p };
            let sent = moved((most, 2), (2 * (p - 1), 1));
            (2 * terms.floor_log, sent, nothing())
        }
        // All to one and back.
        "gather-to-root" => (2, moved((p - 1, 1), (2 * (p - 1), 1)), nothing()),
        // One exchange of everything between all.
        "direct" => (1, terms.each((p - 1, 1)), nothing()),
        // A direct reduce-scatter and a direct all-gather, each (p - 1) n / p.
        "two-shot" => (2, terms.each((2 * (p - 1), p)), nothing()),
        // The same through memory.
        "slice-reduce" if symmetric => (2, terms.each_all_but_one(), terms.each_all_but_one()),
        "slice-reduce" => (3, nothing(), terms.each((2 * (p - 1), p))),
        other => unknown("all-reduce", other),
    }
}

fn reduce(algorithm: &Algorithm, terms: &Terms) -> (u32, Moved, Moved) {
    let &Terms { p, symmetric, .. } = terms;
    match (algorithm.collective, algorithm.name) {
        // Chan et al. 2007, minimum spanning tree reduce: ⌈log2 p⌉ rounds of n.
        ("reduce", "binomial") => (terms.floor_log, moved((1, 1), (p - 1, 1)), nothing()),
        // Sanders, Speck and Träff 2009, section 3: one step below the root, then two trees over the others.
        ("reduce", "double-tree") => {
            let sent = moved((1, 1), (p - 1, 1));
            (1 + (p as u32 - 1).ilog2(), sent, nothing())
        }
        // All to one.
        ("reduce", "direct") => (1, moved((1, 1), (p - 1, 1)), nothing()),
        // All-reduce through memory, where only the root collects.
        ("reduce", "slice-reduce") if symmetric => {
            (2, moved((1, p), (p - 1, p)), terms.each_all_but_one())
        }
        ("reduce", "slice-reduce") => (
            3,
            nothing(),
            moved((2 * (p - 1), p), ((p + 1) * (p - 1), p)),
        ),
        // Chan et al. 2007, bucket reduce-scatter: p - 1 rounds, (p - 1) n / p.
        ("reduce-scatter", "ring") => (p as u32 - 1, terms.each_all_but_one(), nothing()),
        // Thakur, Rabenseifner and Gropp 2005, section 4.4: log2 p rounds, (p - 1) n / p, for a power of two; as many bytes for others.
        ("reduce-scatter", "halving") => (halving_steps(p), terms.each_all_but_one(), nothing()),
        // One exchange between all; with symmetric memory a look at all.
        ("reduce-scatter", "direct") if symmetric => (2, nothing(), terms.each_all_but_one()),
        ("reduce-scatter", "direct") => (1, terms.each_all_but_one(), nothing()),
        ("reduce-scatter", "slice-reduce") => (2, nothing(), terms.each_all_but_one()),
        (collective, other) => unknown(collective, other),
    }
}

fn move_only(algorithm: &Algorithm, terms: &Terms) -> (u32, Moved, Moved) {
    let &Terms {
        p,
        entry,
        symmetric,
        ..
    } = terms;
    match (algorithm.collective, algorithm.name) {
        // Thakur, Rabenseifner and Gropp 2005, section 4.2: ⌈log2 p⌉ rounds of n.
        ("broadcast", "binomial") => {
            let most = (u64::from(terms.ceil_log), 1);
            (terms.floor_log + entry, moved(most, (p - 1, 1)), nothing())
        }
        // Sanders, Speck and Träff 2009, section 3: one step below the root, then two trees over the others.
        ("broadcast", "double-tree") => {
            let sent = moved((1, 1), (p - 1, 1));
            (1 + (p as u32 - 1).ilog2() + entry, sent, nothing())
        }
        // Thakur, Rabenseifner and Gropp 2005, section 4.2 (van de Geijn): ⌈log2 p⌉ rounds of a scatter, p - 1 of a ring all-gather, together
        // 2 (p - 1) n / p through the root.
        ("broadcast", "scatter-all-gather") => {
            let sent = moved((2 * (p - 1), p), (along_ranges(p) + p * (p - 1), p));
            (terms.floor_log + p as u32 - 1 + entry, sent, nothing())
        }
        ("broadcast", "mapped") => (2, nothing(), moved((1, 1), (p - 1, 1))),
        // Thakur, Rabenseifner and Gropp 2005, section 4.1: p - 1 rounds, (p - 1) n / p.
        ("all-gather", "ring") => (p as u32 - 1 + entry, terms.each_all_but_one(), nothing()),
        // Thakur, Rabenseifner and Gropp 2005, section 4.1: log2 p rounds, (p - 1) n / p, for a power of two. For others the first rank
        // of an upper half sends its half's blocks twice, once.
        ("all-gather", "doubling") => {
            let sent = moved((doubling(p), p), (p * (p - 1), p));
            (halving_steps(p) + entry, sent, nothing())
        }
        // Bruck et al. 1997, concatenation: ⌈log2 p⌉ rounds, (p - 1) n / p.
        ("all-gather", "bruck") => (terms.ceil_log + entry, terms.each_all_but_one(), nothing()),
        ("all-gather", "direct") => (1 + entry, terms.each_all_but_one(), nothing()),
        ("all-gather", "mapped") => (2, nothing(), terms.each_all_but_one()),
        // Thakur, Rabenseifner and Gropp 2005, section 4.3: p - 1 rounds, (p - 1) n / p.
        ("all-to-all", "pairwise") => (p as u32 - 1 + entry, terms.each_all_but_one(), nothing()),
        ("all-to-all", "direct") => (1 + entry, terms.each_all_but_one(), nothing()),
        // Bruck et al. 1997, index with radix 2: ⌈log2 p⌉ rounds; in round k the blocks whose distance has bit k, n / 2 at most.
        ("all-to-all", "bruck") => {
            let blocks = (1..p)
                .map(|distance| u64::from(distance.count_ones()))
                .sum();
            (terms.ceil_log, terms.each((blocks, p)), nothing())
        }
        ("gather", "linear") => (1 + entry, moved((1, p), (p - 1, p)), nothing()),
        // Chan et al. 2007, minimum spanning tree gather and scatter: ⌈log2 p⌉ rounds, (p - 1) n / p through the root.
        ("gather", "binomial") => (
            terms.floor_log,
            moved((p / 2, p), (along_ranges(p), p)),
            nothing(),
        ),
        ("scatter", "binomial") => (
            terms.floor_log,
            moved((p - 1, p), (along_ranges(p), p)),
            nothing(),
        ),
        ("scatter", "linear") if symmetric => (2, nothing(), moved((1, p), (p - 1, p))),
        ("scatter", "linear") => (1, moved((p - 1, p), (p - 1, p)), nothing()),
        // Hensgen, Finkel and Manber 1988: ⌈log2 p⌉ rounds.
        ("barrier", "dissemination") => (terms.ceil_log, nothing(), nothing()),
        ("barrier", "direct") => (1, nothing(), nothing()),
        (collective, other) => unknown(collective, other),
    }
}

/// What halving-doubling with 3-2 elimination sends.
///
/// At a level where groups work on a segment of `s`, each rank of a pair sends s / 2, and as much when results go back. An eliminated rank sends
/// s to a pair, each of which sends s / 2 more when results go back. It was in such a pair where somebody was eliminated before.
fn eliminating(p: u64, depth: u32) -> Moved {
    let segments = 1_u64 << depth;
    let odd: Vec<u32> = (0..depth).filter(|level| (p >> level) % 2 == 1).collect();
    let all_levels = 2 * (segments - 1);
    let with_third = odd.iter().enumerate().map(|(index, level)| {
        let eliminated = odd.get(index + 1);
        let spared = eliminated.map_or(0, |level| (segments >> level) - 2);
        all_levels - spared + (segments >> (level + 1))
    });
    let total: u64 = (0..depth)
        .map(|level| (p >> level) + (p >> level) % 2)
        .sum();
    moved(
        (with_third.max().unwrap_or(all_levels), segments),
        (total, 1),
    )
}

/// What halving-doubling by binary blocks sends.
///
/// Of a block of q ranks each sends 2 (q - 1) / q inside, n / q up to a larger block and n / q back to a smaller one.
fn by_blocks(p: u64, depth: u32) -> Moved {
    let segments = 1_u64 << depth;
    let blocks: Vec<u64> = (0..=depth)
        .rev()
        .map(|bit| p & 1 << bit)
        .filter(|block| *block > 0)
        .collect();
    let of_rank = |(index, block): (usize, &u64)| {
        let ends = u64::from(index > 0) + u64::from(index + 1 < blocks.len());
        (2 * (block - 1) + ends) * (segments / block)
    };
    let each = || blocks.iter().enumerate().map(of_rank);
    let total = each().zip(&blocks).map(|(sent, block)| sent * block).sum();
    moved(
        (each().max().unwrap_or_default(), segments),
        (total, segments),
    )
}

/// The blocks that the busiest rank of `p` sends in a recursive doubling.
fn doubling(p: u64) -> u64 {
    if p == 1 {
        return 0;
    }
    let (lower, upper) = (p.div_ceil(2), p / 2);
    // What a rank sends within its half does not depend on who faces it from the other one.
    let first = |half: u64| {
        std::iter::successors(Some(half), |n| Some(n.div_ceil(2)))
            .take_while(|n| *n > 1)
            .map(|n| n.div_ceil(2))
            .sum::<u64>()
    };
    let twice = if lower > upper { 2 * upper } else { upper };
    (lower + doubling(lower))
        .max(upper + doubling(upper))
        .max(twice + first(upper))
}

/// The longest chain of signals of a recursive halving or doubling: ⌈log2 p⌉, or one less up to 5/4 of a power of two.
fn halving_steps(p: u64) -> u32 {
    let floor_log = p.ilog2();
    floor_log + u32::from(4 * p > 5 << floor_log)
}

/// The blocks that pass an edge when a range of ranks is halved again and again, and one half's blocks go to or come from the other.
fn along_ranges(p: u64) -> u64 {
    match p {
        1 => 0,
        _ => p / 2 + along_ranges(p / 2) + along_ranges(p.div_ceil(2)),
    }
}
