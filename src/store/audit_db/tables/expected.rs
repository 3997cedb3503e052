//! `expected`: what the Source's documents state, one row a resource.

use resourcesync::{ContentInfo, Link, SourceTime};
use resyncd_core::ResourceUri;
use rusqlite::types::{ToSql, ToSqlOutput};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use crate::store::change::Change;
use crate::store::tables::identity::Identity;
use crate::store::tables::values::{Column, ContentColumns, Count, LinkList, column, content_info};

pub(super) const TABLE: &str = "
    CREATE TABLE expected (
        id INTEGER PRIMARY KEY,
        identity TEXT NOT NULL UNIQUE,
        uri TEXT NOT NULL,
        set_number INTEGER NOT NULL,
        document INTEGER NOT NULL,
        -- 0: deleted, 1: present, 2: unknown.
        present INTEGER NOT NULL,
        stated_at INTEGER NOT NULL,
        changed_at INTEGER,
        lastmod INTEGER,
        length INTEGER,
        media_type TEXT,
        hashes TEXT NOT NULL,
        links TEXT,
        linked TEXT,
        path TEXT NOT NULL
    );
    CREATE INDEX expected_path ON expected (path);
";

/// Whether a resource exists at the Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    Present,
    Unknown,
}

impl ToSql for Presence {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        let number = match self {
            Self::Absent => 0,
            Self::Present => 1,
            Self::Unknown => 2,
        };
        Ok(number.into())
    }
}

/// An expected file of the mirror.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Its id: greater than 0.
    pub id: i64,
    /// The number of the set that announced it.
    pub set: u32,
    /// The resource.
    pub uri: ResourceUri,
    /// The path of its file, relative to the mirror.
    pub path: String,
    /// When it changed, if that is stated.
    pub changed_at: Option<SourceTime>,
    /// When it was last modified.
    pub lastmod: Option<SourceTime>,
    /// Its content, as far as that is stated.
    pub content: ContentInfo,
    /// Its related resources.
    pub links: Vec<Link>,
    /// Whether the state database has its file as live.
    pub is_known: bool,
}

impl Expectation {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            set: row.get("set_number")?,
            uri: column(row, "uri")?,
            path: row.get("path")?,
            changed_at: column(row, "changed_at")?,
            lastmod: column(row, "lastmod")?,
            content: content_info(row)?,
            links: row.get::<_, LinkList<_>>("links")?.0,
            is_known: row.get("is_known")?,
        })
    }
}

const EXPECTATION: &str =
    "SELECT expected.id AS id, expected.set_number AS set_number, expected.uri AS uri,
    expected.path AS path, expected.changed_at AS changed_at, expected.lastmod AS lastmod, expected.length AS length,
    expected.media_type AS media_type, expected.hashes AS hashes, expected.links AS links,
    COALESCE(known.applied AND NOT known.deleted, 0) AS is_known
    FROM expected LEFT JOIN known ON known.identity = expected.identity";

