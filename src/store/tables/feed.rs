//! `feed`: the log of applied changes. No sequence number is used twice. `origin` names the kind of document, whether a patch made the
//! file, and whether links are left out. An entry names the row of its resource.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use resourcesync::entries::LinkLimit;
use resourcesync::{Link, SourceTime};
use resyncd_core::ResourceUri;

use super::identity::Identity;
use super::values::{Column, Count, LinkList, Micros, column};
use super::{mirrored_path, published_set};
use crate::random::hex_name;
use crate::store::change::Origin;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Result, Row, params};
use crate::store::unreadable::UnreadableRows;

/// A change that was applied.
#[derive(Clone, Debug)]
pub struct FeedEntry {
    /// Its sequence number.
    pub seq: i64,
    /// When it was applied, on our clock.
    pub applied_at: DateTime<Utc>,
    /// The label of the Source.
    pub source: String,
    /// The Capability List of the set that announced it.
    pub set: String,
    /// The resource.
    pub uri: String,
    /// What happened: `created`, `updated`, `deleted` or, where only its links are others, `linked`.
    pub change: String,
    /// The file, relative to the mirror; of a deleted resource, the file that it had. `None`: it had none.
    pub path: Option<String>,
    /// The length of the file, in bytes; `None`: it was removed.
    pub length: Option<u64>,
    /// When it happened at the Source.
    pub changed_at: Option<SourceTime>,
    /// The kind of document that announced it.
    pub origin: String,
    /// What the resource describes, the metadata that describes it, its kinds and collections, what it is a representation of, and its
    /// original. As many as an entry has room for.
    pub links: Vec<Link>,
    /// Whether there was no room for all of them.
    pub are_links_left_out: bool,
    /// Whether it was applied by a patch of the version before.
    pub is_patched: bool,
}

/// What follows the origin of an entry that was applied by a patch.
const BY_PATCH: &str = " patch";
/// What follows that where there was no room for all links.
const LINKS_LEFT_OUT: &str = " cut";

impl FeedEntry {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let uri: ResourceUri = column(row, "uri")?;
        let path: String = row.get("path")?;
        let stated: String = row.get("origin")?;
        let (stated, are_links_left_out) = without_suffix(&stated, LINKS_LEFT_OUT);
        let (origin, is_patched) = without_suffix(stated, BY_PATCH);
        Ok(Self {
            is_patched,
            are_links_left_out,
            origin: word_of(ORIGINS, origin.to_owned()),
            seq: row.get("seq")?,
            applied_at: row.get::<_, Micros>("applied_at")?.0,
            source: row.get("source")?,
            set: row.get("capability_list")?,
            change: word_of(CHANGES, row.get("change")?),
            path: mirrored_path::of(Some(path).filter(|path| path != PLAIN), &uri),
            uri: uri.to_string(),
            length: row.get::<_, Option<Count>>("length")?.map(u64::from),
            changed_at: column(row, "changed_at")?,
            links: row.get::<_, LinkList<_>>("links")?.0,
        })
    }
}

/// A text without its suffix, and whether it has it.
fn without_suffix<'a>(text: &'a str, suffix: &str) -> (&'a str, bool) {
    match text.strip_suffix(suffix) {
        Some(rest) => (rest, true),
        None => (text, false),
    }
}

/// What happened where only the links of a resource are others than before.
pub(crate) const LINKED: &str = "linked";

/// What an entry has for the plain path of its URI.
const PLAIN: &str = "";

/// What an entry has for a word that most have, and the word. Databases have these: they never change.
type Abbreviations = &'static [(&'static str, &'static str)];
const CHANGES: Abbreviations = &[("c", "created"), ("u", "updated"), ("d", "deleted")];
const ORIGINS: Abbreviations = &[
    ("n", "notification"),
    ("cl", "change-list"),
    ("cd", "change-dump"),
    ("rl", "resource-list"),
    ("rd", "resource-dump"),
];

fn word_of(all: Abbreviations, stored: String) -> String {
    let found = all.iter().find(|(short, _)| *short == stored);
    found.map_or(stored, |(_, word)| (*word).to_owned())
}

