//! What the database knows of the resource that a change is about, and what follows for what is pending.

use rusqlite::{Connection, params};

use super::change_batch::Change;
use super::feed::Origin;
use super::parts::{PartOf, part_if_named};
use super::planning::Context;
use super::resources::{Membership, join};
use super::sets::unbroken_until;
use super::{ResourceId, SetId, StoreError, row};
use crate::protocol::{ResourceUri, SourceTime};
use crate::sync::{Decision, LocalState, Pending, plan_change};

/// What is known of a change's resource.
pub(super) struct Found {
    pub(super) resource: ResourceId,
    pub(super) known: Option<LocalState>,
    pub(super) pending: Option<Pending>,
    /// How it is a member of the set.
    pub(super) member: Option<Membership>,
    /// Whether a Resource List or a Resource Dump of the same set told of what is pending.
    listed: bool,
}

impl Found {
    /// Looks a resource up; the first time that it is told of, gives it a row and a path of its own.
    pub(super) fn look_up(
        sql: &Connection,
        context: &Context<'_>,
        change: &Change,
    ) -> Result<Self, StoreError> {
        if let Some((found, told_by)) = Self::find(sql, context, &change.uri)? {
            if told_by != context.set {
                note_shared(sql, context.set, told_by)?;
            }
            return Ok(found);
        }
        Ok(Self {
            resource: add_resource(sql, context, change)?,
            known: None,
            pending: None,
            member: None,
            listed: false,
        })
    }

    /// Looks a resource up that was told of before, and the set that told of it last; changes nothing.
    pub(super) fn find(
        sql: &Connection,
        context: &Context<'_>,
        uri: &ResourceUri,
    ) -> Result<Option<(Self, SetId)>, StoreError> {
        let mut query = sql.prepare_cached(
            "SELECT resource.id, resource.length, resource.hashes, resource.lastmod, resource.changed_at,
                    resource.deleted, resource.applied_at, task.kind, task.changed_at, resource.change, task.origin,
                    task.set_id, resource.set_id, member.generation, member.part
             FROM resource LEFT JOIN task ON task.resource_id = resource.id
                  LEFT JOIN member ON member.set_id = ?3 AND member.resource_id = resource.id
             WHERE resource.source = ?1 AND resource.uri = ?2",
        )?;
        let mut rows = query.query(params![context.source, uri.as_str(), context.set.0])?;
        let Some(found) = rows.next()? else {
            return Ok(None);
        };
        let told_by = SetId(found.get(12)?);
        let known = if found.get::<_, Option<i64>>(6)?.is_some() {
            Some(LocalState {
                length: found.get::<_, Option<i64>>(1)?.map(row::unsigned),
                hashes: row::hashes(&found.get::<_, String>(2)?),
                kind: found
                    .get::<_, Option<String>>(9)?
                    .map(|kind| row::kind(&kind))
                    .transpose()?,
                lastmod: row::source_time(found.get(3)?),
                changed_at: row::source_time(found.get(4)?),
                deleted: found.get(5)?,
            })
        } else {
            None
        };
        let pending = match found.get::<_, Option<String>>(7)? {
            Some(kind) => Some(Pending {
                kind: row::kind(&kind)?,
                changed_at: row::source_time(found.get(8)?),
            }),
            None => None,
        };
        let member = match found.get(13)? {
            Some(generation) => Some(Membership {
                generation,
                part: found.get(14)?,
            }),
            None => None,
        };
        let listed = match found.get::<_, Option<String>>(10)? {
            Some(origin) => {
                Origin::from_code(&origin)?.is_listing()
                    && found.get::<_, Option<i64>>(11)? == Some(context.set.0)
            }
            None => false,
        };
        let resource = ResourceId(found.get(0)?);
        let found = Self {
            resource,
            known,
            pending,
            member,
            listed,
        };
        Ok(Some((found, told_by)))
    }

