//! Observation of links: when a connection falls silent, and when its network answers again.
//!
//! A line that is cut without a reset leaves its connections to TCP, which repeats what was sent
//! for as long as the peer timeout. [Note: Silent networks] A connection counts as silent when the
//! kernel has repeated something and received nothing since, at two looks in succession. A line
//! that is merely congested still delivers acknowledgements. See [Note: Shifts] for what follows,
//! and [Note: Lost ways] for connections that follow those of other links.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::connection::{Renewal, TcpConnection};
use crate::losses::{self, RECENT};
use crate::shift::Reason;
use crate::socket::{Connecting, Stall};
use crate::ways::Way;

/// The interval between two looks at a connection of a link over several networks.
const PERIOD: Duration = Duration::from_millis(100);
/// The same over one network: there a shift waits for the kernel anyway.
const LONE_PERIOD: Duration = Duration::from_millis(250);
/// The time between two looks at which a connection must be silent, beside two round trips. A
/// little less than a period, as these vary.
const CONFIRMED: Duration = Duration::from_millis(80);
/// The least time between two attempts to shift one connection.
const ATTEMPTS: Duration = Duration::from_millis(300);
/// The time between two calls over a connection's own network, which does not answer. It doubles
/// each time that a network is lost soon after its return, and with each call over one that has
/// never answered.
const RETURN_PAUSE_MIN: Duration = Duration::from_secs(1);
const RETURN_PAUSE_MAX: Duration = Duration::from_secs(32);
/// A network that was used for this long is not lost soon.
const STABLE: Duration = Duration::from_secs(10);
/// How long a call over a connection's own network may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// A link whose connections are made anew.
pub(crate) struct RailWatch {
    connection: Weak<TcpConnection>,
    /// The interval between two looks.
    period: Duration,
    next_look: Instant,
    /// By the number of the connection.
    rails: Vec<Rail>,
}

impl RailWatch {
    /// None if broken connections are not made anew.
    pub(crate) fn new(connection: &Arc<TcpConnection>) -> Option<Self> {
        let period = match connection.renewal.as_ref()?.has_rails() {
            true => PERIOD,
            false => LONE_PERIOD,
        };
        Some(Self {
            connection: Arc::downgrade(connection),
            period,
            next_look: Instant::now() + period,
            rails: connection.sockets.iter().map(|_| Rail::default()).collect(),
        })
    }

    /// Looks at every connection if it is time; false when there is nothing more to look at.
    pub(crate) fn check(&mut self) -> bool {
        let Some(connection) = self.connection.upgrade() else {
            return false;
        };
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + self.period;
            for (number, rail) in self.rails.iter_mut().enumerate() {
                rail.check(&connection, number, now);
            }
        }
        true
    }

    pub(crate) fn next_look(&self) -> Instant {
        self.next_look
    }
}

/// The network of one connection.
#[derive(Default)]
struct Rail {
    silence: Silence,
    /// When a loss that another link has found was last acted on.
    followed: Option<Instant>,
    home: Home,
    /// A call over the connection's own network, while it runs over another one.
    call: Option<Connecting>,
}

impl Rail {
    fn check(&mut self, connection: &Arc<TcpConnection>, number: usize, now: Instant) {
        let carrier = &connection.carriers[number];
        if carrier.is_broken() || carrier.has_left() {
            (self.silence, self.call) = (Silence::default(), None);
            return;
        }
        let stall = connection.sockets[number].stall();
        if let Some(silence) = self.silence.is_lasting(stall, now) {
            connection.shift_away(number, Reason::Silent(silence));
        } else if let Some(reason) = self.follows(connection, number, now) {
            if connection.shift_away(number, reason) {
                self.followed = Some(now);
            }
        } else if let Some(own) = own_way(connection, number) {
            self.return_by(own, connection, number, now);
        }
    }

    /// Why it follows connections of other links, if it does. See [Note: Lost ways].
    fn follows(&self, link: &TcpConnection, number: usize, now: Instant) -> Option<Reason> {
        let has_rails = link.renewal.as_ref().is_some_and(Renewal::has_rails);
        if !has_rails || !losses::is_any(self.followed, now) {
            return None;
        }
        let socket = &link.sockets[number];
        let (ends, quiet) = (socket.ends()?, socket.quiet()?);
        let concern = losses::concern(ends, quiet, self.followed, now)?;
        Some(Reason::Lost { quiet, concern })
    }

    /// Calls over the connection's own network if it runs over another one, without waiting.
    fn return_by(&mut self, own: Way, link: &Arc<TcpConnection>, number: usize, now: Instant) {
        let Some(ends) = link.sockets[number].ends() else {
            return;
        };
        if self.home.is_call_due(own.is_between(ends), now) {
            self.call = Connecting::start(own.source, own.target).ok();
        } else if let Some(call) = self.call.take() {
            if !call.is_over() {
                self.call = Some(call).filter(|_| self.home.is_called(now));
            } else if let Ok(stream) = call.finish() {
                link.shift_home(number, stream);
            }
        }
    }
}

/// The way to which a connection returns: the end that has made the link calls, until it closes it.
fn own_way(connection: &TcpConnection, number: usize) -> Option<Way> {
    let returns = |renewal: &Renewal| renewal.calls && renewal.has_rails();
    let calls = connection.renewal.as_ref().is_some_and(returns);
    let own = connection.ways[number].first().copied();
    own.filter(|_| calls && connection.check().is_ok())
}