fn abbreviated(all: Abbreviations, word: &str) -> &str {
    let found = all.iter().find(|(_, full)| *full == word);
    found.map_or(word, |(short, _)| short)
}

/// The columns of entries, with their sets and URIs. `CROSS JOIN`: they are read in the order of their numbers.
const ENTRIES: &str = "seq, feed.applied_at AS applied_at, source_set.source AS source, capability_list,
        COALESCE(resource.uri, removed_resource.uri) AS uri, feed.change AS change, feed.path AS path, feed.length AS length,
        feed.changed_at AS changed_at, feed.origin AS origin, feed.links AS links
    FROM feed CROSS JOIN source_set ON source_set.id = feed.set_id
    LEFT JOIN removed_resource ON removed_resource.id = feed.resource_id LEFT JOIN resource ON resource.id = feed.resource_id";

/// The entries after a sequence number, oldest first. `links`: also those of resources of which only the links are others.
pub(crate) fn after(
    sql: &Connection,
    since: i64,
    limit: usize,
    links: bool,
    unreadable: &UnreadableRows,
) -> Result<Vec<FeedEntry>> {
    let mut entries = sql.prepare_cached(&format!(
        "SELECT {ENTRIES} WHERE seq > ?1 AND (?2 OR feed.change <> ?3) ORDER BY seq LIMIT ?4"
    ))?;
    readable(since, limit, |since| {
        let values = params![since, links, LINKED, Count::of_rows(limit)];
        let rows = entries.query_map(values, |row| numbered(row, unreadable))?;
        rows.collect()
    })
}

/// The number of the entry that is so many entries before a number; `None`: there are not so many.
pub(crate) fn number_before(sql: &Connection, before: i64, entries: usize) -> Result<Option<i64>> {
    let skipped = Count::of_rows(entries.saturating_sub(1));
    sql.prepare_cached("SELECT seq FROM feed WHERE seq < ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2")?
        .query_row(params![before, skipped], |row| row.get(0))
        .optional()
}

/// The number of the entry that is `nth` after that one, from 1; `None`: there are fewer.
pub(crate) fn nth_after(sql: &Connection, since: i64, nth: usize) -> Result<Option<i64>> {
    sql.prepare_cached("SELECT seq FROM feed WHERE seq > ?1 ORDER BY seq LIMIT 1 OFFSET ?2")?
        .query_row(
            params![since, Count::of_rows(nth.saturating_sub(1))],
            |row| row.get(0),
        )
        .optional()
}

/// The entries of a Source with a number after `since` and up to `until`, oldest first, without those of which only the links are others.
/// There is no index for the Source; the two numbers bound how many entries are read.
pub(crate) fn of_source(
    sql: &Connection,
    source: &str,
    (since, until): (i64, i64),
    limit: usize,
    unreadable: &UnreadableRows,
) -> Result<Vec<FeedEntry>> {
    let mut entries = sql.prepare_cached(&format!(
        "SELECT {ENTRIES} WHERE seq > ?1 AND seq <= ?2 AND source_set.source = ?3 AND feed.change <> ?4
         ORDER BY seq LIMIT ?5"
    ))?;
    readable(since, limit, |since| {
        let values = params![since, until, source, LINKED, Count::of_rows(limit)];
        let rows = entries.query_map(values, |row| numbered(row, unreadable))?;
        rows.collect()
    })
}

