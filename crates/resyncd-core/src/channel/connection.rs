//! The machine of a channel that is a connection of its own, to the Source and not over a hub (Notification 0.8, section 6): when it
//! is opened, and what it means that it is lost.
//!
//! It is `pending` until its first connection, `active` while one is open, and `expired` from the end of one to the beginning of the
//! next. Nothing shows what was missed between two, so that each one begins anew, as a subscription does, and causes a poll.
//!
//! A registration of a callback at the Source (version 0.1, section 5.2.2) has the same steps: what is opened here is requested there.
//! It is `active` once the Source has accepted it. It has no end that anything would state: it is requested again by each process, and
//! when it has fallen silent.
//!
//! A server does not set the pace: however often it ends connections, they are opened after growing pauses, and no more often than
//! subscriptions are requested.
//!
//! The channel is stored; the connection ends with the process, and a registration counts for one process only. The driver passes
//! what has happened, each in a transaction of its own.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::Channel;
use crate::ChannelState;

/// A connection that has lasted so long has worked: the next pause is a short one again.
const LASTING: TimeDelta = TimeDelta::minutes(1);

/// What the driver of a connection is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStep {
    /// Open it.
    Open,
    /// Leave it open.
    Stay,
    /// Wait until this time of the wall clock, or until the stored channel changes.
    WaitUntil(DateTime<Utc>),
    /// End what outlives connections: the channel is left, and none is open.
    Leave,
    /// Close it for good: the channel has ended.
    End,
}

impl Channel {
    /// A driver begins: there is no connection, whatever is stored.
    pub fn begin_connecting(&mut self, now: DateTime<Utc>) {
        if self.is_ending() {
            return;
        }
        let lease = &mut self.lease;
        if lease.state == ChannelState::Active {
            // It was open until the process ended: the request that opened it is not the one that is missing an answer.
            lease.asked_at = None;
        }
        lease.state = ChannelState::Pending;
        lease.next_try_at = Some(lease.not_before.map_or(now, |at| at.max(now)));
    }

    /// What is to be done now. After [`ConnectionStep::Open`] the attempt counts as failed until [`connected`](Self::connected), after
    /// [`ConnectionStep::Leave`] until [`ended`](Self::ended).
    pub fn next_connection_step(&mut self, now: DateTime<Utc>) -> ConnectionStep {
        let has_ended = self.lease.state == ChannelState::Unsubscribed;
        if has_ended || self.is_unwanted && !self.transport.outlives_connections() {
            self.lease.end();
            return ConnectionStep::End;
        }
        if !self.is_unwanted && self.lease.state == ChannelState::Active {
            return ConnectionStep::Stay;
        }
        if self.lease.handle_timeout(now) {
            self.lease.begin_attempt(now);
            return if self.is_unwanted {
                ConnectionStep::Leave
            } else {
                ConnectionStep::Open
            };
        }
        ConnectionStep::WaitUntil(self.next_deadline(now))
    }

    /// Whether the open connection is to be closed: it is not wanted any more, or it has fallen silent.
    pub fn is_to_be_closed(&self) -> bool {
        self.is_ending() || self.lease.state != ChannelState::Active
    }

    /// The connection is open.
    pub fn connected(&mut self) {
        if !self.is_ending() {
            self.lease.state = ChannelState::Active;
            self.lease.next_try_at = None;
            self.begun = self.begun.wrapping_add(1);
        }
    }

    /// The Source has registered the callback.
    pub fn registered(&mut self) {
        if !self.is_ending() {
            self.connected();
            self.lease.failures = 0;
            self.lease.not_before = None;
        }
    }

    /// No connection could be opened. `retry_after`: the server's `Retry-After`. `spread`, from 0 to 1, selects the time of the next
    /// attempt, so that not all Destinations of a Source return at the same moment.
    pub fn unconnected(&mut self, now: DateTime<Utc>, retry_after: Option<Duration>, spread: f64) {
        if !self.is_ending() {
            self.fail_connection(now, retry_after, spread);
        }
    }

    /// What outlives connections has ended, of a channel that is left.
    pub fn ended(&mut self) {
        if self.is_unwanted {
            self.lease.end();
        }
    }

    /// What outlives connections could not be ended. `spread`: as that of [`unconnected`](Self::unconnected).
    pub fn not_ended(&mut self, now: DateTime<Utc>, spread: f64) {
        if self.is_unwanted && self.lease.state != ChannelState::Unsubscribed {
            self.fail_connection(now, None, spread);
        }
    }

    /// The connection that was open has ended: it is lost, or was closed because it has fallen silent. `spread`: as that of
    /// [`unconnected`](Self::unconnected).
    pub fn disconnected(&mut self, now: DateTime<Utc>, spread: f64) {
        if self.is_ending() {
            return;
        }
        let lease = &mut self.lease;
        // It may have been given up before, as a silence does.
        let has_lasted = |begun: DateTime<Utc>| (now - begun).abs() >= LASTING;
        if lease.asked_at.is_some_and(has_lasted) {
            lease.failures = 0;
        }
        if lease.state == ChannelState::Active {
            lease.lose();
        }
        self.fail_connection(now, None, spread);
    }

