//! Records the files of a folder that is published: they are the resources of a set that nobody states.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, Digest, SourceTime};
use resyncd_core::{ResourceUri, Revision};
use url::Url;

use super::membership::TotalsChange;
use crate::store::change::Origin;
use crate::store::ids::{ResourceId, SetId};
use crate::store::query_threads::Lane;
use crate::store::tables::feed::{self, NewEntry};
use crate::store::tables::membership::{self, Membership};
use crate::store::tables::resource::{self, AdoptedFile, FolderEntry};
use crate::store::tables::{published_set, source_set};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// How many files one query reads.
const FILES: usize = 500;

/// A file of a folder, with what it has.
#[derive(Clone, Debug)]
pub struct FolderFile {
    /// Its URI.
    pub uri: ResourceUri,
    /// Its path in the folder.
    pub path: String,
    /// Its length, in bytes.
    pub length: u64,
    /// Its media type.
    pub media_type: Option<String>,
    /// Its digest.
    pub digest: Digest,
    /// When it was modified.
    pub modified: SourceTime,
    /// What tells whether it is another file of the same length and time.
    pub inode: u64,
}

impl Store {
    /// Begins to record the files of a folder, as the set of a Capability List. One of another list is that set: it is published anew.
    pub async fn begin_folder(
        self: &Arc<Self>,
        name: &str,
        capability_list: &Url,
    ) -> Result<SetId, StoreError> {
        let (name, list) = (name.to_owned(), capability_list.clone());
        self.write(move |tx| {
            for other in source_set::followed(tx.sql, &name)? {
                if other.capability_list != list {
                    source_set::rename(tx.sql, other.id, &list)?;
                    published_set::delete(tx.sql, other.id)?;
                }
            }
            Ok(source_set::follow(tx.sql, &name, &list)?.id)
        })
        .await
    }

    /// Notes that everything in the folder was recorded at that time.
    pub async fn end_folder_scan(
        self: &Arc<Self>,
        set: SetId,
        at: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            source_set::set_listed(tx.sql, set, at.into(), None)?;
            Ok(source_set::end_finished_baselines(tx.sql, set)?)
        })
        .await
    }

    /// What is recorded of the file at a path; `None`: nothing.
    pub async fn folder_entry(
        self: &Arc<Self>,
        name: &str,
        path: &str,
    ) -> Result<Option<FolderEntry>, StoreError> {
        let (name, path) = (name.to_owned(), path.to_owned());
        self.read_in(Lane::Documents, move |sql| {
            Ok(resource::folder_entry(sql, &name, &path)?)
        })
        .await
    }

    /// What is recorded of the file at a path, and of those in the folder of that name.
    pub async fn folder_entries_at(
        self: &Arc<Self>,
        name: &str,
        path: &str,
    ) -> Result<Vec<FolderEntry>, StoreError> {
        let (name, path) = (name.to_owned(), path.to_owned());
        self.read_in(Lane::Documents, move |sql| {
            Ok(resource::folder_entries_at(sql, &name, &path)?)
        })
        .await
    }

    /// The next recorded files of a set after a row.
    pub async fn folder_entries(
        self: &Arc<Self>,
        set: SetId,
        after: ResourceId,
    ) -> Result<Vec<FolderEntry>, StoreError> {
        self.read_in(Lane::Documents, move |sql| {
            Ok(resource::folder_entries(sql, set, after, FILES)?)
        })
        .await
    }

    /// Records files as they are now.
    pub async fn put_folder_files(
        self: &Arc<Self>,
        name: &str,
        set: SetId,
        now: DateTime<Utc>,
        files: Vec<FolderFile>,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |tx| {
            let mut totals = TotalsChange::default();
            for file in &files {
                put(tx, &mut totals, &name, set, now, file)?;
            }
            totals.write(tx.sql)
        })
        .await
    }

    /// Records that files are gone.
    pub async fn delete_folder_files(
        self: &Arc<Self>,
        set: SetId,
        now: DateTime<Utc>,
        gone: Vec<FolderEntry>,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            let mut totals = TotalsChange::default();
            for entry in &gone {
                if let Some(length) = resource::live_length(tx.sql, entry.id)? {
                    totals.count_removal(tx.sql, entry.id, length)?;
                    resource::set_file_gone(tx.sql, entry.id, now)?;
                    let (id, change) = (entry.id, ChangeKind::Deleted.as_str());
                    append(tx, set, now, (id, change), &entry.uri, &entry.path, None)?;
                }
            }
            totals.write(tx.sql)
        })
        .await
    }
}

fn put(
    tx: &mut Tx<'_>,
    totals: &mut TotalsChange,
    name: &str,
    set: SetId,
    now: DateTime<Utc>,
    file: &FolderFile,
) -> Result<(), StoreError> {
    let sql = tx.sql;
    let known = resource::folder_entry(sql, name, &file.path)?;
    let id = match &known {
        Some(known) => known.id,
        None => resource::insert(sql, name, &file.uri, set, &file.path)?,
    };
    membership::set(sql, set, id, Membership::Listed)?;
    let before = resource::live_length(sql, id)?;
    let hashes = std::slice::from_ref(&file.digest);
    let is_same = before.is_some() && known.is_some_and(|known| known.hashes == *hashes);
    let adopted = AdoptedFile {
        set,
        path: &file.path,
        length: file.length,
        media_type: file.media_type.as_deref(),
        hashes,
        lastmod: Some(file.modified),
        changed_at: Some(file.modified),
        fetched: Revision::default(),
    };
    resource::adopt(sql, id, &file.uri, &adopted, now)?;
    resource::set_inode(sql, id, file.inode)?;
    totals.count_file(sql, id, before, file.length)?;
    if !is_same {
        let change = match before {
            None => ChangeKind::Created.as_str(),
            Some(_) => ChangeKind::Updated.as_str(),
        };
        let length = Some(file.length);
        append(tx, set, now, (id, change), &file.uri, &file.path, length)?;
    }
    Ok(())
}

fn append(
    tx: &mut Tx<'_>,
    set: SetId,
    now: DateTime<Utc>,
    (resource, change): (ResourceId, &str),
    uri: &ResourceUri,
    path: &str,
    length: Option<u64>,
) -> Result<(), StoreError> {
    let entry = NewEntry {
        applied_at: now,
        set,
        resource,
        uri,
        change,
        path,
        length,
        changed_at: None,
        origin: Origin::Folder,
        links: &[],
        is_patched: false,
    };
    let seq = feed::append(tx.sql, &entry)?;
    tx.wake(Wake::Feed(seq));
    Ok(())
}
