//! Cost formulas: the common source of prices, checks and printed text.

use std::fmt;
use std::ops::Add;

use crate::cost::expression::{Expr, RANKS};
use crate::cost::{Cost, Phase};
use crate::{ScheduleRequest, Textbook, Volume};

/// Rounds that look alike, in formulas. What each figure means is said at [`Phase`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Rounds {
    rounds: Expr,
    messages: Expr,
    share: Expr,
    received: Expr,
    crossing: f64,
    read: Expr,
    reduced: Expr,
    copied: Expr,
}

impl Rounds {
    /// Rounds of signals.
    pub(crate) fn signals(rounds: impl Into<Expr>) -> Self {
        Rounds {
            rounds: rounds.into(),
            ..Rounds::default()
        }
    }

    /// Rounds in each of which every rank sends and receives as many messages.
    pub(crate) fn exchange(
        rounds: impl Into<Expr>,
        messages: impl Into<Expr>,
        share: impl Into<Expr>,
    ) -> Self {
        let exchange = Rounds::signals(rounds).sending(messages, share);
        exchange.receiving(exchange.sent())
    }

    /// As many others, otherwise alike.
    pub(crate) fn lasting(self, rounds: impl Into<Expr>) -> Self {
        let rounds = rounds.into();
        Rounds { rounds, ..self }
    }

    /// In the opposite direction, where messages are whole.
    pub(crate) fn turned(self) -> Self {
        self.sending(self.received, 1).receiving(self.sent())
    }

    /// With so many messages of this share per round.
    pub(crate) fn sending(self, messages: impl Into<Expr>, share: impl Into<Expr>) -> Self {
        let (messages, share) = (messages.into(), share.into());
        Rounds {
            messages,
            share,
            ..self
        }
    }

    /// Receiving so much per round.
    pub(crate) fn receiving(self, received: impl Into<Expr>) -> Self {
        let received = received.into();
        Rounds { received, ..self }
    }

    /// With so much that passes the busiest border per round.
    pub(crate) fn crossing(self, crossing: f64) -> Self {
        Rounds { crossing, ..self }
    }

    /// Reading so much per round.
    pub(crate) fn reading(self, read: impl Into<Expr>) -> Self {
        let read = read.into();
        Rounds { read, ..self }
    }

    /// Combining so much per round.
    pub(crate) fn reducing(self, reduced: impl Into<Expr>) -> Self {
        let reduced = reduced.into();
        Rounds { reduced, ..self }
    }

    /// Copying so much per round.
    pub(crate) fn copying(self, copied: impl Into<Expr>) -> Self {
        let copied = copied.into();
        Rounds { copied, ..self }
    }

    fn sent(&self) -> Expr {
        self.messages * self.share
    }

    fn phase(&self, ranks: u32) -> Phase {
        Phase {
            rounds: self.rounds.count(ranks),
            messages: self.messages.count(ranks),
            share: self.share.value(ranks),
            received: self.received.value(ranks),
            crossing: self.crossing,
            read: self.read.value(ranks),
            reduced: self.reduced.value(ranks),
            copied: self.copied.value(ranks),
            inside: false,
        }
    }
}

/// What is moved, by the busiest rank and by all together.
#[derive(Clone, Copy, Default)]
struct Moves {
    most: Expr,
    total: Expr,
}

impl Moves {
    fn by_each(most: Expr) -> Self {
        Moves {
            most,
            total: most * RANKS,
        }
    }

    fn volume(&self, ranks: u32) -> Volume {
        Volume {
            most: self.most.share(ranks),
            total: self.total.share(ranks),
        }
    }
}

/// What an algorithm costs in a group of two ranks or more.
#[derive(Clone, Default)]
pub struct Formula {
    phases: Vec<Rounds>,
    steps: Expr,
    sent: Moves,
    read: Moves,
    /// In other words than the figures' own, where there are any.
    told_steps: Option<&'static str>,
    told_sent: Option<&'static str>,
    told_read: Option<&'static str>,
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told().join("; "))
    }
}

impl Formula {
    /// Of these phases, one after the other. Unless it is said otherwise, all ranks move as much as
    /// the busiest.
    pub(crate) fn of(phases: impl IntoIterator<Item = Rounds>) -> Self {
        let phases: Vec<Rounds> = phases.into_iter().collect();
        let all = |figure: fn(&Rounds) -> Expr| {
            let figures = phases.iter().map(|phase| phase.rounds * figure(phase));
            figures.fold(Expr::default(), Add::add)
        };
        Formula {
            steps: all(|_| 1.into()),
            sent: Moves::by_each(all(Rounds::sent)),
            read: Moves::by_each(all(|phase| phase.read)),
            phases,
            ..Formula::default()
        }
    }

    /// Of an algorithm whose phases are counted: so many steps, and so much that every rank sends.
    pub(crate) fn sum(steps: impl Into<Expr>, sent: impl Into<Expr>) -> Self {
        Formula {
            steps: steps.into(),
            sent: Moves::by_each(sent.into()),
            ..Formula::default()
        }
    }

    /// All ranks together send so much.
    pub(crate) fn all_send(mut self, total: impl Into<Expr>) -> Self {
        self.sent.total = total.into();
        self
    }

    /// All ranks together read so much.
    pub(crate) fn all_read(mut self, total: impl Into<Expr>) -> Self {
        self.read.total = total.into();
        self
    }

    /// Tells people so of the steps.
    pub(crate) fn telling_steps(mut self, steps: &'static str) -> Self {
        self.told_steps = Some(steps);
        self
    }

    /// Tells people so of what is sent; `{}` stands for the formula.
    pub(crate) fn telling_sent(mut self, sent: &'static str) -> Self {
        self.told_sent = Some(sent);
        self
    }

    /// Tells people so of what is read; `{}` stands for the formula.
    pub(crate) fn telling_read(mut self, read: &'static str) -> Self {
        self.told_read = Some(read);
        self
    }

    /// The price of its phases.
    pub(crate) fn cost(&self, request: &ScheduleRequest) -> Cost {
        if request.ranks == 1 {
            return Cost::default();
        }
        let phases = self.phases.iter().map(|rounds| rounds.phase(request.ranks));
        Cost::of(request, phases)
    }

    /// Its figures for so many ranks.
    pub(crate) fn textbook(&self, ranks: u32) -> Textbook {
        Textbook {
            steps: self.steps.count(ranks).into(),
            sent: self.sent.volume(ranks),
            read: self.read.volume(ranks),
        }
    }

    /// What people are told: steps, what the busiest rank sends, and what it reads; empty for
    /// nothing.
    pub(crate) fn told(&self) -> [String; 3] {
        let told = |words: Option<&str>, formula: String| match words {
            Some(words) => words.replace("{}", &formula),
            None => formula,
        };
        [
            told(self.told_steps, self.steps.told("")),
            told(self.told_sent, self.sent.most.told("N")),
            told(self.told_read, self.read.most.told("N")),
        ]
    }
}
