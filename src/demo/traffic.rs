//! A Source that keeps changing, and a network that now and then loses, doubles or reorders a notification.
//!
//! What happens is decided by a seed alone, never by time, so that two runs do the same. Nothing grows without bound: names come
//! from a pool, Change Lists are rolled and the oldest are dropped, and the Resource List is published anew when they are.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{Notification, SampleSource};

/// The most notifications a second: faster changes share one.
const MAX_NOTIFICATIONS_PER_SECOND: f64 = 20.0;
/// The shortest text, in bytes: its first line is whole.
const SHORTEST_TEXT: usize = 32;
/// How many events wait for a reader that is slow; what comes beyond is not told.
const WAITING_EVENTS: usize = 256;

/// What the traffic is like.
#[derive(Clone, Debug)]
pub struct TrafficOptions {
    /// The set that changes.
    pub set: String,
    /// How many changes there are in a second, on average.
    pub changes_per_second: f64,
    /// Decides all that happens.
    pub seed: u64,
    /// How many resources there are at most.
    pub names: usize,
    /// The length of a resource is below this, in bytes; but for the shortest, of 32.
    pub max_size: usize,
    /// How many of a thousand notifications are lost.
    pub lost: u32,
    /// How many of a thousand are delivered twice.
    pub doubled: u32,
    /// How many of a thousand come after the one behind them.
    pub reordered: u32,
    /// How many changes close a Change List.
    pub changes_per_list: usize,
    /// How many closed Change Lists are kept.
    pub lists_kept: usize,
}

impl Default for TrafficOptions {
    fn default() -> Self {
        Self {
            set: "set1".to_owned(),
            changes_per_second: 2.0,
            seed: 1,
            names: 300,
            max_size: 4096,
            lost: 30,
            doubled: 30,
            reordered: 30,
            changes_per_list: 500,
            lists_kept: 4,
        }
    }
}

/// What becomes of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is published.
    Published,
    /// It is not published at all.
    Lost,
    /// It is published twice.
    Doubled,
    /// It is published after the next one.
    Reordered,
}

/// Something that the traffic did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficEvent {
    /// A notification was made.
    Notified {
        /// Its number, from 1.
        number: u64,
        /// How many changes it tells.
        changes: usize,
        /// What becomes of it.
        fate: Fate,
    },
    /// A Change List was closed, and so many of the oldest were dropped.
    Rolled {
        /// How many lists were dropped; if any, the Resource List was published anew.
        dropped: usize,
    },
    /// A notification could not be handed to the hub.
    Failed {
        /// Its number.
        number: u64,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for TrafficEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Notified {
                number,
                changes,
                fate,
            } => {
                let plural = if *changes == 1 { "" } else { "s" };
                write!(f, "notification {number}: {changes} change{plural}")?;
                f.write_str(match fate {
                    Fate::Published => "",
                    Fate::Lost => ", lost on purpose",
                    Fate::Doubled => ", sent twice on purpose",
                    Fate::Reordered => ", sent after the next one on purpose",
                })
            }
            Self::Rolled { dropped: 0 } => f.write_str("Change List closed, the next one begun"),
            Self::Rolled { dropped } => write!(
                f,
                "Change List closed, the next one begun; {dropped} old dropped, Resource List published anew"
            ),
            Self::Failed { number, reason } => write!(f, "notification {number}: {reason}"),
        }
    }
}

/// A Source that keeps changing.
pub struct Traffic {
    source: SampleSource,
    options: TrafficOptions,
    dice: Dice,
    present: BTreeSet<String>,
    number: u64,
    changes_in_list: usize,
    /// Notifications that come after the next one.
    late: Vec<(u64, Notification)>,
}