/// How many files are expected.
pub(crate) fn count(sql: &Connection) -> Result<u64> {
    sql.prepare_cached("SELECT COUNT(*) FROM expected WHERE present = 1")?
        .query_row([], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// The expected files after an id.
pub(crate) fn after(sql: &Connection, after: i64, limit: usize) -> Result<Vec<Expectation>> {
    sql.prepare_cached(&format!(
        "{EXPECTATION} WHERE expected.id > ?1 AND expected.present = 1 ORDER BY expected.id LIMIT ?2"
    ))?
    .query_map(params![after, Count::of_rows(limit)], Expectation::from_row)?
    .collect()
}

/// As [`after`], those with links.
pub(crate) fn linked_after(sql: &Connection, after: i64, limit: usize) -> Result<Vec<Expectation>> {
    sql.prepare_cached(&format!(
        "{EXPECTATION} WHERE expected.id > ?1 AND expected.present = 1 AND expected.links IS NOT NULL
         ORDER BY expected.id LIMIT ?2"
    ))?
    .query_map(params![after, Count::of_rows(limit)], Expectation::from_row)?
    .collect()
}

pub(crate) fn get(sql: &Connection, id: i64) -> Result<Option<Expectation>> {
    sql.prepare_cached(&format!("{EXPECTATION} WHERE expected.id = ?1"))?
        .query_row([id], Expectation::from_row)
        .optional()
}

/// What an entry of a document states.
pub(crate) struct Statement<'a> {
    pub(crate) set: u32,
    /// The number of the document.
    pub(crate) document: i64,
    pub(crate) presence: Presence,
    pub(crate) stated_at: SourceTime,
    pub(crate) entry: &'a Change,
}

/// Replaces an earlier statement and returns `true`. One of the same time is replaced, too, unless it is of the same document
/// and that has the newest entry first.
pub(crate) fn update_if_later(
    sql: &Connection,
    statement: &Statement<'_>,
    newest_first: bool,
) -> Result<bool> {
    let entry = statement.entry;
    let content = ContentColumns::from(&entry.content);
    let updated = sql
        .prepare_cached(
            "UPDATE expected SET set_number = ?2, document = ?3, present = ?4, stated_at = ?5, changed_at = ?6,
                 lastmod = ?7, length = ?8, media_type = ?9, hashes = ?10, links = ?12, linked = ?13, uri = ?14
             WHERE identity = ?1 AND (stated_at < ?5 OR (stated_at = ?5 AND NOT (?11 AND document = ?3)))",
        )?
        .execute(params![
            Identity(&entry.uri),
            statement.set,
            statement.document,
            statement.presence,
            Column(&statement.stated_at),
            Column(&entry.changed_at),
            Column(&entry.lastmod),
            content.length,
            content.media_type,
            content.hashes,
            newest_first,
            LinkList(&entry.links),
            LinkList(links_of(entry)),
            Column(&entry.uri),
        ])?;
    Ok(updated > 0)
}

/// Removes what is stated of a resource's bytes and returns `true`, if anything is stated of it. After a deletion it is unknown
/// whether the resource is present.
pub(crate) fn make_uncertain(
    sql: &Connection,
    uri: &ResourceUri,
    is_deleted: bool,
) -> Result<bool> {
    let updated = sql
        .prepare_cached(
            "UPDATE expected SET present = CASE WHEN ?2 OR present <> 1 THEN 2 ELSE 1 END,
                 lastmod = NULL, length = NULL, media_type = NULL, hashes = '', links = NULL WHERE identity = ?1",
        )?
        .execute(params![Identity(uri), is_deleted])?;
    Ok(updated > 0)
}

/// Inserts a statement, unless there is one about the resource.
pub(crate) fn insert(sql: &Connection, statement: &Statement<'_>, path: &str) -> Result<()> {
    let entry = statement.entry;
    let content = ContentColumns::from(&entry.content);
    sql.prepare_cached(
        "INSERT INTO expected (identity, uri, set_number, document, present, stated_at, changed_at, lastmod, length, media_type,
                               hashes, path, links, linked)
         VALUES (?1, ?14, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (identity) DO NOTHING",
    )?
    .execute(params![
        Identity(&entry.uri),
        statement.set,
        statement.document,
        statement.presence,
        Column(&statement.stated_at),
        Column(&entry.changed_at),
        Column(&entry.lastmod),
        content.length,
        content.media_type,
        content.hashes,
        path,
        LinkList(&entry.links),
        LinkList(links_of(entry)),
        Column(&entry.uri),
    ])?;
    Ok(())
}

/// The links to those resources that are wanted although no document need name them.
fn links_of(entry: &Change) -> Vec<Link> {
    let links = entry.linked.iter().map(|linked| Link {
        modified: linked.modified,
        content: linked.content.clone(),
        encoding: linked.encoding.clone(),
        ..Link::new(linked.linked_as.rel(), linked.uri.url().clone())
    });
    links.collect()
}

/// A present resource whose entry links to others that are wanted.
pub(crate) struct LinkingResource {
    pub(crate) id: i64,
    pub(crate) set: u32,
    pub(crate) document: i64,
    pub(crate) stated_at: SourceTime,
    pub(crate) changed_at: Option<SourceTime>,
    pub(crate) links: Vec<Link>,
}

/// The next of them after an id.
pub(crate) fn linking_after(
    sql: &Connection,
    after: i64,
    limit: usize,
) -> Result<Vec<LinkingResource>> {
    sql.prepare_cached(
        "SELECT id, set_number, document, stated_at, changed_at, linked FROM expected
         WHERE id > ?1 AND present = 1 AND linked IS NOT NULL ORDER BY id LIMIT ?2",
    )?
    .query_map(params![after, Count::of_rows(limit)], |row| {
        Ok(LinkingResource {
            id: row.get(0)?,
            set: row.get(1)?,
            document: row.get(2)?,
            stated_at: column(row, 3)?,
            changed_at: column(row, 4)?,
            links: row.get::<_, LinkList<_>>(5)?.0,
        })
    })?
    .collect()
}

pub(crate) fn has_path(sql: &Connection, path: &str) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM expected WHERE path = ?1")?
        .exists([path])
}

