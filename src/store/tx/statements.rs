//! What is stated of a resource: the statements of its sets, as its row, its task and the table `statement` have them, and what follows
//! from them.
//!
//! A statement is a row of `statement` only where nothing else has it. The task has the one that it executes, and the row of the resource
//! the one that was applied last: of most resources there is no other. [`Resource`] reads all of them, and stores what has changed.

use std::collections::hash_map::Entry as MapEntry;

use resourcesync::{ChangeKind, ContentInfo, SourceTime};
use resyncd_core::{
    Answer, Applied, ContentMatch, Decision, Entry, Record, RecordedFile, Revision, SetFacts,
    SetKey, Stated, Statement, Voice, apply, behind_of_older, decide,
};

use super::batch_context::BatchContext;
use crate::store::change::Change;
use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::Connection;
use crate::store::tables::membership::Membership;
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::source_set::{self, SetTimes};
use crate::store::tables::task::{self, PendingTask, TaskState};
use crate::store::tables::{membership, statement};

impl BatchContext<'_> {
    fn times(&self, set: SetKey) -> Result<SetTimes, StoreError> {
        match self.times.borrow_mut().entry(set.0) {
            MapEntry::Occupied(known) => Ok(*known.get()),
            MapEntry::Vacant(place) => {
                Ok(*place.insert(source_set::times(self.sql, SetId(set.0))?))
            }
        }
    }

    /// The time of the newest list of a set that names a resource with that membership. While a list is read, others than its reader take
    /// what was listed before for listed by it.
    fn listed(
        &self,
        set: SetId,
        id: ResourceId,
        membership: Option<Membership>,
    ) -> Result<Option<SourceTime>, StoreError> {
        if membership != Some(Membership::Listed) {
            return Ok(None);
        }
        let times = self.times(SetKey(set.0))?;
        Ok(match self.reading.filter(|list| list.set == set) {
            Some(list) if list.named.contains(id) => Some(list.at),
            Some(_) => times.facts.list_at,
            None => times.newest_list_at,
        })
    }

    /// Whether a set is followed.
    pub(super) fn is_followed(&self, set: SetId) -> Result<bool, StoreError> {
        Ok(self.times(SetKey(set.0))?.facts.is_followed)
    }

    /// Until when every change of the set is known.
    pub(super) fn unbroken_until(&self) -> Result<Option<SourceTime>, StoreError> {
        Ok(self.times(SetKey(self.set.0))?.facts.unbroken)
    }
}

/// A resource, with all that is stated of it.
pub(in crate::store) struct Resource {
    pub(in crate::store) state: ResourceState,
    pub(in crate::store) statements: Vec<Statement>,
    /// Those that are rows, and the revision of the resource's row.
    stored: Vec<Statement>,
    stored_revision: Revision,
}

/// The statement that a change of a set makes.
pub(in crate::store) fn entry_of(set: SetId, change: &Change, stated: Stated) -> Entry {
    let voice = if change.unconfirmed {
        Voice::Hub
    } else {
        Voice::Source
    };
    Entry {
        set: SetKey(set.0),
        voice,
        stated,
        at: change.changed_at,
        lastmod: change.lastmod,
        content: change.content.clone(),
    }
}

/// Adds statements of voices that have none.
fn add_missing(statements: &mut Vec<Statement>, others: impl IntoIterator<Item = Statement>) {
    for other in others {
        let mut known = statements.iter();
        if !known.any(|it| it.entry.voice_in_set() == other.entry.voice_in_set()) {
            statements.push(other);
        }
    }
}

impl Resource {
    pub(in crate::store) fn read(
        sql: &Connection,
        context: &BatchContext<'_>,
        state: ResourceState,
    ) -> Result<Self, StoreError> {
        let stored = if state.statements == 0 {
            Vec::new()
        } else {
            statement::of_resource(sql, state.id, |set, membership| {
                context.listed(set, state.id, membership)
            })?
        };
        let mut resource = Self {
            statements: stored.clone(),
            stored,
            stored_revision: state.revision,
            state,
        };
        let implied = resource.implied(sql, context)?;
        add_missing(&mut resource.statements, implied);
        Ok(resource)
    }

