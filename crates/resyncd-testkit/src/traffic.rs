//! Random changes of the sample Source, with some notifications lost, duplicated or reordered.
//!
//! Everything is determined by a seed, never by time, so that runs are reproducible. Nothing grows without bound: names come from a
//! pool, Change Lists are closed, the oldest are dropped, and then a new Resource List is published.

use std::collections::BTreeSet;

use super::{Notification, SampleSource};

/// The shortest text, in bytes: it has room for its first line.
const SHORTEST_TEXT: usize = 32;

/// The parameters of the traffic.
#[derive(Clone, Debug)]
pub struct TrafficOptions {
    /// The set that changes.
    pub set: String,
    /// Determines everything that happens.
    pub seed: u64,
    /// The maximum number of resources.
    pub names: usize,
    /// The length of a resource is below this, in bytes, but at least 32.
    pub max_size: usize,
    /// Notifications lost, per thousand.
    pub lost: u32,
    /// Notifications published twice, per thousand.
    pub doubled: u32,
    /// Notifications published after the next one, per thousand.
    pub reordered: u32,
    /// After how many changes a Change List is closed.
    pub changes_per_list: usize,
    /// How many closed Change Lists are retained.
    pub lists_retained: usize,
}

impl Default for TrafficOptions {
    fn default() -> Self {
        Self {
            set: "set1".to_owned(),
            seed: 1,
            names: 300,
            max_size: 4096,
            lost: 30,
            doubled: 30,
            reordered: 30,
            changes_per_list: 500,
            lists_retained: 4,
        }
    }
}

/// How a notification is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmission {
    /// Published once, in order.
    Published,
    /// Not published.
    Lost,
    /// Published twice.
    Doubled,
    /// Published after the next one.
    Reordered,
}

/// An event of the traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficEvent {
    /// A notification was made.
    Notified {
        /// Its number, from 1.
        number: u64,
        /// How many changes it has.
        changes: usize,
        /// How it is sent.
        transmission: Transmission,
    },
    /// A Change List was closed, and old ones were dropped.
    Rolled {
        /// How many lists were dropped; if any, a new Resource List was published.
        dropped: usize,
    },
    /// A notification could not be sent to the hub.
    Failed {
        /// Its number.
        number: u64,
        /// Why.
        reason: String,
    },
}

/// Changes a Source.
pub struct Traffic {
    source: SampleSource,
    options: TrafficOptions,
    random: SplitMix64,
    present: BTreeSet<String>,
    number: u64,
    changes_in_list: usize,
    /// Notifications to publish after the next one.
    late: Vec<(u64, Notification)>,
}

impl Traffic {
    /// Changes the Source by [`step`](Self::step).
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
            random: SplitMix64(options.seed),
            options,
            present,
            number: 0,
            changes_in_list: 0,
            late: Vec::new(),
        }
    }

    /// Makes so many changes and one notification of them, and sends it. With 0 changes it does nothing.
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
        let transmission = self.draw_transmission();
        let mut events = vec![TrafficEvent::Notified {
            number,
            changes,
            transmission,
        }];
        let late = std::mem::take(&mut self.late);
        let mut sent = Vec::new();
        match transmission {
            Transmission::Published => sent.push((number, notification)),
            Transmission::Lost => {}
            Transmission::Doubled => {
                sent.extend([(number, notification.clone()), (number, notification)])
            }
            Transmission::Reordered => self.late.push((number, notification)),
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

    /// Closes the Change List if it is long enough.
    fn roll(&mut self, changes: usize) -> Option<TrafficEvent> {
        self.changes_in_list += changes;
        if self.changes_in_list < self.options.changes_per_list {
            return None;
        }
        self.changes_in_list = 0;
        let set = &self.options.set;
        self.source.roll_change_list(set);
        let retained = self.options.lists_retained;
        let dropped = self.source.drop_old_change_lists(set, retained);
        if dropped > 0 {
            self.source.refresh_resource_list(set);
        }
        Some(TrafficEvent::Rolled { dropped })
    }

    fn change_something(&mut self) {
        let set = &self.options.set;
        let pool = self.options.names.max(1) as u64;
        let name = format!("r{:04}.txt", self.random.below(pool));
        let content = self.random.text(self.options.max_size);
        if !self.present.contains(&name) {
            self.source.create(set, &name, content);
            self.present.insert(name);
        } else if self.random.below(5) == 0 {
            self.source.delete(set, &name);
            self.present.remove(&name);
        } else {
            self.source.update(set, &name, content);
        }
    }

    fn draw_transmission(&mut self) -> Transmission {
        let options = &self.options;
        let drawn = self.random.below(1000);
        let lost = u64::from(options.lost);
        let doubled = lost + u64::from(options.doubled);
        let reordered = doubled + u64::from(options.reordered);
        match drawn {
            drawn if drawn < lost => Transmission::Lost,
            drawn if drawn < doubled => Transmission::Doubled,
            drawn if drawn < reordered => Transmission::Reordered,
            _ => Transmission::Published,
        }
    }
}

/// A small pseudorandom number generator (SplitMix64).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A text that is almost certainly unique. It repeats its first line, which states its length, so that a truncated text is
    /// recognisable.
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
