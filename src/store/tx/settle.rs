//! Settles a resource: what its sets state, what the mirror has, and what the Source has answered decide its task.
//!
//! Invariants: this is the only place where a statement becomes a task, or a task ends without a result; what is decided follows from
//! [`decide`](resyncd_core::decide()) alone. A task that may be in progress when it is dropped is remembered until its result is known.

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, ContentInfo, SourceTime};
use resyncd_core::{ContentMatch, Desired, Revision, SetKey, Stated, Voice, latest_plausible};

use super::batch_context::BatchContext;
use super::relate::is_selected;
use super::statements::Resource;
use crate::store::change::{Change, Origin};
use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::Connection;
use crate::store::tables::resource;
use crate::store::tables::tally::Tallied;
use crate::store::tables::task::{self, NewTask, PendingTask, TaskLinks, TaskState};
use crate::store::tables::{dropped_task, version};

impl Resource {
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
        if settled != Settled::Same && !self.state.is_deletion_pending() {
            self.leave_sets(sql)?;
        }
        self.save(sql, context)?;
        Ok(settled)
    }

    /// Records what an entry states of the file that the mirror has already: a change, or a later modification of the same bytes.
    fn confirm(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        news: &Change,
    ) -> Result<(), StoreError> {
        let (set, id, fetched) = (context.set, self.state.id, self.state.fetched);
        let Some(known) = self.state.known.as_ref().filter(|known| !known.deleted) else {
            return Ok(());
        };
        if news.unconfirmed || known.file().compare(&news.content) != ContentMatch::Same {
            return Ok(());
        }
        let recorded = (known.changed_at, known.lastmod);
        let is_of_record = self.state.announced_by == set && self.state.voice == Voice::Source;
        let Some(stated) = self.stated_by(set, Voice::Source).filter(|it| it.exists()) else {
            return Ok(());
        };
        let latest = latest_plausible(context.now);
        let lastmod = stated.entry.lastmod.filter(|&lastmod| lastmod <= latest);
        let is_modified = stated.entry.at > recorded.0 || lastmod > recorded.1;
        if stated.is_change() && stated.revision > fetched || is_of_record && is_modified {
            let stated = stated.clone();
            let media_type = news.content.media_type.as_deref();
            resource::confirm(sql, id, (&stated, media_type), context.now)?;
            self.reread(sql, context, Some((set, stated.revision)))?;
        }
        Ok(())
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
}

/// Shows that it is this module that makes a task, or deletes it without a result: nobody else can make one.
pub(in crate::store) struct Decided(());

/// Drops the task of a resource that is not being executed, and that nothing is to become of any more.
pub(in crate::store) fn drop_at_rest(sql: &Tallied<'_>, id: ResourceId) -> Result<(), StoreError> {
    resource::raise_next_revision(sql, id)?;
    version::release(sql, id, None)?;
    Ok(task::delete(sql, id, Decided(()))?)
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
        let since = decision.behind;
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
        if task.origin.is_of_person() {
            return Ok(true);
        }
        Ok(match Plan::of(self, sql, context, None, Cause::Event)? {
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
        // The entry may state something that happened before what the task does, and is to be done as well.
        task::lower_since(sql, id, wanted.since)?;
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
            set: wanted.set,
            origin,
            state: wanted.state,
            since: wanted.since,
            asks: wanted.asks,
            stated: wanted.stated,
            ..self.new_task(context, &change)
        };
        let links = match news {
            Some(_) => TaskLinks::Stated,
            None => TaskLinks::Known,
        };
        self.state.task = Some(PendingTask::of(&new, 0));
        task::put(sql, &new, links, Decided(()))?;
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
            state: if is_selected {
                TaskState::Ready
            } else {
                TaskState::Unwanted
            },
            not_before: due,
            since: unbroken.map(|it| check.changed_at.map_or(it, |at| at.min(it))),
            stated: stated.unwrap_or_default(),
            ..self.new_task(context, check)
        };
        self.state.task = Some(PendingTask::of(&new, 0));
        Ok(task::put(sql, &new, TaskLinks::Stated, Decided(()))?)
    }

    /// Makes what a person has ordered the task: it is executed whatever is stated.
    pub(super) fn put_order(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        order: &Change,
    ) -> Result<(), StoreError> {
        let new = self.new_task(context, order);
        self.state.task = Some(PendingTask::of(&new, 0));
        task::put(sql, &new, TaskLinks::Known, Decided(()))?;
        // What the task had is a row from now on.
        self.save(sql, context)
    }

    /// A task of the set that is read, due now.
    fn new_task<'a>(&self, context: &'a BatchContext<'_>, change: &'a Change) -> NewTask<'a> {
        NewTask {
            resource: self.state.id,
            source: context.source,
            set: context.set,
            origin: context.origin,
            change,
            state: TaskState::Ready,
            not_before: context.now,
            since: change.changed_at,
            asks: false,
            stated: Default::default(),
        }
    }

    /// Deletes the task: the mirror is up to date without it.
    fn drop_task(
        &mut self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        cause: Cause,
    ) -> Result<(), StoreError> {
        let id = self.state.id;
        if cause != Cause::Result {
            // It may be in progress: its result must not be taken for that of the resource's next task.
            resource::raise_next_revision(sql, id)?;
            dropped_task::insert(sql, id, context.now)?;
            if version::release(sql, id, None)? {
                context.has_versions.set(true);
            }
        }
        task::delete(sql, id, Decided(()))?;
        self.state.task = None;
        Ok(())
    }
}

/// Settles a resource because of an event that is no entry. Returns its Source if it has got a task.
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

/// The file of a resource may be another than is recorded. As [`settle`].
pub(crate) fn doubt(
    sql: &Tallied<'_>,
    id: ResourceId,
    now: DateTime<Utc>,
) -> Result<Option<String>, StoreError> {
    resource::doubt(sql, id)?;
    settle(sql, id, now)
}
