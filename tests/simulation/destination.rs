//! The worker of one set: a model of `src/engine/set.rs` and `src/engine/polling.rs`.

use std::collections::BTreeMap;

use resyncd::clock::Now;
use resyncd::protocol::SourceTime;
use resyncd::sync::{Pacing, Schedule, Sequencer, Span};

use super::disk::{Baseline, Disk};
use super::source::{ChangeLists, SetNo};
use super::world::{Halt, Settings, World};

/// What a worker has in memory: all of it is gone when the process ends.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    set: SetNo,
    pub(crate) sequencer: Sequencer,
    pub(crate) schedule: Schedule,
    /// The last delivery that was looked at.
    pub(crate) seen: i64,
    /// The Change List that was read last, and what it covers.
    pub(crate) last_list: Option<(u32, Span)>,
    /// Up to where the lists of an index reach that were asked for.
    pub(crate) reached: BTreeMap<u32, Option<SourceTime>>,
    pub(crate) is_awake: bool,
}

impl Worker {
    pub(crate) fn new(now: Now, settings: Settings, disk: &Disk, set: SetNo) -> Self {
        let row = &disk.sets[set];
        Self {
            set,
            sequencer: Sequencer::new(settings.limits, row.coverage.clone(), row.gaps.clone())
                .with_read_until(row.read_until),
            schedule: Schedule::new(now, settings.poll_interval),
            seen: 0,
            last_list: None,
            reached: BTreeMap::new(),
            is_awake: true,
        }
    }

    pub(crate) fn can_follow(&self, disk: &Disk) -> bool {
        disk.sets[self.set].baseline != Baseline::Missing
    }
}

impl World {
    pub(crate) fn work_on(&mut self, set: SetNo) -> Result<(), Halt> {
        self.workers[set].is_awake = false;
        if self.workers[set].schedule.next_deadline() <= self.now().mono {
            self.poll(set)?;
        }
        if self.workers[set].can_follow(&self.disk) {
            self.work_inbox(set)?;
        }
        Ok(())
    }

    fn poll(&mut self, set: SetNo) -> Result<(), Halt> {
        self.requests.polls += 1;
        let looked = self.look(set);
        let now = self.now();
        let pacing = match looked {
            Err(Halt::Crash) => return Err(Halt::Crash),
            Err(Halt::Unreachable) => Pacing::Soon,
            Ok(pacing) => pacing,
        };
        self.workers[set].schedule.polled(now, pacing);
        let moment = self.moment;
        self.transact(|disk| disk.retry_failed(moment, set))
    }

    fn look(&mut self, set: SetNo) -> Result<Pacing, Halt> {
        let refreshed = self.refresh_offers(set);
        if refreshed == Err(Halt::Crash) {
            return Err(Halt::Crash);
        }
        let begins = self.disk.sets[set].baseline == Baseline::Missing;
        if begins {
            self.read_resource_list(set, true)?;
        }
        let filled = self.fill_gaps(set, begins);
        if filled == Err(Halt::Crash) {
            return filled;
        }
        refreshed?;
        filled
    }

    /// Asks which Change List the Capability List names.
    pub(crate) fn refresh_offers(&mut self, set: SetNo) -> Result<(), Halt> {
        self.request_document()?;
        let offered = self.source.lists(set).last().map(|list| list.key);
        if self.disk.sets[set].offered != offered {
            self.transact(|disk| disk.sets[set].offered = offered)?;
        }
        Ok(())
    }

    /// Reads the Change Lists, and the Resource List if a gap needs it, or if nothing else tells of changes;
    /// unless that was read just now.
    pub(crate) fn fill_gaps(&mut self, set: SetNo, list_is_fresh: bool) -> Result<Pacing, Halt> {
        let read = match self.source.habits.change_lists {
            ChangeLists::Absent => Ok(None),
            _ => self.read_change_lists(set).map(Some),
        };
        if read == Err(Halt::Crash) {
            return Err(Halt::Crash);
        }
        let span = read.ok().flatten();
        let now = self.now();
        let Worker {
            schedule,
            sequencer,
            ..
        } = &mut self.workers[set];
        if schedule.needs_resource_list(now, span, sequencer.gaps()) && !list_is_fresh {
            self.read_resource_list(set, false)?;
        }
        let worker = &mut self.workers[set];
        let is_open = !worker.sequencer.gaps().is_empty();
        worker.schedule.gap(now, is_open);
        read.map(|_| {
            if is_open {
                Pacing::Soon
            } else {
                Pacing::Regular
            }
        })
    }

    /// Asks for a document; the network may be down.
    pub(crate) fn request_document(&mut self) -> Result<(), Halt> {
        self.requests.documents += 1;
        if self.documents_down {
            return Err(Halt::Unreachable);
        }
        Ok(())
    }
}
