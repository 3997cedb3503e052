//! Settles a resource: what its sets state, what the mirror has, and what the Source has answered decide its task.
//!
//! A statement is a row of `statement` only where nothing else has it. The task has the one that it executes, and the row of the resource
//! the one that was applied last: of most resources there is no other. [`Resource`] reads all of them, and stores what has changed.
//!
//! Invariants: this is the only place where a statement becomes a task, or a task ends without a result; what is decided follows from
//! [`decide`] alone. A task that may be in progress when it is dropped is remembered until its result is known.

use std::cmp::Ordering;
use std::collections::hash_map::Entry as MapEntry;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, ContentInfo, SourceTime};
use resyncd_core::{
    Answer, Applied, ContentMatch, Decision, Desired, Entry, Record, RecordedFile, Revision,
    SetFacts, SetKey, Stated, Statement, Voice, apply, decide,
};
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::relate::is_selected;
use crate::store::change::{Change, Origin};
use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::tables::membership::Membership;
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::tally::Tallied;
use crate::store::tables::task::{self, NewTask, PendingTask, TaskLinks, TaskState};
use crate::store::tables::{coverage, dropped_task, membership, source_set, statement, version};

/// What is known of a set that states something.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct SetTimes {
    facts: SetFacts,
    generation: i64,
    /// The time of the newest list of which an entry was read.
    newest_list_at: Option<SourceTime>,
}

/// The time of the newest list of a set that names a resource with that membership.
fn listed(
    sql: &Connection,
    context: &BatchContext<'_>,
    set: SetId,
    membership: Option<Membership>,
) -> Result<Option<SourceTime>, StoreError> {
    let Some(membership) = membership.filter(|it| it.is_listed()) else {
        return Ok(None);
    };
    let times = context.times(SetKey(set.0))?;
    if membership.generation == times.generation {
        return Ok(times.newest_list_at);
    }
    let is_being_read = times.newest_list_at != times.facts.list_at;
    let is_named = is_being_read || membership::is_unchanged(sql, membership, times.generation)?;
    Ok(times.facts.list_at.filter(|_| is_named))
}

impl SetTimes {
    fn read(sql: &Connection, set: SetId) -> Result<Self, StoreError> {
        let times = source_set::times(sql, set)?;
        Ok(Self {
            facts: SetFacts {
                is_followed: times.is_followed,
                list_at: times.list_at,
                read_until: times.read_until,
                unbroken: coverage::unbroken_until(sql, set)?,
            },
            generation: times.generation,
            newest_list_at: times.newest_list_at,
        })
    }
}