/// The resource that has a path.
pub(crate) struct ExpectedOwner {
    pub(crate) uri: String,
    pub(crate) set: u32,
    pub(crate) may_be_present: bool,
}

pub(crate) fn at_path(sql: &Connection, path: &str) -> Result<Option<ExpectedOwner>> {
    sql.prepare_cached(
        "SELECT uri, set_number, present <> 0 FROM expected WHERE path = ?1 ORDER BY present DESC LIMIT 1",
    )?
    .query_row([path], |row| {
        Ok(ExpectedOwner {
            uri: row.get(0)?,
            set: row.get(1)?,
            may_be_present: row.get(2)?,
        })
    })
    .optional()
}

/// Resources that the state database does not have, at paths that it has given to others. There are hardly any: their URIs
/// differ in the scheme alone, and have a port.
pub(crate) fn displaced(sql: &Connection) -> Result<Vec<(i64, ResourceUri)>> {
    sql.prepare(
        "SELECT id, uri FROM expected
         WHERE EXISTS (SELECT 1 FROM known WHERE known.path = expected.path AND known.identity <> expected.identity)
           AND NOT EXISTS (SELECT 1 FROM known WHERE known.identity = expected.identity AND known.path IS NOT NULL)",
    )?
    .query_map([], |row| Ok((row.get(0)?, column(row, 1)?)))?
    .collect()
}

pub(crate) fn set_path(sql: &Connection, id: i64, path: &str) -> Result<()> {
    sql.prepare_cached("UPDATE expected SET path = ?2 WHERE id = ?1")?
        .execute(params![id, path])?;
    Ok(())
}

/// Removes what is not selected.
pub(crate) fn delete_unselected(sql: &Connection) -> Result<()> {
    sql.execute(
        "DELETE FROM expected WHERE EXISTS (SELECT 1 FROM known WHERE known.identity = expected.identity AND known.unselected)",
        [],
    )
    .map(drop)
}

/// Takes paths from `known`, and the state of resources of which a later change was applied.
pub(crate) fn merge_known(sql: &Connection) -> Result<()> {
    sql.execute_batch(
        "UPDATE expected SET path = known.path FROM known WHERE known.identity = expected.identity AND known.path IS NOT NULL;
         UPDATE expected SET present = NOT known.deleted, stated_at = known.changed_at, changed_at = known.changed_at,
             lastmod = known.lastmod, length = known.length, media_type = known.media_type, hashes = known.hashes,
             links = known.links
         FROM known WHERE known.identity = expected.identity AND known.applied AND known.changed_at > expected.stated_at;",
    )
}

/// Inserts the live resources of `known` that changed after a time and that no document names.
pub(crate) fn insert_known_after(sql: &Connection, since: SourceTime) -> Result<()> {
    sql.execute(
        "INSERT INTO expected (identity, uri, set_number, document, present, stated_at, changed_at, lastmod, length, media_type,
                               hashes, path, links)
         SELECT identity, uri, 0, 0, 1, changed_at, changed_at, lastmod, length, media_type, hashes, path, links FROM known
         WHERE applied AND NOT deleted AND wanted AND changed_at > ?1 AND path IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM expected WHERE expected.identity = known.identity)",
        [Column(&since)],
    )?;
    Ok(())
}
