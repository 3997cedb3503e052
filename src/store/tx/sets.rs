//! Stores which sets are followed, what they offer, and the documents that need not be read again.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::Capability;
use resyncd_core::Offer;
use url::Url;

use super::unfollowed::drop_inbox;
use crate::store::ids::SetId;
use crate::store::tables::document::{self, DocumentRecord};
use crate::store::tables::source_set::{self, SetRecord};
use crate::store::tables::{channel, dump, dump_package, forgotten, task};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

impl Store {
    /// Begins to follow the set of a Capability List. One that was followed before continues where it ended.
    pub async fn begin_set(
        self: &Arc<Self>,
        source: &str,
        capability_list: &Url,
    ) -> Result<SetRecord, StoreError> {
        let (source, uri) = (source.to_owned(), capability_list.clone());
        self.write(move |tx| Ok(source_set::follow(tx.sql, &source, &uri)?))
            .await
    }

    /// Begins a set that another database knows, as one of which nothing was read: with its offers and, where no Change List states what
    /// has happened since, the time of its newest Resource List.
    pub async fn begin_known_set(self: &Arc<Self>, known: SetRecord) -> Result<(), StoreError> {
        self.write(move |tx| {
            let set = source_set::follow(tx.sql, &known.source, &known.capability_list)?.id;
            source_set::set_offers(tx.sql, set, &known.offers)?;
            let mut offers = known.offers.iter();
            match known.list_at {
                Some(at) if offers.all(|it| it.capability != Capability::ChangeList) => {
                    source_set::set_list_at(tx.sql, set, at)?;
                }
                _ => {}
            }
            Ok(())
        })
        .await
    }

    /// Notes the filter, by its fingerprint, with which the documents of a set are read from now on. If another one was in force, all of them
    /// are read again, changed or not, and so are the packages of a Resource Dump that was read in part: they may state what was not
    /// wanted then. [`SetRecord::filter`] remains another one until a Resource List is read with this one, unless none was read yet.
    pub async fn read_with_filter(
        self: &Arc<Self>,
        set: SetId,
        filter: &str,
    ) -> Result<SetRecord, StoreError> {
        let filter = filter.to_owned();
        self.write(move |tx| {
            let sql = tx.sql;
            let before = source_set::record(sql, set)?.read_filter;
            if before.as_ref().is_some_and(|before| *before != filter) {
                document::delete_all(sql, set)?;
                dump_package::delete_all(sql, set)?;
                dump::delete(sql, set)?;
                source_set::read_again(sql, set)?;
            }
            if before.as_ref() != Some(&filter) {
                source_set::set_filter(sql, set, &filter)?;
            }
            Ok(source_set::record(sql, set)?)
        })
        .await
    }

    /// Notes that a set was read completely: its list, and then the changes since. Deletions that wait for it are due. `false`: it
    /// has no baseline, and nothing was changed.
    pub async fn note_read(
        self: &Arc<Self>,
        source: &str,
        set: SetId,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let is_read = source_set::set_read(tx.sql, set)?;
            if is_read {
                release_awaiting(tx, source, now)?;
            }
            Ok(is_read)
        })
        .await
    }

    /// Marks a set as no longer followed. What stays of it are the resources that have files, or changes that may still be executed, and
    /// channels that are to end: if it is followed again, it begins with its baseline. Deletions that wait for it are due. What becomes of
    /// resources that another set has follows from what that one states; that is decided some at a time, so that no transaction is long.
    pub async fn end_set(
        self: &Arc<Self>,
        source: &str,
        set: SetId,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            for channel in channel::of_set(tx.sql, set)? {
                drop_inbox(tx.sql, channel.id)?;
            }
            forgotten::begin_set_anew(tx.sql, set)?;
            source_set::end(tx.sql, set)?;
            release_awaiting(tx, source, now)
        })
        .await?;
        self.gap_history.end(set);
        self.settle_shared(set, now).await?;
        self.leave_unfetched(set, now).await
    }

    /// The Capability Lists of the sets of a Source that count towards the limit of sets: those that are followed, and the former ones that
    /// have files, pending changes or channels.
    pub async fn counted_sets(self: &Arc<Self>, source: &str) -> Result<HashSet<Url>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| Ok(source_set::counted(sql, &source)?))
            .await
    }

    /// Stores what a Capability List offers and, if it is to be recognized as unchanged, its validators.
    pub async fn save_offers(
        self: &Arc<Self>,
        set: SetId,
        offers: &[Offer],
        document: Option<DocumentRecord>,
    ) -> Result<(), StoreError> {
        let offers = offers.to_vec();
        self.write(move |tx| {
            source_set::set_offers(tx.sql, set, &offers)?;
            if let Some(document) = &document {
                document::save(tx.sql, set, document)?;
            }
            Ok(())
        })
        .await
    }

    /// Stores which documents describe a set.
    pub async fn save_described_by(
        self: &Arc<Self>,
        set: SetId,
        documents: Vec<Url>,
    ) -> Result<(), StoreError> {
        self.write(move |tx| Ok(source_set::set_described_by(tx.sql, set, &documents)?))
            .await
    }

    /// Stores which open Change List was read last; `None`: it was closed, or an index. The validators of the one that it has
    /// replaced are deleted: where each publication has another URI, they would accumulate.
    pub async fn save_open_list(
        self: &Arc<Self>,
        set: SetId,
        open_list: Option<&Url>,
    ) -> Result<(), StoreError> {
        let open_list = open_list.cloned();
        self.write(move |tx| {
            let before = source_set::open_list(tx.sql, set)?;
            if let (Some(before), Some(now)) = (&before, &open_list)
                && before != now
            {
                document::delete(tx.sql, set, before.as_str())?;
            }
            Ok(source_set::set_open_list(tx.sql, set, open_list.as_ref())?)
        })
        .await
    }

    /// Stores the validators of a document.
    pub async fn remember_document(
        self: &Arc<Self>,
        set: SetId,
        document: DocumentRecord,
    ) -> Result<(), StoreError> {
        self.write(move |tx| Ok(document::save(tx.sql, set, &document)?))
            .await
    }
}

/// Makes the deletions of a Source due that wait for its sets.
fn release_awaiting(tx: &mut Tx<'_>, source: String, now: DateTime<Utc>) -> Result<(), StoreError> {
    task::release_awaiting(tx.sql, &source, now)?;
    tx.wake(Wake::Tasks(source));
    Ok(())
}