    /// Makes it a member of the set that something else than a part of its Resource List tells of.
    pub(super) fn join_told(
        &self,
        sql: &Connection,
        context: &Context<'_>,
    ) -> Result<(), StoreError> {
        let part = match self.member {
            Some(member) if member.generation < context.generation => part_if_named(sql, member)?,
            member => member.and_then(|member| member.part),
        };
        let now = Membership {
            generation: context.generation,
            part,
        };
        join(sql, context.set, self.resource, self.member, now)
    }

    /// Makes it a member of the set that a part of its Resource List names.
    pub(super) fn join_named(
        &self,
        sql: &Connection,
        context: &Context<'_>,
        part_of: &mut PartOf<'_>,
    ) -> Result<(), StoreError> {
        let now = Membership {
            generation: context.generation,
            part: Some(part_of.member(self.member)?),
        };
        join(sql, context.set, self.resource, self.member, now)
    }

    /// What is pending, as a Resource List looks at it: what an earlier list of its set told is no objection to the newer
    /// one.
    pub(super) fn pending_change(&self) -> Option<&Pending> {
        self.pending.as_ref().filter(|_| !self.listed)
    }

    /// Lets what is pending stand for a change, too, that is older than it and that the mirror does not have: the one is
    /// applied with the other, and not before.
    pub(super) fn hold_back(
        &self,
        sql: &Connection,
        set: SetId,
        change: &Change,
    ) -> Result<(), StoreError> {
        let known = self.known.as_ref();
        if known.is_none_or(|known| known.changed_at < change.changed_at) {
            return self.stand_for(sql, change.changed_at);
        }
        // One of the same second as what the mirror has may come before that, or after it. What was claimed is not taken
        // back for its sake; but nothing more is claimed.
        let may_be_missing = plan_change(&change.told(), known, None) == Decision::Task;
        if may_be_missing && change.changed_at.is_some() {
            let claimed = unbroken_until(sql, set)?;
            return self.stand_for(sql, change.changed_at.max(claimed));
        }
        Ok(())
    }

    /// Lets what is pending stand for a change of that time, too.
    pub(super) fn stand_for(
        &self,
        sql: &Connection,
        changed_at: Option<SourceTime>,
    ) -> Result<(), StoreError> {
        if self.pending.is_some() {
            let changed_at = changed_at.map(SourceTime::micros);
            sql.prepare_cached("UPDATE task SET since = MIN(since, ?2) WHERE resource_id = ?1")?
                .execute(params![self.resource.0, changed_at])?;
        }
        Ok(())
    }

    /// Ends what is pending: it is of no use any more.
    pub(super) fn drop_task(&self, sql: &Connection) -> Result<(), StoreError> {
        if self.pending.is_some() {
            // It may be under way: what comes after it must not be taken for it when it ends.
            sql.prepare_cached(
                "UPDATE resource SET next_version = 1 + (SELECT version FROM task WHERE resource_id = ?1) WHERE id = ?1",
            )?
            .execute([self.resource.0])?;
            sql.prepare_cached("DELETE FROM task WHERE resource_id = ?1")?
                .execute([self.resource.0])?;
        }
        Ok(())
    }
}

/// Two sets have told of one resource: what one of them tells may hold back what the other claims.
fn note_shared(sql: &Connection, one: SetId, other: SetId) -> Result<(), StoreError> {
    sql.prepare_cached("UPDATE source_set SET shares = 1 WHERE id IN (?1, ?2) AND shares = 0")?
        .execute(params![one.0, other.0])?;
    Ok(())
}

fn add_resource(
    sql: &Connection,
    context: &Context<'_>,
    change: &Change,
) -> Result<ResourceId, StoreError> {
    let mut taken = sql.prepare_cached("SELECT 1 FROM resource WHERE source = ?1 AND path = ?2")?;
    let paths = (change.paths)(&change.uri);
    let path = match paths.plain {
        Some(plain) if !taken.exists(params![context.source, plain])? => plain,
        _ => paths.made,
    };
    sql.prepare_cached("INSERT INTO resource (source, uri, set_id, path) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![
            context.source,
            change.uri.as_str(),
            context.set.0,
            path
        ])?;
    Ok(ResourceId(sql.last_insert_rowid()))
}