    /// As [`read`](Self::read), by its row; `None`: it has none.
    pub(super) fn find(
        sql: &Connection,
        context: &BatchContext<'_>,
        id: ResourceId,
    ) -> Result<Option<Self>, StoreError> {
        let Some(state) = resource::state_of(sql, id, context.set)? else {
            return Ok(None);
        };
        Self::read(sql, context, state).map(Some)
    }

    /// The statements that the task and the row of the resource have.
    fn implied(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
    ) -> Result<Vec<Statement>, StoreError> {
        let mut implied: Vec<_> = self.of_task(sql, context)?.into_iter().collect();
        add_missing(&mut implied, self.of_record(sql, context)?);
        Ok(implied)
    }

    fn membership_in(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        set: SetId,
    ) -> Result<Option<Membership>, StoreError> {
        if set == context.set {
            Ok(self.state.membership)
        } else {
            Ok(membership::get(sql, set, self.state.id)?)
        }
    }

    fn of_task(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
    ) -> Result<Option<Statement>, StoreError> {
        let task = self.state.task.as_ref();
        let Some(task) = task.filter(|it| !it.unconfirmed && !it.origin.is_of_person()) else {
            return Ok(None);
        };
        // It executes one that is a row.
        if task.stated.0 == 0 || self.stored.iter().any(|it| it.revision == task.stated) {
            return Ok(None);
        }
        let membership = self.membership_in(sql, context, task.set)?;
        let listed = context.listed(task.set, self.state.id, membership)?;
        let deletes = task.kind == ChangeKind::Deleted;
        let stated = match (task.origin.is_listing(), deletes) {
            (false, _) => Stated::Change(task.kind),
            (true, false) => Stated::Listed(listed.or(task.changed_at).unwrap_or(SourceTime::MIN)),
            (true, true) => Stated::Absent(task.changed_at.unwrap_or(SourceTime::MIN)),
        };
        Ok(Some(Statement {
            entry: Entry {
                set: SetKey(task.set.0),
                voice: Voice::Source,
                stated,
                at: task.changed_at,
                lastmod: task.lastmod,
                content: task.content.clone(),
            },
            listed: listed.filter(|_| stated.exists()),
            revision: task.stated,
            content_revision: task.content_stated,
            is_rejected: deletes && task.state == TaskState::Unwanted,
        }))
    }

    fn of_record(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
    ) -> Result<Option<Statement>, StoreError> {
        let state = &self.state;
        let Some(known) = state.known.as_ref().filter(|_| state.voice != Voice::Hub) else {
            return Ok(None);
        };
        let membership = self.membership_in(sql, context, state.announced_by)?;
        if known.kind.is_none() && !known.deleted && membership.is_none() {
            // It was published after its set had left it out of a list.
            return Ok(None);
        }
        let listed = context.listed(state.announced_by, state.id, membership)?;
        let stated = match (known.kind, known.deleted) {
            (Some(kind), _) => Stated::Change(kind),
            (None, false) => Stated::Listed(listed.or(known.changed_at).unwrap_or(SourceTime::MIN)),
            (None, true) => Stated::Absent(known.changed_at.unwrap_or(SourceTime::MIN)),
        };
        let content = if known.deleted {
            ContentInfo::default()
        } else {
            ContentInfo {
                length: known.length,
                media_type: None,
                hashes: known.hashes.clone(),
            }
        };
        Ok(Some(Statement {
            entry: Entry {
                set: SetKey(state.announced_by.0),
                voice: state.voice,
                stated,
                at: known.changed_at,
                lastmod: known.lastmod,
                content,
            },
            listed: listed.filter(|_| stated.exists()),
            revision: state.fetched,
            content_revision: if known.deleted {
                Revision::default()
            } else {
                state.fetched
            },
            is_rejected: false,
        }))
    }

    /// Whether only links name it in the set.
    pub(super) fn is_only_linked(&self) -> bool {
        self.state.membership == Some(Membership::Linked)
    }

    /// Whether the mirror has a file of it.
    pub(super) fn is_live(&self) -> bool {
        self.state.is_live()
    }