/// Of the entries with a number from `first` (`None`: from the oldest) and below `before`, newest first: those of a Source and of a URI, if
/// they are stated. There is no index for either; the two numbers bound how many entries are read.
pub(crate) fn newest(
    sql: &Connection,
    (first, before): (Option<i64>, i64),
    (source, uri): (Option<&str>, Option<&ResourceUri>),
    limit: usize,
    unreadable: &UnreadableRows,
) -> Result<Vec<FeedEntry>> {
    // The rows of the URI are found once: most entries are left out before the rows of their resources are read.
    let mut entries = sql.prepare_cached(&format!(
        "SELECT {ENTRIES} WHERE seq >= ?1 AND seq < ?2 AND (CAST(?3 AS TEXT) IS NULL OR source_set.source = ?3)
           AND (CAST(?4 AS TEXT) IS NULL OR removed_resource.identity = ?4 OR feed.resource_id IN (
               SELECT id FROM resource WHERE source IN (SELECT DISTINCT source FROM source_set) AND identity = ?4))
           AND feed.change <> ?5
         ORDER BY seq DESC LIMIT ?6"
    ))?;
    let first = first.unwrap_or(i64::MIN);
    readable(before, limit, |before| {
        let limit = Count::of_rows(limit);
        let values = params![first, before, source, uri.map(Identity), LINKED, limit];
        let rows = entries.query_map(values, |row| numbered(row, unreadable))?;
        rows.collect()
    })
}

/// An entry with its number; `None`: it can't be read.
type NumberedEntry = (i64, Option<FeedEntry>);

fn numbered(row: &Row<'_>, unreadable: &UnreadableRows) -> Result<NumberedEntry> {
    let entry = unreadable.read(row, "source", FeedEntry::from_row)?;
    Ok((row.get("seq")?, entry))
}

/// The first entries that can be read. A page without any that can would look like the end of the feed. `next`: the next entries from a
/// number on, `limit` at most, because a query may read all of its rows at once.
fn readable(
    from: i64,
    limit: usize,
    mut next: impl FnMut(i64) -> Result<Vec<NumberedEntry>>,
) -> Result<Vec<FeedEntry>> {
    let (mut entries, mut from) = (Vec::new(), from);
    loop {
        let found = next(from)?;
        let is_end = found.len() < limit;
        from = found.last().map_or(from, |(seq, _)| *seq);
        entries.extend(found.into_iter().filter_map(|(_, entry)| entry));
        if is_end || entries.len() >= limit {
            entries.truncate(limit);
            return Ok(entries);
        }
    }
}

/// Whether there is an entry with a number below that one.
pub(crate) fn has_before(sql: &Connection, seq: i64) -> Result<bool> {
    sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM feed WHERE seq < ?1)")?
        .query_row([seq], |row| row.get(0))
}

/// The id of the feed: another one in each database.
pub(crate) fn id(sql: &Connection) -> Result<String> {
    sql.query_row("SELECT feed FROM feed_id", [], |row| row.get(0))
}

/// Begins a feed, or makes it another one: positions are those of one id.
pub(crate) fn begin(sql: &Connection) -> Result<()> {
    let id =
        hex_name(8).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    sql.execute(
        "INSERT INTO feed_id (id, feed) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET feed = excluded.feed",
        [id],
    )
    .map(drop)
}

/// The greatest number that was used, also if its entry was removed; 0: none was.
pub(crate) fn last_number(sql: &Connection) -> Result<i64> {
    sql.prepare_cached("SELECT last FROM feed_number")?
        .query_row([], |row| row.get(0))
}

/// How many entries follow that number. Numbers are not counted: a copy of a database begins with others.
pub(crate) fn count_after(sql: &Connection, since: i64) -> Result<u64> {
    let Count(entries) = sql
        .prepare_cached("SELECT COUNT(*) FROM feed WHERE seq > ?1")?
        .query_row([since], |row| row.get(0))?;
    Ok(entries)
}

/// The last entry that was removed; `None`: all are there.
pub(crate) fn trimmed(sql: &Connection) -> Result<Option<i64>> {
    sql.prepare_cached("SELECT last FROM feed_trim")?
        .query_row([], |row| row.get(0))
        .optional()
}

