//! Adopts files of the mirror that an audit found correct although the database did not know them.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, Digest};
use resyncd_core::{ContentMatch, RecordedFile, latest_plausible};

use super::batch_context::BatchContext;
use super::membership::TotalsChange;
use super::repair::set_of;
use super::settle::Cause;
use super::statements::Resource;
use crate::store::change::{Change, Origin};
use crate::store::ids::SetId;
use crate::store::tables::feed::{self, NewEntry};
use crate::store::tables::resource::{self, AdoptedFile};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// A correct file.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The resource.
    pub change: Change,
    /// The set that announced it; `None`: the one that announced it last, as the database has it.
    pub set: Option<SetId>,
    /// Its file, relative to the mirror.
    pub path: String,
    /// The length of the file, in bytes.
    pub length: u64,
    /// Its digests.
    pub hashes: Vec<Digest>,
}

impl Store {
    /// Adopts files without fetching them, and returns the URIs of their resources. A file whose path belongs to another
    /// resource is left to the next baseline.
    pub async fn adopt(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        adoptions: Vec<Adoption>,
    ) -> Result<Vec<String>, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let mut adopted = Vec::new();
            let mut totals = TotalsChange::default();
            for adoption in &adoptions {
                let uri = &adoption.change.uri;
                let Some(set) = set_of(tx.sql, &source, adoption.set, uri)? else {
                    continue;
                };
                let context = BatchContext::read(tx.sql, set, &source, Origin::Audit, now)?;
                if adopt(tx, &context, &mut totals, adoption)? {
                    adopted.push(uri.to_string());
                }
            }
            totals.write(tx.sql)?;
            Ok(adopted)
        })
        .await
    }
}

fn adopt(
    tx: &mut Tx<'_>,
    context: &BatchContext<'_>,
    totals: &mut TotalsChange,
    adoption: &Adoption,
) -> Result<bool, StoreError> {
    let (sql, change) = (tx.sql, &adoption.change);
    if resource::is_path_of_another(sql, context.source, &adoption.path, &change.uri)? {
        return Ok(false);
    }
    let mut resource = Resource::of_change(sql, context, change)?;
    resource.join_changed(sql, context, false)?;
    let id = resource.state.id;
    let before = resource.live_length();
    let known = resource.state.known.as_ref();
    let changed_at = change
        .changed_at
        .max(known.and_then(|known| known.changed_at));
    let known = known.filter(|known| !known.deleted);
    let is_known =
        known.is_some_and(|known| known.file().has_bytes(adoption.length, &adoption.hashes));
    let recorded = RecordedFile {
        length: Some(adoption.length),
        hashes: &adoption.hashes,
        is_doubted: false,
    };
    // What the record of another file implied ends with it.
    let (announced_by, fetched) = (resource.state.announced_by, resource.state.fetched);
    resource
        .statements
        .retain(|it| it.entry.set.0 != announced_by.0 || it.revision > fetched);
    let differs = resource
        .statements
        .iter()
        .any(|it| it.exists() && recorded.compare(&it.entry.content) == ContentMatch::Different);
    let file = AdoptedFile {
        set: context.set,
        fetched: if differs {
            resource.state.fetched
        } else {
            resource.state.revision
        },
        path: &adoption.path,
        length: adoption.length,
        media_type: change.content.media_type.as_deref(),
        hashes: &adoption.hashes,
        lastmod: change
            .lastmod
            .filter(|&lastmod| lastmod <= latest_plausible(context.now)),
        changed_at,
    };
    resource::adopt(sql, id, &change.uri, &file, context.now)?;
    totals.count_file(sql, id, before, adoption.length)?;
    if !is_known {
        // The readers of the feed have not seen these bytes.
        let entry = NewEntry {
            applied_at: context.now,
            set: context.set,
            resource: id,
            uri: &change.uri,
            change: match before {
                None => ChangeKind::Created.as_str(),
                Some(_) => ChangeKind::Updated.as_str(),
            },
            path: &adoption.path,
            length: Some(adoption.length),
            changed_at,
            origin: context.origin,
            links: &change.links,
            is_patched: false,
        };
        let seq = feed::append(sql, &entry)?;
        tx.wake(Wake::Feed(seq));
    }
    resource.reread(sql, context, None)?;
    resource.settle(sql, context, None, Cause::Event)?;
    Ok(true)
}