impl Traffic {
    /// Changes the Source at that pace until it is cancelled. What it does comes out of the receiver; a reader that is slow
    /// misses some of it and holds nothing up.
    pub fn run(
        source: SampleSource,
        options: TrafficOptions,
        cancel: CancellationToken,
    ) -> mpsc::Receiver<TrafficEvent> {
        let (events, receiver) = mpsc::channel(WAITING_EVENTS);
        let rate = options.changes_per_second.clamp(0.001, 100_000.0);
        let notifications = rate.min(MAX_NOTIFICATIONS_PER_SECOND);
        let mut traffic = Self::new(source, options);
        tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_secs_f64(1.0 / notifications));
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut owed = 0.0;
            loop {
                tokio::select! {
                    () = cancel.cancelled() => return,
                    _ = pace.tick() => {}
                }
                owed += rate / notifications;
                // Never negative, and never more than a batch and a bit.
                let changes = owed as usize;
                owed -= changes as f64;
                for event in traffic.step(changes).await {
                    let _ = events.try_send(event);
                }
            }
        });
        receiver
    }

    /// Traffic that goes on only when it is stepped.
    #[must_use]
    pub fn new(source: SampleSource, options: TrafficOptions) -> Self {
        let beginning = source.resource_uri(&options.set, "");
        let present = source
            .state(&options.set)
            .into_keys()
            .filter_map(|uri| uri.strip_prefix(beginning.as_str()).map(str::to_owned))
            .collect();
        Self {
            source,
            dice: Dice(options.seed),
            options,
            present,
            number: 0,
            changes_in_list: 0,
            late: Vec::new(),
        }
    }

    /// Makes so many changes and one notification of them, and lets it have its fate. Without changes nothing happens.
    pub async fn step(&mut self, changes: usize) -> Vec<TrafficEvent> {
        if changes == 0 {
            return Vec::new();
        }
        for _ in 0..changes {
            self.change_something();
        }
        self.number += 1;
        let number = self.number;
        let notification = self.source.notify(&self.options.set);
        let fate = self.draw_fate();
        let mut events = vec![TrafficEvent::Notified {
            number,
            changes,
            fate,
        }];
        let late = std::mem::take(&mut self.late);
        let mut sent = Vec::new();
        match fate {
            Fate::Published => sent.push((number, notification)),
            Fate::Lost => {}
            Fate::Doubled => sent.extend([(number, notification.clone()), (number, notification)]),
            Fate::Reordered => self.late.push((number, notification)),
        }
        sent.extend(late);
        for (number, notification) in sent {
            if let Err(error) = self.source.publish(&notification).await {
                let reason = error.to_string();
                events.push(TrafficEvent::Failed { number, reason });
            }
        }
        events.extend(self.roll(changes));
        events
    }

    /// Closes the Change List when it is long enough.
    fn roll(&mut self, changes: usize) -> Option<TrafficEvent> {
        self.changes_in_list += changes;
        if self.changes_in_list < self.options.changes_per_list {
            return None;
        }
        self.changes_in_list = 0;
        let set = &self.options.set;
        self.source.roll_change_list(set);
        let kept = self.options.lists_kept;
        let dropped = self.source.drop_old_change_lists(set, kept);
        if dropped > 0 {
            self.source.refresh_resource_list(set);
        }
        Some(TrafficEvent::Rolled { dropped })
    }

    fn change_something(&mut self) {
        let set = &self.options.set;
        let pool = self.options.names.max(1) as u64;
        let name = format!("r{:04}.txt", self.dice.below(pool));
        let content = self.dice.text(self.options.max_size);
        if !self.present.contains(&name) {
            self.source.create(set, &name, content);
            self.present.insert(name);
        } else if self.dice.below(5) == 0 {
            self.source.delete(set, &name);
            self.present.remove(&name);
        } else {
            self.source.update(set, &name, content);
        }
    }

    fn draw_fate(&mut self) -> Fate {
        let options = &self.options;
        let drawn = self.dice.below(1000);
        let lost = u64::from(options.lost);
        let doubled = lost + u64::from(options.doubled);
        let reordered = doubled + u64::from(options.reordered);
        match drawn {
            drawn if drawn < lost => Fate::Lost,
            drawn if drawn < doubled => Fate::Doubled,
            drawn if drawn < reordered => Fate::Reordered,
            _ => Fate::Published,
        }
    }
}

/// A small generator of numbers that look random (SplitMix64): the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A text that hardly ever comes twice. Its first line, which tells its length, comes over and over: half of it is known for
    /// what it is.
    fn text(&mut self, max_size: usize) -> Vec<u8> {
        let drawn = self.below(max_size as u64) as usize;
        let number = self.next();
        let length = drawn.max(SHORTEST_TEXT);
        let line = format!("{length} {number:016x}\n");
        line.bytes().cycle().take(length).collect()
    }
}

#[cfg(test)]
mod tests;
