//! `relation`: which resources are metadata of which others (section 14.5), and which are representations of which (section 14.3), as the
//! links of either of the two state it. `standing`: what resources lack and give where the configuration selects by collections and
//! kinds of metadata.
//!
//! Columns of `relation`: `target` is a hash of the identity of the URI that a link of the resource names, `kind` what the link states. Two URIs may
//! have one hash: what is shown of a relation is compared with the links themselves. Columns of `standing`: `selection` is the
//! selection that `lacks` and `gives` are of; those of another one do not count.

use std::collections::BTreeSet;

use resourcesync::{Algorithm, Digest, Link};
use resyncd_core::{Criteria, ResourceUri, Standing, identity};
use url::Url;

use super::values::{Count, LinkList, column};
use crate::store::ids::ResourceId;
use crate::store::sql::{Connection, OptionalExtension, Result, Row, params};

/// How many resources a record selects when it is read; the others are when they are read.
const MAX_DESCRIBED: usize = 10_000;
/// How many records are asked for what they give to one resource.
const MAX_RECORDS: usize = 1000;
/// How many resources that name one are shown.
const MAX_NAMED_BY: usize = 64;

/// What a link states between a resource and metadata, or between two representations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RelationKind {
    /// The resource that has the link describes the target.
    Describes,
    /// The target describes the resource that has the link.
    DescribedBy,
    /// The resource that has the link is a representation of the target.
    AlternateOf,
    /// The target is a representation of the resource that has the link.
    Alternate,
}

impl RelationKind {
    fn of(link: &Link) -> Option<Self> {
        let all = [
            Self::Describes,
            Self::DescribedBy,
            Self::AlternateOf,
            Self::Alternate,
        ];
        all.into_iter().find(|kind| link.is(kind.rel()))
    }

    fn rel(self) -> &'static str {
        match self {
            Self::Describes => "describes",
            Self::DescribedBy => "describedby",
            Self::AlternateOf => "canonical",
            Self::Alternate => "alternate",
        }
    }

    fn number(self) -> i64 {
        match self {
            Self::Describes => 1,
            Self::DescribedBy => 2,
            Self::AlternateOf => 3,
            Self::Alternate => 4,
        }
    }
}

fn hash(uri: &Url) -> i64 {
    let digest = Digest::of(Algorithm::Sha256, identity(uri).as_bytes());
    let first: Vec<u8> = digest.bytes().iter().copied().take(8).collect();
    first.try_into().map_or(0, i64::from_be_bytes)
}

/// Whether links state a relation at all.
pub(crate) fn states_any(links: &[Link]) -> bool {
    links.iter().any(|link| RelationKind::of(link).is_some())
}

/// Stores the relations that a resource's links state, in place of those before. Returns whether there are others than before.
pub(crate) fn replace(sql: &Connection, id: ResourceId, links: &[Link]) -> Result<bool> {
    let stated: BTreeSet<(i64, i64)> = links
        .iter()
        .filter_map(|link| Some((hash(&link.href), RelationKind::of(link)?.number())))
        .collect();
    let stored: BTreeSet<(i64, i64)> = sql
        .prepare_cached("SELECT target, kind FROM relation WHERE resource_id = ?1")?
        .query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    for (target, kind) in stored.difference(&stated) {
        sql.prepare_cached(
            "DELETE FROM relation WHERE target = ?1 AND kind = ?2 AND resource_id = ?3",
        )?
        .execute(params![target, kind, id])?;
    }
    for (target, kind) in stated.difference(&stored) {
        sql.prepare_cached("INSERT INTO relation (target, kind, resource_id) VALUES (?1, ?2, ?3)")?
            .execute(params![target, kind, id])?;
    }
    Ok(stated != stored)
}

/// Stores what a resource lacks and gives. Returns whether it gives something else than before.
pub(crate) fn set_selection_state(
    sql: &Connection,
    id: ResourceId,
    standing: Standing,
) -> Result<bool> {
    let given = sql
        .prepare_cached("SELECT gives FROM standing WHERE resource_id = ?1 AND selection = ?2")?
        .query_row(params![id, standing.selection], |row| row.get::<_, u8>(0))
        .optional()?;
    let gives = standing.gives.bits();
    if standing.lacks.is_empty() && standing.gives.is_empty() {
        delete_selection_state(sql, id)?;
    } else {
        sql.prepare_cached(
            "INSERT INTO standing (resource_id, selection, lacks, gives) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (resource_id) DO UPDATE SET selection = ?2, lacks = ?3, gives = ?4
             WHERE standing.selection <> ?2 OR standing.lacks <> ?3 OR standing.gives <> ?4",
        )?
        .execute(params![
            id,
            standing.selection,
            standing.lacks.bits(),
            gives
        ])?;
    }
    Ok(given.unwrap_or_default() != gives)
}

/// Forgets what a resource lacks and gives.
pub(crate) fn delete_selection_state(sql: &Connection, id: ResourceId) -> Result<()> {
    sql.prepare_cached("DELETE FROM standing WHERE resource_id = ?1")?
        .execute([id])
        .map(drop)
}

