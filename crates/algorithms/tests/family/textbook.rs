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
        ("broadcast", "mapped") => (2, nothing(), moved((1, 1), (p - 1, 1))),
        // Thakur, Rabenseifner and Gropp 2005, section 4.1: p - 1 rounds, (p - 1) n / p.
        ("all-gather", "ring") => (p as u32 - 1 + entry, terms.each_all_but_one(), nothing()),
        ("all-gather", "direct") => (1 + entry, terms.each_all_but_one(), nothing()),
        ("all-gather", "mapped") => (2, nothing(), terms.each_all_but_one()),
        // Thakur, Rabenseifner and Gropp 2005, section 4.3: p - 1 rounds, (p - 1) n / p.
        ("all-to-all", "pairwise") => (p as u32 - 1 + entry, terms.each_all_but_one(), nothing()),
        ("all-to-all", "direct") => (1 + entry, terms.each_all_but_one(), nothing()),
        ("gather", "linear") => (1 + entry, moved((1, p), (p - 1, p)), nothing()),
        ("scatter", "linear") if symmetric => (2, nothing(), moved((1, p), (p - 1, p))),
        ("scatter", "linear") => (1, moved((p - 1, p), (p - 1, p)), nothing()),
        // Hensgen, Finkel and Manber 1988: ⌈log2 p⌉ rounds.
        ("barrier", "dissemination") => (terms.ceil_log, nothing(), nothing()),
        (collective, other) => unknown(collective, other),
    }
}