impl BatchContext<'_> {
    fn times(&self, set: SetKey) -> Result<SetTimes, StoreError> {
        match self.times.borrow_mut().entry(set.0) {
            MapEntry::Occupied(known) => Ok(*known.get()),
            MapEntry::Vacant(place) => Ok(*place.insert(SetTimes::read(self.sql, SetId(set.0))?)),
        }
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
    /// Those that are rows.
    stored: Vec<Statement>,
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
                listed(sql, context, set, membership)
            })?
        };
        let mut resource = Self {
            statements: stored.clone(),
            stored,
            state,
        };
        let implied = resource.implied(sql, context)?;
        resource.add_missing(implied);
        Ok(resource)
    }

    /// Adds statements of voices that have none.
    fn add_missing(&mut self, statements: impl IntoIterator<Item = Statement>) {
        for statement in statements {
            if !self.has(&statement.entry) {
                self.statements.push(statement);
            }
        }
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

    fn has(&self, entry: &Entry) -> bool {
        let mut entries = self.statements.iter().map(|it| &it.entry);
        entries.any(|it| (it.set, it.voice) == (entry.set, entry.voice))
    }

    /// The statements that the task and the row of the resource have.
    fn implied(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
    ) -> Result<Vec<Statement>, StoreError> {
        let mut implied = Vec::new();
        implied.extend(self.of_task(sql, context)?);
        let of_record = self.of_record(sql, context)?;
        let is_newer = |record: &Statement| {
            let has_key = |it: &Statement| {
                (it.entry.set, it.entry.voice) == (record.entry.set, record.entry.voice)
            };
            !implied.iter().any(has_key)
        };
        implied.extend(of_record.filter(is_newer));
        Ok(implied)
    }

    fn listed(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        set: SetId,
    ) -> Result<Option<SourceTime>, StoreError> {
        let membership = if set == context.set {
            self.state.membership
        } else {
            membership::get(sql, set, self.state.id)?
        };
        listed(sql, context, set, membership)
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
        let listed = self.listed(sql, context, task.set)?;
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
        let listed = self.listed(sql, context, state.announced_by)?;
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
        self.state
            .membership
            .is_some_and(Membership::is_only_linked)
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
        statements.find(|it| (it.entry.set.0, it.entry.voice) == (set.0, voice))
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
            let is_claim = (it.entry.set, it.entry.voice) == (entry.set, Voice::Hub);
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
    fn decide_with(
        &self,
        context: &BatchContext<'_>,
        task: Option<&PendingTask>,
    ) -> Result<Decision<'_>, StoreError> {
        let mut sets: Vec<(SetKey, SetFacts)> = Vec::new();
        for statement in &self.statements {
            let set = statement.entry.set;
            sets.push((set, context.times(set)?.facts));
        }
        let facts = |set: SetKey| {
            let found = sets.iter().find(|(it, _)| *it == set);
            found.map(|(_, facts)| *facts).unwrap_or_default()
        };
        let record = Record {
            is_requested: task.is_some() && self.state.known.is_none(),
            ..self.record()
        };
        let may_check = task.is_some_and(PendingTask::is_check);
        Ok(decide(&self.statements, facts, &record, may_check))
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

    /// Settles the resource: makes a task of what is to be done, or ends it, and stores what is stated. `news`: the change that was applied
    /// last, if one was. Returns what has become of the task.
    pub(super) fn settle(
        mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        news: Option<&Change>,
        cause: Cause,
    ) -> Result<Settled, StoreError> {
        let plan = Plan::of(&self, sql, context, news, cause)?;
        if let (Plan::Settled { .. }, Some(news)) = (&plan, news) {
            self.confirm(sql, context, news)?;
        }
        let settled = plan.execute(&mut self, sql, context, news, cause)?;
        if settled == Settled::Dropped || settled == Settled::Nothing {
            self.leave_sets(sql)?;
        }
        if settled == Settled::Task && !self.state.is_deletion_pending() {
            self.leave_sets(sql)?;
        }
        self.save(sql, context)?;
        Ok(settled)
    }

    /// Records a change that states what the mirror has already.
    fn confirm(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        news: &Change,
    ) -> Result<(), StoreError> {
        let (set, id) = (context.set, self.state.id);
        let known = self.state.known.as_ref().filter(|known| !known.deleted);
        let is_same =
            known.is_some_and(|known| known.file().compare(&news.content) == ContentMatch::Same);
        let fetched = self.state.fetched;
        let stated = self.stated_by(set, Voice::Source);
        let stated = stated.filter(|it| it.is_change() && it.exists() && it.revision > fetched);
        let Some(revision) = stated.map(|it| it.revision).filter(|_| is_same) else {
            return Ok(());
        };
        if news.unconfirmed {
            return Ok(());
        }
        resource::confirm(sql, id, (set, news), revision, context.now)?;
        self.reread(sql, context, Some((set, revision)))
    }

    /// Ends the membership in the sets that state that it is gone: others have it, or nobody has.
    fn leave_sets(&mut self, sql: &Connection) -> Result<(), StoreError> {
        let gone: Vec<SetKey> = self
            .statements
            .iter()
            .filter(|it| !it.exists())
            .map(|it| it.entry.set)
            .collect();
        for set in gone {
            if self.existence_in(SetId(set.0)).is_none() {
                super::membership::leave(sql, SetId(set.0), self.state.id)?;
            }
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
            let key = (gone.entry.set, gone.entry.voice);
            let stays = rows.iter().any(|it| (it.entry.set, it.entry.voice) == key);
            if !stays {
                statement::delete(sql, id, key)?;
            }
        }
        for row in rows.iter().filter(|it| !self.stored.contains(it)) {
            statement::put(sql, id, row)?;
        }
        resource::set_statements(sql, id, self.state.revision, rows.len())?;
        Ok(())
    }
}

/// Why a resource is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// An entry of a document: deletions are decided at its end.
    Document,
    /// The result of its task.
    Result,
    /// Anything else: what is decided is executed.
    Event,
}

