//! One suite that every transport passes.
//!
//! A transport's crate says how to make one ([`Subject`]) and calls [`crate::conformance_tests!`], which makes one test
//! of each case. Both endpoints of a case live in the test's process, so every case can see both sides.

pub mod connecting;
pub mod ending;
pub mod memory;
pub mod messages;
mod pair;
pub mod waking;

use std::sync::Arc;

pub use pair::{Events, Pair, Received, Side, connect, deadline, listening};

use crate::{Local, Transport};

/// A transport under test.
pub struct Subject {
    /// Makes the transport for an endpoint.
    pub make: fn(Local) -> Arc<dyn Transport>,
    /// Whether the receiver checks each write against what it granted.
    pub checks_writes: bool,
    /// Whether messages can carry descriptors.
    pub passes_descriptors: bool,
}

/// Makes a test of every case of the suite. The argument is an expression of type [`Subject`](conformance::Subject).
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr) => {
        $crate::conformance_tests! { @cases $subject;
            memory: put_lands_where_it_should;
            memory: put_is_there_when_its_signal_is;
            memory: signals_take_effect_in_order;
            memory: puts_from_many_threads_all_land;
            memory: large_puts_in_pieces_arrive_whole;
            memory: a_put_of_nothing_still_signals;
            memory: small_puts_are_done_at_once;
            memory: a_write_outside_the_pool_does_no_harm;
            memory: writes_to_a_revoked_range_are_dropped;
            memory: a_write_to_a_range_never_granted_ends_the_link;
            memory: an_abandoned_put_leaves_the_link_usable;
            memory: a_peers_memory_outlives_the_peer;
            messages: messages_of_all_lengths_arrive_in_order;
            messages: both_directions_at_once;
            messages: a_message_sent_before_a_signal_is_there_when_the_signal_is;
            messages: messages_and_puts_interleave;
            messages: a_flood_is_queued_and_arrives;
            messages: order_holds_behind_a_flood;
            messages: an_overlong_message_is_an_error;
            messages: descriptors_pass_where_they_can;
            messages: mail_and_messages_keep_their_order;
            messages: mail_is_found_where_it_lies;
            connecting: both_sides_learn_who_the_peer_is;
            connecting: simultaneous_attempts_make_one_link;
            connecting: a_wrong_token_is_refused_unasked;
            connecting: nobody_listening_is_noticed_by_the_deadline;
            connecting: an_attempt_can_be_cancelled;
            connecting: many_peers_connect_at_once;
            connecting: nobody_gets_in_after_close;
            ending: a_dropped_link_is_gone;
            ending: a_closed_link_has_left;
            ending: messages_before_the_goodbye_arrive;
            ending: mail_before_the_end_arrives;
            ending: closing_with_unread_traffic_is_still_a_goodbye;
            ending: closing_behind_a_flood_is_still_a_goodbye;
            ending: closing_twice_is_closing_once;
            ending: closing_while_threads_put_ends_them;
            ending: links_outlive_their_transport;
            waking: a_signal_wakes_a_sleeper;
            waking: a_message_wakes_a_sleeper;
            waking: mail_wakes_a_sleeper;
            waking: a_death_wakes_a_sleeper;
            waking: ping_pong_never_misses_a_wake;
        }
    };
    (@cases $subject:expr; $($module:ident: $case:ident;)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$module::$case(&$subject);
            }
        )*
    };
}