    /// The length of the resource's file, in bytes; `None`: the mirror has none.
    pub(super) fn live_length(&self) -> Option<i64> {
        let live = self.state.known.as_ref().filter(|known| !known.deleted)?;
        let length = live.length.unwrap_or_default();
        Some(i64::try_from(length).unwrap_or(i64::MAX))
    }

    /// What the documents of a set state, or a hub or a link in its place.
    pub(super) fn existence_in(&self, set: SetId) -> Option<&Statement> {
        let of_set = self.statements.iter().filter(|it| it.entry.set.0 == set.0);
        of_set
            .filter(|it| it.exists())
            .min_by_key(|it| it.entry.voice)
    }

    /// What the documents of a set state.
    pub(in crate::store) fn stated_by(
        &mut self,
        set: SetId,
        voice: Voice,
    ) -> Option<&mut Statement> {
        let mut statements = self.statements.iter_mut();
        statements.find(|it| it.entry.voice_in_set() == (SetKey(set.0), voice))
    }

    /// Whether an update has appeared late: the documents of its set, which does not name the resource, had been read up to the deletion
    /// that another set has stated since.
    pub(super) fn is_overtaken(
        &self,
        context: &BatchContext<'_>,
        update: &Change,
    ) -> Result<bool, StoreError> {
        if update.changed_at.is_none() || self.existence_in(context.set).is_some() {
            return Ok(false);
        }
        for it in &self.statements {
            let is_deletion = it.entry.stated == Stated::Change(ChangeKind::Deleted);
            let is_of_other = it.entry.set.0 != context.set.0 && it.entry.voice == Voice::Source;
            if is_deletion
                && is_of_other
                && update.changed_at < it.entry.at
                && context.is_followed(SetId(it.entry.set.0))?
                && context.unbroken_until()? >= it.entry.at
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Applies an entry of a document.
    pub(in crate::store) fn apply(&mut self, entry: &Entry, overtaken: bool) -> Applied {
        let has_made_up = |it: &Statement| {
            let is_claim = it.entry.voice_in_set() == (entry.set, Voice::Hub);
            is_claim && it.exists() && it.entry.at > entry.at && self.is_denied(it)
        };
        // What a hub has made up hides nothing that it states later.
        if entry.voice == Voice::Hub
            && let Some(made_up) = self.statements.iter().position(has_made_up)
        {
            self.statements.remove(made_up);
        }
        apply(
            &mut self.statements,
            entry,
            overtaken,
            &mut self.state.revision,
        )
    }

    /// A person has rejected the deletion that the task executes.
    pub(super) fn reject(&mut self) {
        let task = self.state.task.as_ref();
        let stated = task.map(|task| task.stated);
        for statement in &mut self.statements {
            statement.is_rejected |= Some(statement.revision) == stated && !statement.exists();
        }
    }

    /// What the Source has answered since a statement is known.
    pub(super) fn answer_to(&self, statement: &Statement) -> Option<Answer> {
        let answer = self.state.answer;
        let answer = answer.filter(|(_, asked)| *asked >= statement.revision);
        answer.map(|(answer, _)| answer)
    }

    /// Whether the Source has answered that there is none since a statement is known.
    pub(super) fn is_denied(&self, statement: &Statement) -> bool {
        self.answer_to(statement) == Some(Answer::Absent)
    }

    /// The time of what was applied last, as the Source has stated it.
    fn recorded_at(&self) -> Option<SourceTime> {
        let known = self.state.known.as_ref()?;
        let of_source = self
            .statements
            .iter()
            .filter(|it| it.entry.voice == Voice::Source && it.revision <= self.state.fetched);
        let stated = of_source.map(|it| it.entry.at).max().flatten();
        known.changed_at.max(known.lastmod).max(stated)
    }

    fn record(&self) -> Record<'_> {
        let known = self.state.known.as_ref().filter(|known| !known.deleted);
        Record {
            file: known.map(|known| known.file()),
            may_have_file: self.state.is_doubted,
            is_requested: false,
            at: self.recorded_at(),
            is_verified: self.state.is_verified,
            answer: self.state.answer,
            fetched: self.state.fetched,
        }
    }

    /// What is to be done.
    pub(in crate::store) fn decide(
        &self,
        context: &BatchContext<'_>,
    ) -> Result<Decision<'_>, StoreError> {
        self.decide_with(context, self.state.task.as_ref())
    }

