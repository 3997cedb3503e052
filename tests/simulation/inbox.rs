//! How a set works through its inbox: a model of `src/engine/inbox.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use resyncd::protocol::Digest;
use resyncd::sync::{Gap, NewsFilter, NotificationId, Pacing, Sequencer, Verdict};

use super::disk::{BatchCommit, Origin};
use super::source::{Change, Notification, SetNo, digest};
use super::world::{Halt, World};

impl World {
    /// Works until the inbox holds nothing but notifications that wait for an earlier one.
    pub(crate) fn work_inbox(&mut self, set: SetNo) -> Result<(), Halt> {
        loop {
            self.settle(set)?;
            let after = self.workers[set].seen + 1;
            let mut waiting = self.disk.inbox.range(after..);
            let Some((&id, delivery)) = waiting.find(|(_, delivery)| delivery.set == set) else {
                return Ok(());
            };
            let delivery = Arc::clone(delivery);
            let now = self.now();
            let mut trial = self.workers[set].sequencer.clone();
            let (from, until) = delivery.stated.unzip();
            let verdict = trial.handle(now, id, from, until);
            self.take(trial, id, &delivery, verdict)?;
            self.workers[set].seen = id;
        }
    }

    /// Applies held notifications whose turn has come, and opens a gap where a wait is over.
    fn settle(&mut self, set: SetNo) -> Result<(), Halt> {
        loop {
            let now = self.now();
            let mut trial = self.workers[set].sequencer.clone();
            if let Some((id, verdict)) = trial.next_ready(now) {
                let delivery = Arc::clone(&self.disk.inbox[&id]);
                self.take(trial, id, &delivery, verdict)?;
                continue;
            }
            let Some(gap) = trial.open_gap(now) else {
                return Ok(());
            };
            self.open(set, &trial, &gap)?;
            self.workers[set].sequencer = trial;
            let pacing = match self.fill_gaps(set, false) {
                Err(Halt::Crash) => return Err(Halt::Crash),
                Err(Halt::Unreachable) => Pacing::Soon,
                Ok(pacing) => pacing,
            };
            let now = self.now();
            self.workers[set].schedule.polled(now, pacing);
        }
    }

    /// Puts a gap on record.
    fn open(&mut self, set: SetNo, trial: &Sequencer, gap: &Gap) -> Result<(), Halt> {
        let known = self.workers[set].sequencer.gaps();
        if known.iter().any(|known| known.interval == gap.interval) {
            return Ok(());
        }
        self.requests.gaps += 1;
        let end = end(trial);
        let moment = self.moment;
        self.transact(|disk| disk.apply(moment, set, Origin::Notification, &[], Some(end)))
    }

    /// Does what the sequencer says of a notification, and keeps the sequencer that said it.
    fn take(
        &mut self,
        trial: Sequencer,
        id: NotificationId,
        delivery: &Arc<Notification>,
        verdict: Verdict,
    ) -> Result<(), Halt> {
        let set = delivery.set;
        let is_hint = matches!(verdict, Verdict::Hint(_));
        let unknown = match verdict {
            Verdict::Hold => {
                self.workers[set].sequencer = trial;
                return Ok(());
            }
            Verdict::Known(unknown) | Verdict::Apply(unknown) => unknown,
            Verdict::Hint(_) => {
                self.requests.hints += 1;
                let now = self.now();
                self.workers[set].schedule.soon(now);
                NewsFilter::everything()
            }
        };
        let mut met = BTreeSet::new();
        let mut changes = self.news(&delivery.entries, &unknown);
        changes.reverse();
        changes.retain(|(entry, _)| !unknown.is_late(Some(entry.at)) || met.insert(entry.resource));
        changes.reverse();
        for (entry, _) in &mut changes {
            entry.late = unknown.is_late(Some(entry.at));
        }
        let end = BatchCommit {
            delivery: Some(id),
            ..end(&trial)
        };
        let moment = self.moment;
        self.step()?;
        self.disk
            .apply(moment, set, Origin::Notification, &changes, Some(end));
        self.keep_promises();
        self.keep_acknowledged(delivery, is_hint);
        self.step()?;
        self.workers[set].sequencer = trial;
        Ok(())
    }

    /// Those entries of a document that are to be looked at, with what it tells of their bytes.
    pub(crate) fn news(
        &self,
        entries: &[Change],
        unknown: &NewsFilter,
    ) -> Vec<(Change, Vec<Digest>)> {
        let hashed = self.source.habits.hashes;
        let news = entries
            .iter()
            .filter(|entry| unknown.includes(Some(entry.at)));
        news.map(|entry| {
            let is_hashed = hashed && entry.kind != resyncd::protocol::ChangeKind::Deleted;
            let hash = is_hashed.then(|| digest(entry.resource, entry.version));
            (entry.clone(), hash.into_iter().collect())
        })
        .collect()
    }
}

/// The end of a document that moves the coverage to where a sequencer has it.
pub(crate) fn end(sequencer: &Sequencer) -> BatchCommit {
    BatchCommit {
        progress: Some((sequencer.coverage().clone(), sequencer.gaps().to_vec())),
        read_until: sequencer.read_until(),
        ..BatchCommit::default()
    }
}