    fn fail_connection(&mut self, now: DateTime<Utc>, retry_after: Option<Duration>, spread: f64) {
        self.lease.fail_request(now, retry_after);
        let pause = self.lease.pause().to_std().unwrap_or_default();
        let jitter = pause.mul_f64(spread.clamp(0.0, 1.0) / 2.0);
        let jitter = TimeDelta::from_std(jitter).unwrap_or_default();
        self.lease.next_try_at = self.lease.next_try_at.map(|at| at + jitter);
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::{TopicUri, Transport};

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn channel() -> Channel {
        let uri = Url::parse("ws://example.org/changes").unwrap();
        let topic = TopicUri::of_channel(uri).unwrap();
        Channel::without_hubs(Transport::Websocket, at(0), &topic)
    }

    /// The request that opened a connection has been answered; one that has not been answered yet is still missing its answer.
    #[test]
    fn connection_that_was_open_waits_for_no_answer() {
        for (is_open, asked_at) in [(true, None), (false, Some(at(0)))] {
            let mut channel = channel();
            assert_eq!(channel.next_connection_step(at(0)), ConnectionStep::Open);
            if is_open {
                channel.connected();
            }
            channel.begin_connecting(at(5));
            let lease = &channel.lease;
            assert_eq!(
                (lease.state, lease.asked_at),
                (ChannelState::Pending, asked_at)
            );
        }
    }

    /// The seconds until the next attempt.
    fn pause(channel: &mut Channel, now: DateTime<Utc>) -> i64 {
        match channel.next_connection_step(now) {
            ConnectionStep::WaitUntil(until) => (until - now).num_seconds(),
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn channel_is_pending_until_it_is_connected_and_expired_until_it_is_again() {
        use ChannelState::{Active, Expired, Pending};
        let mut channel = channel();
        channel.begin_connecting(at(0));
        assert_eq!(channel.lease.state, Pending);
        assert_eq!(channel.next_connection_step(at(0)), ConnectionStep::Open);
        channel.unconnected(at(1), None, 0.0);
        assert_eq!(channel.lease.state, Pending);
        assert_eq!(pause(&mut channel, at(1)), 2);
        assert_eq!(channel.next_connection_step(at(3)), ConnectionStep::Open);
        channel.connected();
        assert_eq!((channel.lease.state, channel.begun), (Active, 1));
        assert!(!channel.is_to_be_closed());
        assert_eq!(channel.next_connection_step(at(1000)), ConnectionStep::Stay);
        channel.disconnected(at(1000), 0.0);
        assert_eq!(channel.lease.state, Expired);
        assert!(channel.is_to_be_closed());
        assert_eq!(pause(&mut channel, at(1000)), 2);
        assert_eq!(channel.next_connection_step(at(1002)), ConnectionStep::Open);
        channel.connected();
        assert_eq!((channel.lease.state, channel.begun), (Active, 2));
        // Another process.
        channel.begin_connecting(at(1003));
        assert_eq!(channel.lease.state, Pending);
        assert_eq!(channel.next_connection_step(at(1005)), ConnectionStep::Open);
    }

    #[test]
    fn pauses_grow_also_where_connections_are_short_and_are_spread() {
        for is_accepted in [false, true] {
            let mut channel = channel();
            let mut now = at(0);
            let mut pauses = Vec::new();
            for _ in 0..8 {
                assert_eq!(channel.next_connection_step(now), ConnectionStep::Open);
                if is_accepted {
                    channel.connected();
                    channel.disconnected(now, 0.0);
                } else {
                    // A server that is slow to refuse has not worked.
                    channel.unconnected(now + TimeDelta::minutes(2), None, 0.0);
                    now += TimeDelta::minutes(2);
                }
                pauses.push(pause(&mut channel, now));
                now += TimeDelta::seconds(pauses[pauses.len() - 1]);
            }
            assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256], "{is_accepted}");
            assert_eq!(channel.next_connection_step(now), ConnectionStep::Open);
            channel.connected();
            let later = now + TimeDelta::minutes(2);
            channel.disconnected(later, 1.0);
            assert_eq!(
                pause(&mut channel, later),
                3,
                "{is_accepted}: one that has lasted"
            );
        }
    }

    #[test]
    fn connections_are_no_more_frequent_than_the_pace_allows() {
        let mut channel = channel();
        let (mut opened, mut last) = (0, 0);
        for second in 0..24 * 3600 {
            if channel.next_connection_step(at(second)) == ConnectionStep::Open {
                (opened, last) = (opened + 1, second);
                channel.connected();
            }
            // Each lasts as long as it must so that the pauses do not grow.
            if second == last + 60 {
                channel.disconnected(at(second), 0.0);
            }
        }
        let most = 12 + 24 * 12;
        assert!((most / 2..=most).contains(&opened), "{opened}");
    }

    #[test]
    fn retry_after_of_the_server_is_respected() {
        let mut channel = channel();
        assert_eq!(channel.next_connection_step(at(0)), ConnectionStep::Open);
        channel.unconnected(at(0), Some(Duration::from_secs(90)), 0.0);
        assert_eq!(pause(&mut channel, at(0)), 90);
    }

    #[test]
    fn silent_connection_is_closed_and_opened_anew() {
        let mut channel = channel();
        let mut now = at(0);
        for _ in 0..3 {
            assert_eq!(channel.next_connection_step(now), ConnectionStep::Open);
            channel.connected();
            now += TimeDelta::minutes(2);
            assert!(channel.fall_silent(now).is_some());
            assert!(channel.is_to_be_closed());
            channel.disconnected(now, 0.0);
            assert_eq!(pause(&mut channel, now), 2, "it had worked for a while");
            now += TimeDelta::seconds(2);
        }
    }

    #[test]
    fn callback_is_registered_again_by_each_process_and_after_a_silence() {
        use ChannelState::{Active, Expired, Pending};
        let uri = Url::parse("http://example.org/subscribe").unwrap();
        let topic = TopicUri::of_channel(uri).unwrap();
        let mut channel = Channel::without_hubs(Transport::Callback, at(0), &topic);
        channel.begin_connecting(at(0));
        assert!(channel.may_be_subscribed());
        for (begun, second) in [(1, 0), (2, 9000)] {
            assert_eq!(
                channel.next_connection_step(at(second)),
                ConnectionStep::Open
            );
            assert_eq!(channel.lease.state, Pending);
            channel.registered();
            assert_eq!((channel.lease.state, channel.begun), (Active, begun));
            let later = at(second + 8999);
            assert_eq!(channel.next_connection_step(later), ConnectionStep::Stay);
            channel.begin_connecting(later);
        }
        channel.next_connection_step(at(18_000));
        channel.registered();
        assert!(channel.fall_silent(at(20_000)).is_some());
        assert_eq!(channel.lease.state, Expired);
        assert_eq!(
            channel.next_connection_step(at(20_000)),
            ConnectionStep::Open
        );
        channel.unconnected(at(20_000), None, 0.0);
        assert_eq!(pause(&mut channel, at(20_000)), 2, "it had worked");
    }

    #[test]
    fn registrations_that_keep_falling_silent_are_paced() {
        let mut channel = channel();
        let mut registered = 0;
        for second in 0..24 * 3600 {
            if channel.next_connection_step(at(second)) == ConnectionStep::Open {
                registered += 1;
                channel.registered();
            }
            channel.fall_silent(at(second));
        }
        let most = 12 + 24 * 12;
        assert!((most / 2..=most).contains(&registered), "{registered}");
    }

    #[test]
    fn channel_that_is_left_ends_and_may_be_wanted_again() {
        let mut channel = channel();
        channel.next_connection_step(at(0));
        channel.connected();
        assert!(channel.may_be_subscribed());
        channel.leave(at(1));
        assert!(channel.is_to_be_closed());
        assert_eq!(channel.next_connection_step(at(1)), ConnectionStep::End);
        assert_eq!(channel.lease.state, ChannelState::Unsubscribed);
        assert!(!channel.may_be_subscribed());
        channel.disconnected(at(2), 0.0);
        channel.unconnected(at(2), None, 0.0);
        channel.connected();
        assert_eq!(channel.lease.state, ChannelState::Unsubscribed);
        channel.want(at(9), &[]);
        channel.begin_connecting(at(9));
        assert_eq!(channel.next_connection_step(at(9)), ConnectionStep::Open);
    }

    #[test]
    fn subscription_that_outlives_connections_is_ended_until_that_is_confirmed() {
        let uri = Url::parse("xmpp:pubsub.example.org?;node=changes").unwrap();
        let topic = TopicUri::of_channel(uri).unwrap();
        let mut channel = Channel::without_hubs(Transport::Xmpp, at(0), &topic);
        channel.ended();
        assert_eq!(channel.next_connection_step(at(0)), ConnectionStep::Open);
        channel.connected();
        channel.leave(at(1));
        assert!(channel.is_to_be_closed());
        assert_eq!(channel.next_connection_step(at(1)), ConnectionStep::Leave);
        let mut now = at(1);
        for expected in [2, 4, 8] {
            channel.not_ended(now, 0.0);
            // A driver that is started again does not begin anew.
            channel.begin_connecting(now);
            assert!(channel.may_be_subscribed());
            assert_eq!(pause(&mut channel, now), expected);
            now += TimeDelta::seconds(expected);
            assert_eq!(channel.next_connection_step(now), ConnectionStep::Leave);
        }
        channel.ended();
        channel.not_ended(now, 0.0);
        assert_eq!(channel.next_connection_step(now), ConnectionStep::End);
        assert!(!channel.may_be_subscribed());
        channel.want(now, &[]);
        channel.begin_connecting(now);
        assert_eq!(channel.next_connection_step(now), ConnectionStep::Open);
    }

    #[test]
    fn clock_that_is_set_back_costs_no_more_than_a_pause() {
        let mut channel = channel();
        channel.next_connection_step(at(0));
        channel.unconnected(at(0), None, 0.0);
        let before = at(-7 * 24 * 3600);
        assert!(pause(&mut channel, before) <= 2);
    }
}