    /// `task`: what is to be done already.
    pub(super) fn decide_with(
        &self,
        context: &BatchContext<'_>,
        task: Option<&PendingTask>,
    ) -> Result<Decision<'_>, StoreError> {
        let record = Record {
            is_requested: task.is_some() && self.state.known.is_none(),
            ..self.record()
        };
        let may_check = task.is_some_and(PendingTask::is_check);
        let facts = self.facts(context)?;
        Ok(decide(&self.statements, facts, &record, may_check))
    }

    /// What is known of the sets that state something.
    fn facts(&self, context: &BatchContext<'_>) -> Result<impl Fn(SetKey) -> SetFacts, StoreError> {
        let mut sets: Vec<(SetKey, SetFacts)> = Vec::new();
        for statement in &self.statements {
            let set = statement.entry.set;
            sets.push((set, context.times(set)?.facts));
        }
        Ok(move |set: SetKey| {
            let found = sets.iter().find(|(it, _)| *it == set);
            found.map(|(_, facts)| *facts).unwrap_or_default()
        })
    }

    /// Holds the claim back for a change that comes after a later one: the task stands for both.
    pub(super) fn hold_back_for_older(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        changed_at: Option<SourceTime>,
    ) -> Result<(), StoreError> {
        if self.state.task.is_none() {
            return Ok(());
        }
        let older = (SetKey(context.set.0), changed_at);
        let facts = self.facts(context)?;
        let since = behind_of_older(&self.statements, facts, &self.record(), older);
        Ok(task::lower_since(sql, self.state.id, since)?)
    }

    /// The file may be another than is recorded.
    pub(super) fn doubt(&mut self, sql: &Connection) -> Result<(), StoreError> {
        resource::doubt(sql, self.state.id)?;
        self.state.is_doubted = true;
        if let Some(known) = &mut self.state.known {
            known.is_doubted = true;
        }
        Ok(())
    }

    /// Stores the statements that are to be rows.
    pub(super) fn save(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
    ) -> Result<(), StoreError> {
        let implied = self.implied(sql, context)?;
        let id = self.state.id;
        let is_implied = |it: &Statement| implied.contains(it);
        let rows: Vec<Statement> = self
            .statements
            .iter()
            .filter(|it| !is_implied(it))
            .cloned()
            .collect();
        for gone in &self.stored {
            let key = gone.entry.voice_in_set();
            let stays = rows.iter().any(|it| it.entry.voice_in_set() == key);
            if !stays {
                statement::delete(sql, id, key)?;
            }
        }
        for row in rows.iter().filter(|it| !self.stored.contains(it)) {
            statement::put(sql, id, row)?;
        }
        if (self.state.revision, rows.len()) != (self.stored_revision, self.stored.len()) {
            resource::set_statements(sql, id, self.state.revision, rows.len())?;
        }
        Ok(())
    }

    /// Reads the row again. `executed`: the set and revision of the statement that the mirror has by now: from then on, the row states it.
    pub(super) fn reread(
        &mut self,
        sql: &Connection,
        context: &BatchContext<'_>,
        executed: Option<(SetId, Revision)>,
    ) -> Result<(), StoreError> {
        if let Some(state) = resource::state_of(sql, self.state.id, context.set)? {
            self.state = ResourceState {
                revision: self.state.revision,
                ..state
            };
        }
        let known = self.state.known.as_ref();
        let file = known
            .filter(|known| !known.deleted)
            .map(|known| known.file());
        let is_folded = |it: &Statement| {
            let is_executed = executed == Some((SetId(it.entry.set.0), it.revision));
            let has_other = |file: &RecordedFile<'_>| {
                it.exists() && file.compare(&it.entry.content) == ContentMatch::Different
            };
            is_executed && it.entry.voice != Voice::Hub && !file.as_ref().is_some_and(has_other)
        };
        self.statements.retain(|it| !is_folded(it));
        let of_record = self.of_record(sql, context)?;
        add_missing(&mut self.statements, of_record);
        Ok(())
    }
}