/// Of the oldest entries, `most` at most, those before the first one that follows number `until`, or was applied at that time or
/// later: the last of them, and their number.
pub(crate) fn oldest_before(
    sql: &Connection,
    before: DateTime<Utc>,
    until: i64,
    most: usize,
) -> Result<Option<(i64, usize)>> {
    let mut statement = sql.prepare_cached(
        "SELECT seq, applied_at < ?1 AND seq <= ?2 FROM feed ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = statement.query(params![Micros(before), until, Count::of_rows(most)])?;
    let mut found = None;
    while let Some(row) = rows.next()?.as_ref() {
        if !row.get::<_, bool>(1)? {
            break;
        }
        let entries = found.map_or(0, |(_, entries)| entries);
        found = Some((row.get(0)?, entries + 1));
    }
    Ok(found)
}

/// Removes the entries up to one.
pub(crate) fn trim(sql: &Connection, last: i64) -> Result<()> {
    sql.execute("DELETE FROM feed WHERE seq <= ?1", [last])?;
    sql.execute(
        "INSERT INTO feed_trim (id, last) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET last = MAX(feed_trim.last, excluded.last)",
        [last],
    )
    .map(drop)
}

/// What an entry is of.
pub(crate) struct EntrySubject {
    pub(crate) seq: i64,
    /// The label of the Source.
    pub(crate) source: String,
    pub(crate) resource: ResourceId,
    /// Whether only the links of the resource are others than before.
    pub(crate) is_linked: bool,
}

/// What the entries with numbers below `before` are of, newest first.
pub(crate) fn subjects(sql: &Connection, before: i64, limit: usize) -> Result<Vec<EntrySubject>> {
    sql.prepare_cached(
        "SELECT seq, source_set.source AS source, resource_id, feed.change = ?3 AS is_linked
         FROM feed CROSS JOIN source_set ON source_set.id = feed.set_id WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2",
    )?
    .query_map(params![before, Count::of_rows(limit), LINKED], |row| {
        Ok(EntrySubject {
            seq: row.get("seq")?,
            source: row.get("source")?,
            resource: row.get("resource_id")?,
            is_linked: row.get("is_linked")?,
        })
    })?
    .collect()
}

/// Removes an entry that a newer one supersedes.
pub(crate) fn remove_superseded(sql: &Connection, seq: i64) -> Result<()> {
    sql.prepare_cached("DELETE FROM feed WHERE seq = ?1")?
        .execute([seq])
        .map(drop)
}

/// Starts the numbers of a new database at the time in microseconds. So none of them was used by the database before it,
/// because no entry takes less than a microsecond, and a reader that has its old position misses nothing.
pub(crate) fn start_numbers(sql: &Connection, now: DateTime<Utc>) -> Result<()> {
    sql.execute("UPDATE feed_number SET last = MAX(last, ?1)", [Micros(now)])
        .map(drop)
}

/// Makes the feed of a copy another one: it has another id, and its numbers start at the time in microseconds, as those of
/// [`start_numbers`].
pub(crate) fn begin_another(sql: &Connection, now: DateTime<Utc>) -> Result<()> {
    begin(sql)?;
    // What was published after the copy was made is not in it: published changes begin anew where it is used.
    published_set::delete_all(sql)?;
    start_numbers(sql, now)
}

/// An entry that has no number yet.
pub(crate) struct NewEntry<'a> {
    pub(crate) applied_at: DateTime<Utc>,
    pub(crate) set: SetId,
    /// The row of the resource, which must exist.
    pub(crate) resource: ResourceId,
    pub(crate) uri: &'a ResourceUri,
    /// As of a [`FeedEntry`].
    pub(crate) change: &'a str,
    pub(crate) path: &'a str,
    pub(crate) length: Option<u64>,
    pub(crate) changed_at: Option<SourceTime>,
    pub(crate) origin: Origin,
    /// All links of the resource; those that pair it with others are stored.
    pub(crate) links: &'a [Link],
    /// As of a [`FeedEntry`].
    pub(crate) is_patched: bool,
}

/// The relations that a reader of the feed pairs resources by, and where a resource is from.
const PAIRING: [&str; 6] = [
    "describes",
    "describedby",
    "profile",
    "collection",
    "canonical",
    "via",
];

/// How many links an entry has: it repeats those of its resource at each change.
const LINKS: LinkLimit = LinkLimit::new(64, 8 << 10);