/// Whether the metadata that describes a resource gives what it lacks: that which names it, and that which it names.
pub(crate) fn metadata_selects(
    sql: &Connection,
    source: &str,
    (uri, links): (&ResourceUri, &[Link]),
    lacks: Criteria,
    selection: i64,
) -> Result<bool> {
    let mut lacks = lacks;
    let mut named = sql.prepare_cached(
        "SELECT gives FROM resource CROSS JOIN standing ON standing.resource_id = resource.id
         WHERE resource.source = ?1 AND resource.identity = ?2 AND selection = ?3",
    )?;
    for link in links.iter().filter(|link| link.is("describedby")) {
        let gives: Option<u8> = named
            .query_row(params![source, identity(&link.href), selection], |row| {
                row.get(0)
            })
            .optional()?;
        lacks = lacks.without(Criteria::from_bits(gives.unwrap_or_default()));
        if lacks.is_empty() {
            return Ok(true);
        }
    }
    let mut naming = sql.prepare_cached(
        "SELECT gives FROM relation CROSS JOIN resource ON resource.id = relation.resource_id
         CROSS JOIN standing ON standing.resource_id = relation.resource_id
         WHERE target = ?1 AND kind = ?2 AND resource.source = ?3 AND selection = ?4 LIMIT ?5",
    )?;
    let mut rows = naming.query(params![
        hash(uri.url()),
        RelationKind::Describes.number(),
        source,
        selection,
        Count::of_rows(MAX_RECORDS),
    ])?;
    while let Some(row) = rows.next()?.as_ref() {
        lacks = lacks.without(Criteria::from_bits(row.get(0)?));
        if lacks.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A resource that a record describes, and that is not selected.
pub(crate) struct DescribedResource {
    pub(crate) id: ResourceId,
    pub(crate) uri: ResourceUri,
    pub(crate) links: Vec<Link>,
    pub(crate) lacks: Criteria,
}

/// The columns of a [`DescribedResource`], and where they are. (A Source may have many resources: queries begin with the relation.)
const UNSELECTED: &str = "resource.id, resource.uri, task.links, lacks FROM resource
    JOIN task ON task.resource_id = resource.id AND task.state = 'rejected' AND task.kind <> 'deleted'
    JOIN standing ON standing.resource_id = resource.id";

/// The resources that a record describes and that are not selected: those that it names, and those that name it.
pub(crate) fn unselected_of(
    sql: &Connection,
    source: &str,
    (uri, links): (&ResourceUri, &[Link]),
    selection: i64,
) -> Result<Vec<DescribedResource>> {
    let mut found = Vec::new();
    let mut named = sql.prepare_cached(&format!(
        "SELECT {UNSELECTED} WHERE resource.source = ?1 AND selection = ?2 AND resource.identity = ?3"
    ))?;
    for link in links.iter().filter(|link| link.is("describes")) {
        let mut rows = named.query(params![source, selection, identity(&link.href)])?;
        while let Some(row) = rows.next()?.as_ref() {
            found.push(described(row)?);
        }
    }
    let mut naming = sql.prepare_cached(&format!(
        "SELECT {UNSELECTED} WHERE resource.source || '' = ?1 AND selection = ?2 AND resource.id IN (SELECT resource_id FROM relation WHERE target = ?3 AND kind = ?4) LIMIT ?5"
    ))?;
    let naming = naming.query_map(
        params![
            source,
            selection,
            hash(uri.url()),
            RelationKind::DescribedBy.number(),
            Count::of_rows(MAX_DESCRIBED),
        ],
        described,
    )?;
    for row in naming {
        found.push(row?);
    }
    Ok(found)
}

fn described(row: &Row<'_>) -> Result<DescribedResource> {
    Ok(DescribedResource {
        id: row.get(0)?,
        uri: column(row, 1)?,
        links: row.get::<_, LinkList<_>>(2)?.0,
        lacks: Criteria::from_bits(row.get(3)?),
    })
}

/// A Source that has representations of a URI; `None`: there is none.
pub(crate) fn source_of_alternates(sql: &Connection, uri: &ResourceUri) -> Result<Option<String>> {
    sql.prepare_cached(
        "SELECT resource.source FROM relation CROSS JOIN resource ON resource.id = relation.resource_id
         WHERE target = ?1 AND relation.kind = ?2 LIMIT 1",
    )?
    .query_row(
        params![hash(uri.url()), RelationKind::AlternateOf.number()],
        |row| row.get(0),
    )
    .optional()
}

/// The resources of a Source whose links name that one, and as what; the first ones.
pub(crate) fn named_by(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
) -> Result<Vec<(RelationKind, String)>> {
    let mut query = sql.prepare_cached(
        "SELECT resource.uri, COALESCE(task.links, resource.links) FROM relation
         CROSS JOIN resource ON resource.id = relation.resource_id
         LEFT JOIN task ON task.resource_id = resource.id
         WHERE target = ?1 AND relation.kind IN (1, 2, 3, 4) AND resource.source = ?2 ORDER BY relation.resource_id LIMIT ?3",
    )?;
    let limit = Count::of_rows(MAX_NAMED_BY);
    let mut rows = query.query(params![hash(uri.url()), source, limit])?;
    let mut found = BTreeSet::new();
    while let Some(row) = rows.next()?.as_ref() {
        let links = row.get::<_, LinkList<Vec<Link>>>(1)?.0;
        let named = links
            .iter()
            .filter(|link| identity(&link.href) == uri.identity());
        for kind in named.filter_map(RelationKind::of) {
            found.insert((kind, row.get(0)?));
        }
    }
    Ok(found.into_iter().collect())
}