/// What has become of the task of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It has got one, or another one.
    Task,
    /// It has the one that it had.
    Same,
    /// It has none any more.
    Dropped,
    /// It has none, and had none.
    Nothing,
}

/// The task that a decision asks for.
struct Wanted {
    set: SetId,
    kind: ChangeKind,
    at: Option<SourceTime>,
    lastmod: Option<SourceTime>,
    content: ContentInfo,
    is_listed: bool,
    unconfirmed: bool,
    asks: bool,
    stated: (Revision, Revision),
    since: Option<SourceTime>,
    state: TaskState,
}

impl Wanted {
    /// Whether a task does that.
    fn is_that_of(&self, task: &PendingTask) -> bool {
        let executes_same = if self.kind == ChangeKind::Deleted {
            task.changed_at == self.at
        } else {
            let content = &self.content;
            task.stated == self.stated.0
                && (task.content.length, &task.content.hashes) == (content.length, &content.hashes)
        };
        let is_deletion = |kind| kind == ChangeKind::Deleted;
        executes_same
            && is_deletion(task.kind) == is_deletion(self.kind)
            && (task.set, task.unconfirmed) == (self.set, self.unconfirmed)
    }
}

enum Plan {
    Settled { is_rejected: bool },
    Keep,
    Task(Wanted),
}

impl Plan {
    fn of(
        resource: &Resource,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        news: Option<&Change>,
        cause: Cause,
    ) -> Result<Self, StoreError> {
        let decision = match cause {
            // What was to be done has ended.
            Cause::Result => resource.decide_with(context, None)?,
            Cause::Document | Cause::Event => resource.decide(context)?,
        };
        let since = decision.behind.flatten();
        let stated = match decision.desired {
            Desired::Settled => {
                return Ok(Self::Settled {
                    is_rejected: decision.row == 7,
                });
            }
            Desired::Fetch { .. } if decision.row == 9 => return Ok(Self::Keep),
            Desired::Fetch { stated, .. } | Desired::Ask { stated } => Some(stated),
            Desired::Remove { stated } => stated,
        };
        let is_live = resource.is_live();
        let existing = if is_live {
            ChangeKind::Updated
        } else {
            ChangeKind::Created
        };
        let deletes = !matches!(decision.desired, Desired::Fetch { .. });
        let is_link = stated.is_some_and(|it| it.entry.voice == Voice::Link);
        let is_new = stated.is_some_and(|it| it.revision > resource.state.fetched);
        let kind = match stated.map(|it| it.entry.stated) {
            _ if deletes => ChangeKind::Deleted,
            Some(Stated::Change(kind)) if is_new && !is_link && kind != ChangeKind::Deleted => kind,
            _ => existing,
        };
        let content = match decision.desired {
            Desired::Fetch {
                stated,
                verifies: true,
                ..
            } => stated.entry.content.clone(),
            Desired::Fetch { stated, .. } => ContentInfo {
                media_type: stated.entry.content.media_type.clone(),
                ..ContentInfo::default()
            },
            _ => ContentInfo::default(),
        };
        let asks = match decision.desired {
            Desired::Fetch { verifies, .. } => !verifies,
            Desired::Ask { .. } => true,
            Desired::Remove { .. } | Desired::Settled => false,
        };
        let state = if deletes {
            match cause {
                Cause::Document => TaskState::Undecided,
                Cause::Result | Cause::Event => TaskState::Ready,
            }
        } else {
            match news {
                Some(news) if news.kind != ChangeKind::Deleted => {
                    if is_selected(sql, context, news)? || context.is_linked(resource.state.id)? {
                        TaskState::Ready
                    } else {
                        TaskState::Unwanted
                    }
                }
                _ => match &resource.state.task {
                    Some(task)
                        if task.kind != ChangeKind::Deleted
                            && task.state == TaskState::Unwanted =>
                    {
                        TaskState::Unwanted
                    }
                    _ => TaskState::Ready,
                },
            }
        };
        let set = stated.map_or(context.set, |it| SetId(it.entry.set.0));
        Ok(Self::Task(Wanted {
            set,
            kind,
            at: stated.and_then(|it| it.entry.at),
            lastmod: stated.and_then(|it| it.entry.lastmod),
            content,
            is_listed: stated.is_some_and(|it| !it.is_change()),
            unconfirmed: stated.is_some_and(|it| it.entry.voice == Voice::Hub),
            asks,
            stated: stated.map_or_else(Default::default, |it| (it.revision, it.content_revision)),
            since,
            state,
        }))
    }