/// The links that pair a resource with others, without what else they state of their targets, as many as an entry has room for; and
/// whether that is not all.
fn pairing(links: &[Link]) -> (Vec<Link>, bool) {
    let rel_of = |link: &Link| PAIRING.into_iter().find(|rel| link.is(rel));
    let mut limit = LINKS;
    let pairing = links
        .iter()
        .filter_map(|link| Some(Link::new(rel_of(link)?, link.href.clone())))
        .filter(|link| limit.admit(link));
    (pairing.collect(), limit.is_exceeded())
}

/// By how much the clock may be set back so that the times of the entries go on increasing.
const SMALL_STEP: TimeDelta = TimeDelta::minutes(1);

/// Takes a number of the feed, or none, and a time that is later than all before it, because an interval of time must not end between two
/// entries of one time, nor within a [snapshot](begin_snapshot). A clock that was set back further has the published changes begin anew.
/// Where several write, this is what puts their commits in the order of the numbers.
fn next(sql: &Connection, numbers: i64, now: DateTime<Utc>) -> Result<(i64, DateTime<Utc>)> {
    let now = now.trunc_subsecs(6);
    let (seq, Micros(at), Micros(before)) = sql
        .prepare_cached(
            "UPDATE feed_number SET last = last + ?1, before = at, at = CASE WHEN at >= ?2 AND at - ?2 <= ?3 THEN at + 1 ELSE ?2 END
             RETURNING last, at, before",
        )?
        .query_row(
            params![numbers, Micros(now), SMALL_STEP.num_microseconds()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
    if at <= before {
        published_set::begin_anew(sql, seq - numbers, now - TimeDelta::microseconds(1))?;
    }
    Ok((seq, at))
}

/// Begins a snapshot: who reads after this has been committed has all entries up to its time, and all that follow are of a later one.
pub(crate) fn begin_snapshot(sql: &Connection, now: DateTime<Utc>) -> Result<DateTime<Utc>> {
    next(sql, 0, now).map(|(_, at)| at)
}

/// A time that each new entry is later than: that of the last snapshot, or of the last entry, even if it was removed since.
pub(crate) fn floor(sql: &Connection) -> Result<DateTime<Utc>> {
    let Micros(at) = sql
        .prepare_cached("SELECT at FROM feed_number")?
        .query_row([], |row| row.get(0))?;
    Ok(at)
}

/// The number and the time of the newest entry; `None`: the feed is empty.
pub(crate) fn last(sql: &Connection) -> Result<Option<(i64, DateTime<Utc>)>> {
    last_until(sql, i64::MAX)
}

/// The number and the time of the newest entry up to a number.
pub(crate) fn last_until(sql: &Connection, seq: i64) -> Result<Option<(i64, DateTime<Utc>)>> {
    sql.prepare_cached(
        "SELECT seq, applied_at FROM feed WHERE seq <= ?1 ORDER BY seq DESC LIMIT 1",
    )?
    .query_row([seq], number_and_time)
    .optional()
}

/// The number and the time of the oldest entry after a number.
pub(crate) fn first_after(sql: &Connection, seq: i64) -> Result<Option<(i64, DateTime<Utc>)>> {
    sql.prepare_cached("SELECT seq, applied_at FROM feed WHERE seq > ?1 ORDER BY seq LIMIT 1")?
        .query_row([seq], number_and_time)
        .optional()
}

fn number_and_time(row: &Row<'_>) -> Result<(i64, DateTime<Utc>)> {
    Ok((row.get("seq")?, row.get::<_, Micros>("applied_at")?.0))
}

/// The number of the newest entry after number `after` of a time before that one, or else `after`. The times increase from there on.
pub(crate) fn last_before(sql: &Connection, after: i64, time: DateTime<Utc>) -> Result<i64> {
    let Some((mut high, newest)) = last(sql)?.filter(|(seq, _)| *seq > after) else {
        return Ok(after);
    };
    if newest < time {
        return Ok(high);
    }
    // Those up to `low` are before the time, `high` is not.
    let mut low = after;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match first_after(sql, middle - 1)? {
            Some((seq, at)) if seq < high && at < time => low = seq,
            Some((seq, _)) if seq < high => high = seq,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// A change of a published set.
#[derive(Clone, Debug)]
pub struct SetChange {
    /// Its number in the feed.
    pub seq: i64,
    /// Its time: no other change of the feed has the same.
    pub at: DateTime<Utc>,
    /// The row of its resource.
    pub resource: ResourceId,
    /// `created`, `updated` or `deleted`; `linked`: only its links have changed.
    pub change: String,
    /// The URI at the Source.
    pub uri: String,
    /// The path of its file, or of the one that it had.
    pub path: Option<String>,
}

/// What is an entry of a set of a Source: it is of a resource that belongs to the set, or of one that was deleted.
const OF_SET: &str = "feed.set_id IN (SELECT id FROM source_set WHERE source = (SELECT source FROM source_set WHERE id = ?1))
    AND seq > ?2 AND seq <= ?3 AND (feed.change IN ('d', 'deleted')
        OR EXISTS (SELECT 1 FROM member WHERE member.set_id = ?1 AND member.resource_id = feed.resource_id))";

/// The changes of a set with a number after one and up to another one, oldest first, at most `limit`.
pub(crate) fn of_set(
    sql: &Connection,
    set: SetId,
    (after, until): (i64, i64),
    limit: usize,
) -> Result<Vec<SetChange>> {
    sql.prepare_cached(&format!(
        "SELECT seq, feed.applied_at AS at, feed.resource_id AS resource, feed.change AS change, feed.path AS path,
                COALESCE(resource.uri, removed_resource.uri) AS uri
         FROM feed LEFT JOIN removed_resource ON removed_resource.id = feed.resource_id
              LEFT JOIN resource ON resource.id = feed.resource_id
         WHERE {OF_SET} ORDER BY seq LIMIT ?4"
    ))?
    .query_map(params![set, after, until, Count::of_rows(limit)], SetChange::from_row)?
    .collect()
}

impl SetChange {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let uri: ResourceUri = column(row, "uri")?;
        let path: String = row.get("path")?;
        Ok(Self {
            seq: row.get("seq")?,
            at: row.get::<_, Micros>("at")?.0,
            resource: row.get("resource")?,
            change: word_of(CHANGES, row.get("change")?),
            path: mirrored_path::of(Some(path).filter(|path| path != PLAIN), &uri),
            uri: uri.to_string(),
        })
    }
}

/// The number and the time of the newest change of a set with a number after `after` and up to `until`.
pub(crate) fn newest_of_set(
    sql: &Connection,
    set: SetId,
    (after, until): (i64, i64),
) -> Result<Option<(i64, DateTime<Utc>)>> {
    sql.prepare_cached(&format!(
        "SELECT seq, applied_at FROM feed WHERE {OF_SET} ORDER BY seq DESC LIMIT 1"
    ))?
    .query_row(params![set, after, until], number_and_time)
    .optional()
}

/// Appends an entry and returns its sequence number.
pub(crate) fn append(sql: &Connection, entry: &NewEntry<'_>) -> Result<i64> {
    let (links, are_left_out) = pairing(entry.links);
    let mut origin = abbreviated(ORIGINS, entry.origin.code()).to_owned();
    for (suffix, applies) in [(BY_PATCH, entry.is_patched), (LINKS_LEFT_OUT, are_left_out)] {
        if applies {
            origin.push_str(suffix);
        }
    }
    let (seq, at) = next(sql, 1, entry.applied_at)?;
    sql.prepare_cached(
        "INSERT INTO feed (seq, applied_at, set_id, change, path, length, changed_at, origin, links, resource_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        seq,
        Micros(at),
        entry.set,
        abbreviated(CHANGES, entry.change),
        mirrored_path::stored(entry.path, entry.uri).unwrap_or(PLAIN),
        entry.length.map(Count),
        Column(&entry.changed_at),
        origin,
        LinkList(links),
        entry.resource,
    ])?;
    Ok(seq)
}
