//! Cost formulas: the common source of prices, checks and printed text.

use std::fmt;
use std::ops::Add;

use crate::cost::expression::{Expr, RANKS};
use crate::cost::{Cost, Phase};
use crate::{ScheduleRequest, Textbook, Volume};

/// Equal rounds of a formula. [`Phase`] explains each figure.
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

    /// The same with another number of rounds.
    pub(crate) fn lasting(self, rounds: impl Into<Expr>) -> Self {
        let rounds = rounds.into();
        Rounds { rounds, ..self }
    }

    /// In the opposite direction, where messages are whole.
    pub(crate) fn turned(self) -> Self {
        self.sending(self.received, 1).receiving(self.sent())
    }

    /// With this number of messages of this share per round.
    pub(crate) fn sending(self, messages: impl Into<Expr>, share: impl Into<Expr>) -> Self {
        let (messages, share) = (messages.into(), share.into());
        Rounds {
            messages,
            share,
            ..self
        }
    }

    /// Receiving this share per round.
    pub(crate) fn receiving(self, received: impl Into<Expr>) -> Self {
        let received = received.into();
        Rounds { received, ..self }
    }

    /// With so much that passes the busiest border per round.
    pub(crate) fn crossing(self, crossing: f64) -> Self {
        Rounds { crossing, ..self }
    }

    /// Reading this share per round.
    pub(crate) fn reading(self, read: impl Into<Expr>) -> Self {
        let read = read.into();
        Rounds { read, ..self }
    }

    /// Combining this share per round.
    pub(crate) fn reducing(self, reduced: impl Into<Expr>) -> Self {
        let reduced = reduced.into();
        Rounds { reduced, ..self }
    }

    /// Copying this share per round.
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

/// The shares moved by the busiest rank and by all ranks together.
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

/// The cost of an algorithm in a group of two ranks or more.
#[derive(Clone, Default)]
pub struct Formula {
    phases: Vec<Rounds>,
    steps: Expr,
    sent: Moves,
    read: Moves,
    /// Texts in place of those of the figures, where there are any.
    steps_text: Option<&'static str>,
    sent_text: Option<&'static str>,
    read_text: Option<&'static str>,
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.texts().join("; "))
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

    /// The formula of an algorithm whose phases are counted: the steps, and the share that every
    /// rank sends.
    pub(crate) fn sum(steps: impl Into<Expr>, sent: impl Into<Expr>) -> Self {
        Formula {
            steps: steps.into(),
            sent: Moves::by_each(sent.into()),
            ..Formula::default()
        }
    }

    /// Sets the share that all ranks together send.
    pub(crate) fn all_send(mut self, total: impl Into<Expr>) -> Self {
        self.sent.total = total.into();
        self
    }

    /// Sets the share that all ranks together read.
    pub(crate) fn all_read(mut self, total: impl Into<Expr>) -> Self {
        self.read.total = total.into();
        self
    }

    /// Sets the text about the steps.
    pub(crate) fn steps_described(mut self, steps: &'static str) -> Self {
        self.steps_text = Some(steps);
        self
    }

    /// Sets the text about the bytes sent; `{}` stands for the formula.
    pub(crate) fn sent_described(mut self, sent: &'static str) -> Self {
        self.sent_text = Some(sent);
        self
    }

    /// Sets the text about the bytes read; `{}` stands for the formula.
    pub(crate) fn read_described(mut self, read: &'static str) -> Self {
        self.read_text = Some(read);
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

    /// Its figures for this many ranks.
    pub(crate) fn textbook(&self, ranks: u32) -> Textbook {
        Textbook {
            steps: self.steps.count(ranks).into(),
            sent: self.sent.volume(ranks),
            read: self.read.volume(ranks),
        }
    }

    /// The texts about steps, and about the bytes that the busiest rank sends and reads; empty for
    /// none.
    pub(crate) fn texts(&self) -> [String; 3] {
        let text = |words: Option<&str>, formula: String| match words {
            Some(words) => words.replace("{}", &formula),
            None => formula,
        };
        [
            text(self.steps_text, self.steps.text("")),
            text(self.sent_text, self.sent.most.text("N")),
            text(self.read_text, self.read.most.text("N")),
        ]
    }
}