    fn execute(
        self,
        resource: &mut Resource,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        news: Option<&Change>,
        cause: Cause,
    ) -> Result<Settled, StoreError> {
        let task = resource.state.task.as_ref();
        let wanted = match self {
            Self::Keep => return Ok(Settled::Same),
            Self::Settled { is_rejected } => {
                let Some(task) = task else {
                    return Ok(Settled::Nothing);
                };
                let stays = is_rejected && task.state == TaskState::Unwanted
                    || task.origin.is_of_person() && cause != Cause::Result;
                if stays {
                    return Ok(Settled::Same);
                }
                resource.drop_task(sql, context, cause)?;
                return Ok(Settled::Dropped);
            }
            Self::Task(wanted) => wanted,
        };
        if let Some(task) = task {
            let is_news = news.is_some();
            if task.origin.is_of_person() && !is_news && cause != Cause::Result {
                return Ok(Settled::Same);
            }
            if wanted.is_that_of(task) && cause != Cause::Result {
                return resource.keep_task(sql, context, wanted, news);
            }
        }
        resource.put_task(sql, context, wanted, news)?;
        Ok(Settled::Task)
    }
}

impl Resource {
    /// Whether the task does what is to be done, as before.
    pub(super) fn wants_task(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
    ) -> Result<bool, StoreError> {
        let Some(task) = &self.state.task else {
            return Ok(false);
        };
        Ok(match Plan::of(self, sql, context, None, Cause::Event)? {
            _ if task.origin.is_of_person() => true,
            Plan::Keep => true,
            Plan::Settled { .. } => false,
            Plan::Task(wanted) => wanted.is_that_of(task),
        })
    }

    /// The task states what is wanted.
    fn keep_task(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        wanted: Wanted,
        news: Option<&Change>,
    ) -> Result<Settled, StoreError> {
        let id = self.state.id;
        let Some(task) = &mut self.state.task else {
            return Ok(Settled::Nothing);
        };
        if task.asks != wanted.asks {
            task::set_asks(sql, id, wanted.asks)?;
            task.asks = wanted.asks;
        }
        let Some(news) = news else {
            return Ok(Settled::Same);
        };
        if wanted.kind == ChangeKind::Deleted {
            if task.state == TaskState::Interrupted {
                task::resume_interrupted(sql, id)?;
                task.state = TaskState::Undecided;
            }
            return Ok(Settled::Same);
        }
        if wanted.state == TaskState::Unwanted {
            task::unselect(sql, id)?;
        } else if news.standing.is_some() && task::select(sql, id)? {
            context.has_restored.set(true);
            return Ok(Settled::Task);
        }
        if news.links.is_empty() {
            task::drop_links(sql, id)?;
        }
        if news.unconfirmed || task::states(sql, id, news)? {
            return Ok(Settled::Same);
        }
        self.put_task(sql, context, wanted, Some(news))?;
        Ok(Settled::Task)
    }

    fn put_task(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        wanted: Wanted,
        news: Option<&Change>,
    ) -> Result<(), StoreError> {
        let is_of_news = |news: &&Change| {
            let deletes = news.kind == ChangeKind::Deleted;
            wanted.set == context.set
                && wanted.stated.0 == self.state.revision
                && deletes == (wanted.kind == ChangeKind::Deleted)
        };
        let news = news.filter(is_of_news);
        let origin = match (news, &self.state.task) {
            (Some(_), _) => context.origin,
            (None, _) if wanted.is_listed => Origin::ResourceList,
            (None, Some(task)) if !task.origin.is_listing() && !task.origin.is_of_person() => {
                task.origin
            }
            (None, _) if context.origin.is_listing() || context.origin.is_of_person() => {
                Origin::ChangeList
            }
            (None, _) => context.origin,
        };
        let change = Change {
            kind: wanted.kind,
            changed_at: wanted.at,
            lastmod: wanted.lastmod,
            content: wanted.content.clone(),
            unconfirmed: wanted.unconfirmed,
            ..match news {
                Some(news) => news.clone(),
                None => Change::deletion(self.state.uri.clone(), None),
            }
        };
        let new = NewTask {
            resource: self.state.id,
            source: context.source,
            set: wanted.set,
            origin,
            change: &change,
            state: wanted.state,
            not_before: context.now,
            since: wanted.since,
            asks: wanted.asks,
            stated: wanted.stated,
        };
        let links = match news {
            Some(_) => TaskLinks::Stated,
            None => TaskLinks::Known,
        };
        task::put(sql, &new, links)?;
        self.state.task = Some(PendingTask::of(&new, 0));
        if wanted.state == TaskState::Undecided && wanted.set != context.set {
            context.deletions_of_others.borrow_mut().insert(wanted.set);
        }
        if wanted.state == TaskState::Ready {
            context.has_restored.set(true);
        }
        Ok(())
    }

