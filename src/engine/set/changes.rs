//! From the entry of a document to a change of a resource.

use chrono::{DateTime, Utc};
use resourcesync::media_type::content_coding;
use resourcesync::{ChangeKind, Entry, SourceTime};
use resyncd_core::{Expected, ResourceUri, Standing, is_plausible};

use crate::engine::apply::candidates::candidates_of;
use crate::engine::set::linked::linked_of;
use crate::store::{Change, VersionRule};
use crate::{clock, config};

/// A change, and the path of its bytes in the package.
pub(super) type ListedChange = (Change, Option<String>);

/// The change that an entry of a Resource List or a manifest states: a deletion if its resource has expired.
pub(super) fn listed_change(source: &config::Source, mut entry: Entry) -> Option<ListedChange> {
    let path = entry.md.path.take();
    let changed_at = note_listed(&mut entry, clock::now().wall);
    let change = located_change(source, entry, ChangeKind::Created, changed_at)?;
    Some((change, path))
}

/// Has an entry of a list state a deletion if its resource has expired (version 0.1), and else no change; returns its time.
fn note_listed(entry: &mut Entry, now: DateTime<Utc>) -> Option<SourceTime> {
    let expired = entry.expired_at(now.into());
    entry.md.change = expired.map(|_| ChangeKind::Deleted);
    expired.or(entry.lastmod)
}

/// Has an entry that states a change state a deletion if its resource has expired since (version 0.1).
pub(super) fn note_expiry(entry: &mut Entry, now: DateTime<Utc>) {
    let expired = entry.expired_at(now.into());
    if entry.md.change != Some(ChangeKind::Deleted) && expired.is_some() {
        entry.md.change = Some(ChangeKind::Deleted);
        entry.md.datetime = expired;
    }
}

/// The same; returns the time of the change, `None` if it states no plausible one.
pub(super) fn note_change(entry: &mut Entry, now: DateTime<Utc>) -> Option<SourceTime> {
    note_expiry(entry, now);
    time_of_change(entry, now)
}

/// The time of the change that an entry states; `None` if it states no plausible one.
pub(super) fn time_of_change(entry: &Entry, now: DateTime<Utc>) -> Option<SourceTime> {
    entry.changed_at().filter(|&time| is_plausible(time, now))
}

/// As [`parse_change`], with the host of the first candidate; also `None` for what is not selected. (An entry of a list proves even so
/// that its resource exists.) An entry that states no kind is an update.
pub(super) fn change_of(
    source: &config::Source,
    entry: Entry,
    changed_at: Option<SourceTime>,
) -> Option<Change> {
    let change = located_change(source, entry, ChangeKind::Updated, changed_at)?;
    let is_irrelevant = change.standing.is_some_and(Standing::is_irrelevant);
    // What the mirror has from before is deleted all the same.
    let deletes = change.kind == ChangeKind::Deleted;
    (!is_irrelevant || deletes).then_some(change)
}

fn located_change(
    source: &config::Source,
    entry: Entry,
    kind: ChangeKind,
    changed_at: Option<SourceTime>,
) -> Option<Change> {
    let mut change = parse_change(source, entry, kind, changed_at)?;
    if !change.links.is_empty() && change.kind != ChangeKind::Deleted {
        let expected = Expected {
            content: change.content.clone(),
            encoding: None,
            modified: None,
        };
        let first = candidates_of(&source.hosts, &change.uri, &expected, &change.links);
        if let Some(first) = first.into_iter().next() {
            change.authority = first.uri.authority();
        }
    }
    Some(change)
}

/// The change that an entry states; `None` if the resource is not wanted, or can't be fetched at all, or if the entry is a package
/// of changes.
///
/// An implausible time counts as unknown: it would replace every later change, or be replaced by every earlier one. `kind` is
/// the kind of an entry that states none; to check a resource once too often loses nothing.
fn parse_change(
    source: &config::Source,
    entry: Entry,
    kind: ChangeKind,
    changed_at: Option<SourceTime>,
) -> Option<Change> {
    if kind == ChangeKind::Updated && entry.is_package_of_changes() {
        return None;
    }
    let uri = ResourceUri::try_from(entry.loc).ok()?;
    if !source.filter.wants(&uri) {
        return None;
    }
    let now = clock::now().wall;
    let selection = source.filter.selection();
    let standing = selection.standing(entry.md.content.media_type.as_deref(), &entry.links);
    let linked = linked_of(source, &uri, &entry.links, now);
    Some(Change {
        authority: uri.authority(),
        uri,
        kind: entry.md.change.unwrap_or(kind),
        changed_at: changed_at.filter(|&time| is_plausible(time, now)),
        lastmod: entry.lastmod,
        content: entry.md.content,
        encoding: entry.md.encoding.as_deref().and_then(content_coding),
        links: entry.links,
        overtaken: false,
        frequency: entry.frequency,
        unconfirmed: false,
        standing,
        has_cut_links: entry.has_cut_links,
        linked,
        version: match source.versions {
            Some(_) => VersionRule::Stored,
            None => VersionRule::Ignored,
        },
    })
}

/// The version that an entry announces which may be no news, or of which another one of the resource may count; `None`: versions are not
/// stored, or it has none.
pub(super) fn only_version(change: &Change) -> Option<Change> {
    let is_stored = change.version == VersionRule::Stored && change.kind != ChangeKind::Deleted;
    is_stored.then(|| Change {
        version: VersionRule::OnlyStored,
        ..change.clone()
    })
}