/// Whether a connection's network is silent.
#[derive(Default)]
struct Silence {
    since: Option<Instant>,
    /// When this was last acted on.
    acted: Option<Instant>,
}

impl Silence {
    /// For how long it has been silent, if that is to be acted on.
    fn is_lasting(&mut self, stall: Option<Stall>, now: Instant) -> Option<Duration> {
        let Some(stall) = stall.filter(|stall| stall.silence >= RECENT) else {
            self.since = None;
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let recently = |acted: Instant| now - acted < ATTEMPTS;
        if now - since < CONFIRMED + 2 * stall.round_trip || self.acted.is_some_and(recently) {
            return None;
        }
        self.acted = Some(now);
        Some(stall.silence)
    }
}

/// Whether a connection runs over its own network, and when that is called if not.
#[derive(Default)]
struct Home {
    /// Since when it does.
    since: Option<Instant>,
    /// It did at some time.
    has_been: bool,
    pause: Duration,
    called: Option<Instant>,
}

impl Home {
    /// Whether it is time to call.
    fn is_call_due(&mut self, is_home: bool, now: Instant) -> bool {
        if is_home {
            self.since.get_or_insert(now);
            (self.has_been, self.called) = (true, None);
            return false;
        }
        if let Some(since) = self.since.take() {
            self.pause = match now - since < STABLE {
                true => (2 * self.pause).clamp(RETURN_PAUSE_MIN, RETURN_PAUSE_MAX),
                false => RETURN_PAUSE_MIN,
            };
        }
        // If it never did, its network was lost when the link was made, or leads elsewhere.
        self.pause = self.pause.max(RETURN_PAUSE_MIN);
        let called = *self.called.get_or_insert(now);
        let due = now - called >= self.pause;
        if due {
            self.called = Some(now);
            if !self.has_been {
                self.pause = (2 * self.pause).min(RETURN_PAUSE_MAX);
            }
        }
        due
    }

    /// Whether the last call may still be answered.
    fn is_called(&self, now: Instant) -> bool {
        self.called
            .is_some_and(|called| now - called < CALL_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn stall(silence: u32, round_trip: u32) -> Option<Stall> {
        Some(Stall {
            silence: silence * MS,
            round_trip: round_trip * MS,
            tries: 1,
            is_idle: false,
        })
    }

    /// Whether each of these looks, one period after the other, finds a lasting silence.
    fn found(looks: &[Option<Stall>]) -> Vec<bool> {
        let (mut silence, start) = (Silence::default(), Instant::now());
        let looks = looks.iter().zip(0..);
        let found =
            looks.map(|(stall, number)| silence.is_lasting(*stall, start + number * PERIOD));
        found.map(|silence| silence.is_some()).collect()
    }

    #[test]
    fn silence_lasts_from_the_second_look_on() {
        let looks = [None, stall(210, 0), stall(310, 0), stall(410, 0)];
        assert_eq!(found(&looks), [false, false, true, false]);
    }

    #[test]
    fn network_that_answers_late_is_not_silent() {
        assert_eq!(
            found(&[stall(210, 0), stall(50, 0), stall(210, 0)]),
            [false; 3]
        );
        assert_eq!(found(&[stall(210, 0), None, stall(210, 0)]), [false; 3]);
        // The answer may still be on the way.
        assert_eq!(found(&[stall(210, 100), stall(310, 100)]), [false; 2]);
    }

    #[test]
    fn attempts_have_a_pause() {
        let looks: Vec<_> = (2..12).map(|look| stall(100 * look, 0)).collect();
        let acted = found(&looks).into_iter().filter(|acted| *acted).count();
        assert_eq!(acted, 3);
    }

    /// The pauses before the first calls, of a network that is used for these times.
    fn pauses(uses: &[Duration]) -> Vec<Duration> {
        let (mut home, mut now) = (Home::default(), Instant::now());
        let mut pauses = Vec::new();
        for used in uses {
            assert!(!home.is_call_due(true, now));
            now += *used;
            let lost = now;
            while !home.is_call_due(false, now) {
                now += PERIOD;
            }
            pauses.push(now - lost);
        }
        pauses
    }

    #[test]
    fn network_that_is_lost_again_soon_is_called_later() {
        let second = 1000 * MS;
        let used = [60, 1, 1, 20].map(|seconds| seconds * second);
        assert_eq!(pauses(&used), [1, 2, 4, 1].map(|seconds| seconds * second));
        assert_eq!(*pauses(&[second; 9]).last().unwrap(), RETURN_PAUSE_MAX);
    }

    #[test]
    fn network_that_has_never_answered_is_called_less_and_less_often() {
        let (mut home, start) = (Home::default(), Instant::now());
        let second = 1000 * MS;
        let calls = (0..100).filter(|at| home.is_call_due(false, start + *at * second));
        assert_eq!(calls.collect::<Vec<u32>>(), [1, 3, 7, 15, 31, 63, 95]);
        // It does, and is lost again after a while.
        let later = 200 * second;
        assert!(!home.is_call_due(true, start + later));
        assert!(!home.is_call_due(false, start + 2 * later));
        assert!(home.is_call_due(false, start + 2 * later + second));
    }
}