    /// Makes a check of an entry that states nothing of the content the task, due at that time.
    pub(super) fn put_check(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        check: &Change,
        due: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let stated = self.stated_by(context.set, Voice::Source);
        let stated = stated.map(|it| (it.revision, it.content_revision));
        let is_selected = is_selected(sql, context, check)? || context.is_linked(self.state.id)?;
        let unbroken = context.unbroken_until()?;
        let new = NewTask {
            resource: self.state.id,
            source: context.source,
            set: context.set,
            origin: context.origin,
            change: check,
            state: if is_selected {
                TaskState::Ready
            } else {
                TaskState::Unwanted
            },
            not_before: due,
            since: unbroken.map(|it| check.changed_at.map_or(it, |at| at.min(it))),
            asks: false,
            stated: stated.unwrap_or_default(),
        };
        task::put(sql, &new, TaskLinks::Stated)?;
        self.state.task = Some(PendingTask::of(&new, 0));
        Ok(())
    }

    /// Deletes the task: the mirror is up to date without it.
    fn drop_task(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        cause: Cause,
    ) -> Result<(), StoreError> {
        let id = self.state.id;
        // It may be in progress: its result must not be taken for that of the resource's next task.
        resource::raise_next_revision(sql, id)?;
        if cause != Cause::Result {
            dropped_task::insert(sql, id, context.now)?;
        }
        task::delete(sql, id)?;
        self.state.task = None;
        if version::release(sql, id, None)? {
            context.has_versions.set(true);
        }
        Ok(())
    }

    /// Lowers the task's `since` to an older change that the mirror does not have: the task stands for both.
    pub(super) fn lower_since(
        &self,
        sql: &Connection,
        context: &BatchContext<'_>,
        changed_at: Option<SourceTime>,
    ) -> Result<(), StoreError> {
        if self.state.task.is_none() {
            return Ok(());
        }
        let known_at = self.state.known.as_ref().map(|known| known.changed_at);
        // What was fetched, or forgotten, because of a hub may be that change.
        let may_be_known = known_at.is_none() || self.state.voice == Voice::Hub;
        let since = match known_at.map(|known_at| known_at.cmp(&changed_at)) {
            _ if may_be_known => changed_at.max(context.unbroken_until()?),
            None | Some(Ordering::Less) => changed_at,
            // Which of the two is newer is not known. `synced_until` is not lowered, because it was claimed already; but it does not
            // advance either.
            Some(Ordering::Equal) => changed_at.max(context.unbroken_until()?),
            Some(Ordering::Greater) => return Ok(()),
        };
        Ok(task::lower_since(sql, self.state.id, since)?)
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
        self.add_missing(of_record);
        Ok(())
    }
}

/// Settles a resource because of an event that is no entry.
pub(crate) fn settle(
    sql: &Tallied<'_>,
    id: ResourceId,
    now: DateTime<Utc>,
) -> Result<Option<String>, StoreError> {
    let Some((source, set, _)) = resource::followed(sql, id)? else {
        return Ok(None);
    };
    let context = BatchContext::read(sql, set, &source, Origin::ChangeList, now)?;
    let Some(found) = Resource::find(sql, &context, id)? else {
        return Ok(None);
    };
    let settled = found.settle(sql, &context, None, Cause::Event)?;
    drop(context);
    Ok((settled == Settled::Task).then_some(source))
}
