//! The conformance suite for all transports.
//!
//! A transport's crate defines how to make one ([`Subject`]) and calls
//! [`crate::conformance_tests!`], which generates one test per case. Both endpoints of a case live
//! in the test's process, so every case can inspect both sides.

pub mod connecting;
pub mod ending;
pub mod memory;
pub mod messages;
pub mod operations;
mod pair;
pub mod redirections;
pub mod regions;
pub mod registrations;
pub mod waking;

pub use pair::{
    Disturb, Events, LinkPair, LinkSide, Received, Subject, TestMemory, bytes_of, connect,
    deadline, disturb_with, listening,
};

/// Makes a test of every case of the suite. The argument is an expression of type
/// [`Subject`](conformance::Subject). A second one, of type [`Disturb`](conformance::Disturb), is
/// called for the links again and again while the cases run.
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr) => {
        $crate::conformance_tests!($subject, |_| ());
    };
    ($subject:expr, $disturb:expr) => {
        $crate::conformance_tests! { @cases $subject, $disturb;
            memory: a_put_fills_exactly_its_range;
            memory: a_put_arrives_before_its_signal;
            memory: signals_take_effect_in_order;
            memory: late_signals_arrive_with_the_next_or_flush;
            memory: urgent_operations_take_effect_in_order;
            memory: puts_from_many_threads_all_arrive;
            memory: large_puts_in_pieces_arrive_whole;
            memory: a_put_without_bytes_still_signals;
            memory: injected_bytes_may_be_reused_immediately;
            memory: more_than_can_be_injected_is_an_error;
            memory: a_write_outside_the_pool_does_no_harm;
            memory: writes_to_a_revoked_range_are_dropped;
            memory: a_write_without_a_grant_ends_the_link;
            memory: a_peers_memory_outlives_the_peer;
            operations: many_puts_are_under_way_together;
            operations: a_full_queue_accepts_nothing;
            operations: order_holds_between_operations_of_all_sizes;
            operations: memory_of_released_puts_is_not_read;
            operations: a_cancelled_put_leaves_the_link_usable;
            operations: a_get_reads_an_earlier_put;
            operations: atomics_of_both_sides_add_up;
            operations: cells_are_swapped_only_from_expected_values;
            operations: malformed_atomics_are_refused;
            operations: unregistered_memory_is_refused_where_needed;
            operations: no_memory_is_accessed_after_the_end;
            redirections: redirected_bytes_arrive_before_their_signal;
            redirections: memory_may_be_freed_once_taken_back;
            redirections: a_redirection_is_taken_back_after_the_end;
            regions: a_region_is_written_by_its_key;
            regions: a_region_is_mapped_where_the_transport_maps;
            regions: a_region_never_granted_is_out_of_reach;
            regions: a_withdrawn_region_is_not_written;
            regions: keys_are_never_reused;
            regions: both_ends_have_the_same_capabilities;
            registrations: registered_memory_is_read_at_its_address;
            registrations: device_memory_is_read_through_its_file;
            registrations: read_only_memory_can_be_registered;
            registrations: a_registration_allows_no_more_than_its_memory;
            registrations: registrations_of_one_memory_end_separately;
            messages: messages_of_all_lengths_arrive_in_order;
            messages: both_directions_at_once;
            messages: a_message_arrives_before_a_later_signal;
            messages: messages_and_puts_interleave;
            messages: a_flood_is_queued_and_arrives;
            messages: order_holds_behind_a_flood;
            messages: an_overlong_message_is_an_error;
            messages: polled_messages_and_messages_keep_their_order;
            messages: polled_messages_are_found_by_polling;
            connecting: both_sides_learn_the_peers_identity;
            connecting: simultaneous_attempts_make_one_link;
            connecting: a_wrong_token_is_refused_without_asking;
            connecting: an_unresponsive_listener_is_detected_by_the_deadline;
            connecting: an_attempt_can_be_cancelled;
            connecting: many_peers_connect_at_once;
            connecting: connections_are_refused_after_close;
            ending: a_dropped_link_is_gone;
            ending: a_closed_link_has_left;
            ending: messages_before_the_goodbye_arrive;
            ending: polled_messages_before_the_end_arrive;
            ending: closing_with_unread_traffic_is_still_a_goodbye;
            ending: closing_behind_a_flood_is_still_a_goodbye;
            ending: closing_twice_is_closing_once;
            ending: closing_while_threads_put_ends_them;
            ending: links_outlive_their_transport;
            waking: a_signal_wakes_a_sleeper;
            waking: a_message_wakes_a_sleeper;
            waking: a_polled_message_wakes_a_sleeper;
            waking: a_completion_wakes_a_sleeper;
            waking: a_death_wakes_a_sleeper;
            waking: ping_pong_never_misses_a_wake;
        }
    };
    (@cases $subject:expr, $disturb:expr; $($module:ident: $case:ident;)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::disturb_with($disturb);
                $crate::conformance::$module::$case(&$subject);
            }
        )*
    };
}
