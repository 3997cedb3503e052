//! Sets of resources: what their Capability Lists offer, how far they are known, how they stand.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use url::Url;

use super::writer::Tx;
use super::{SetId, Store, StoreError, row};
use crate::protocol::{Capability, HubUri, Interval, SourceTime};
use crate::sync::{Coverage, Gap, GapReason};

/// How far the baseline of a set has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineState {
    /// Not read yet.
    Missing,
    /// Read, and its resources are being fetched.
    Listed,
    /// Done.
    Done,
}

impl BaselineState {
    pub(super) fn from_code(code: &str) -> Self {
        match code {
            "done" => Self::Done,
            "listed" => Self::Listed,
            _ => Self::Missing,
        }
    }
}

/// Something that a Capability List offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is.
    pub capability: Capability,
    /// The document, or the topic of the channel.
    pub uri: Url,
    /// The hubs of a channel.
    pub hubs: Vec<HubUri>,
}

/// A set that is followed.
#[derive(Clone, Debug)]
pub struct SetRecord {
    /// Its row.
    pub id: SetId,
    /// The label of its Source.
    pub source: String,
    /// The URI of its Capability List.
    pub capability_list: Url,
    /// What the Capability List offered last.
    pub offers: Vec<Offer>,
    /// How far the baseline has come.
    pub baseline: BaselineState,
    /// The time of the newest Resource List that was read whole.
    pub list_at: Option<SourceTime>,
    /// Up to where the Source's documents have been read.
    pub read_until: Option<SourceTime>,
    /// The open Change List that was read last.
    pub open_list: Option<Url>,
}

impl SetRecord {
    /// Whether the set has no Capability List: what stands for it is its only list.
    #[must_use]
    pub fn is_implied(&self) -> bool {
        matches!(&self.offers[..], [only]
            if only.capability == Capability::ResourceList && only.uri == self.capability_list)
    }
}

/// What is remembered of a document, so as not to read it again while it stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRecord {
    /// Where it was fetched.
    pub uri: String,
    /// Its `ETag`.
    pub etag: Option<String>,
    /// Its `Last-Modified`.
    pub last_modified: Option<String>,
    /// The SHA-256 of its bytes.
    pub digest: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct OfferRow {
    capability: String,
    uri: String,
    hubs: Vec<String>,
}

impl Store {
    /// The set of that Capability List; a new one if it was never followed, the old one if it was.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn begin_set(
        self: &Arc<Self>,
        source: &str,
        capability_list: &Url,
    ) -> Result<SetRecord, StoreError> {
        let (source, uri) = (source.to_owned(), capability_list.to_string());
        self.write(move |tx| {
            tx.sql
                .prepare_cached(
                    "INSERT INTO source_set (source, capability_list) VALUES (?1, ?2)
                 ON CONFLICT (source, capability_list) DO UPDATE SET ended = 0",
                )?
                .execute(params![source, uri])?;
            let mut found = sets_where(
                tx.sql,
                "source = ?1 AND capability_list = ?2",
                &[&source, &uri],
            )?;
            found.pop().ok_or(StoreError::BadRow("a set"))
        })
        .await
    }

    /// The sets of a Source that are followed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sets(self: &Arc<Self>, source: &str) -> Result<Vec<SetRecord>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| sets_where(sql, "source = ?1 AND ended = 0 ORDER BY id", &[&source]))
            .await
    }

    /// Notes that a set is no longer followed; what is known of it stays.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn end_set(self: &Arc<Self>, set: SetId) -> Result<(), StoreError> {
        self.write(move |tx| {
            tx.sql
                .execute("UPDATE source_set SET ended = 1 WHERE id = ?1", [set.0])?;
            Ok(())
        })
        .await
    }

    /// Keeps what a Capability List offers, and with it, if it is to be remembered, the document that says so.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn save_offers(
        self: &Arc<Self>,
        set: SetId,
        offers: &[Offer],
        document: Option<DocumentRecord>,
    ) -> Result<(), StoreError> {
        let rows: Vec<OfferRow> = offers.iter().map(OfferRow::from).collect();
        let json = serde_json::to_string(&rows).map_err(|_| StoreError::BadRow("an offer"))?;
        self.write(move |tx| {
            tx.sql.execute(
                "UPDATE source_set SET offers = ?2 WHERE id = ?1",
                params![set.0, json],
            )?;
            match &document {
                Some(document) => save_document(tx, set, document),
                None => Ok(()),
            }
        })
        .await
    }

    /// Keeps which open Change List was read last; `None`: it was closed, or an index. The one that it has replaced need not
    /// be remembered: where a list has another URI at each publication, those of old would pile up.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn save_open_list(
        self: &Arc<Self>,
        set: SetId,
        open_list: Option<&Url>,
    ) -> Result<(), StoreError> {
        let uri = open_list.map(Url::to_string);
        self.write(move |tx| {
            tx.sql.execute(
                "DELETE FROM document
                 WHERE set_id = ?1 AND uri <> ?2 AND uri = (SELECT open_list FROM source_set WHERE id = ?1)",
                params![set.0, uri],
            )?;
            tx.sql.execute(
                "UPDATE source_set SET open_list = ?2 WHERE id = ?1",
                params![set.0, uri],
            )?;
            Ok(())
        })
        .await
    }

    /// Remembers a document, or what a server tells now of one that is remembered.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remember_document(
        self: &Arc<Self>,
        set: SetId,
        document: DocumentRecord,
    ) -> Result<(), StoreError> {
        self.write(move |tx| save_document(tx, set, &document))
            .await
    }

    /// What was known of the set's time when it was last committed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn progress(
        self: &Arc<Self>,
        set: SetId,
    ) -> Result<(Coverage, Vec<Gap>), StoreError> {
        self.read(move |sql| Ok((coverage(sql, set)?, gaps(sql, set)?)))
            .await
    }

    /// What is remembered of a document.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn document(
        self: &Arc<Self>,
        set: SetId,
        uri: &Url,
    ) -> Result<Option<DocumentRecord>, StoreError> {
        let uri = uri.to_string();
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT etag, last_modified, digest FROM document WHERE set_id = ?1 AND uri = ?2",
            )?;
            let found = query
                .query_row(params![set.0, uri], |row| {
                    Ok(DocumentRecord {
                        uri: uri.clone(),
                        etag: row.get(0)?,
                        last_modified: row.get(1)?,
                        digest: row.get(2)?,
                    })
                })
                .optional()?;
            Ok(found)
        })
        .await
    }
}

impl From<&Offer> for OfferRow {
    fn from(offer: &Offer) -> Self {
        Self {
            capability: offer.capability.as_str().to_owned(),
            uri: offer.uri.to_string(),
            hubs: offer.hubs.iter().map(ToString::to_string).collect(),
        }
    }
}

fn sets_where(
    sql: &Connection,
    condition: &str,
    values: &[&String],
) -> Result<Vec<SetRecord>, StoreError> {
    let mut query = sql.prepare(&format!(
        "SELECT id, source, capability_list, offers, baseline, list_at, read_until, open_list FROM source_set WHERE {condition}"
    ))?;
    let mut rows = query.query(rusqlite::params_from_iter(values))?;
    let mut sets = Vec::new();
    while let Some(found) = rows.next()? {
        let offers: Vec<OfferRow> = serde_json::from_str(&found.get::<_, String>(3)?)
            .map_err(|_| StoreError::BadRow("an offer"))?;
        sets.push(SetRecord {
            id: SetId(found.get(0)?),
            source: found.get(1)?,
            capability_list: row::url(&found.get::<_, String>(2)?)?,
            offers: offers.iter().map(offer).collect::<Result<_, _>>()?,
            baseline: BaselineState::from_code(&found.get::<_, String>(4)?),
            list_at: row::source_time(found.get(5)?),
            read_until: row::source_time(found.get(6)?),
            open_list: found
                .get::<_, Option<String>>(7)?
                .map(|uri| row::url(&uri))
                .transpose()?,
        });
    }
    Ok(sets)
}

fn offer(row: &OfferRow) -> Result<Offer, StoreError> {
    let bad = |_| StoreError::BadRow("an offer");
    Ok(Offer {
        capability: row::capability(&row.capability)?,
        uri: row::url(&row.uri)?,
        hubs: row
            .hubs
            .iter()
            .map(|hub| HubUri::parse(hub).map_err(bad))
            .collect::<Result<_, _>>()?,
    })
}

/// Up to where nothing is missing of a set's time.
pub(super) fn unbroken_until(
    sql: &Connection,
    set: SetId,
) -> Result<Option<SourceTime>, StoreError> {
    let mut query = sql.prepare_cached(
        "SELECT until_time FROM coverage WHERE set_id = ?1 ORDER BY from_time LIMIT 1",
    )?;
    let found: Option<i64> = query.query_row([set.0], |row| row.get(0)).optional()?;
    Ok(found.map(SourceTime::from_micros))
}

pub(super) fn coverage(sql: &Connection, set: SetId) -> Result<Coverage, StoreError> {
    let mut query =
        sql.prepare_cached("SELECT from_time, until_time FROM coverage WHERE set_id = ?1")?;
    let rows = query.query_map([set.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.map(|row| interval(row?)).collect()
}

fn interval((from, until): (i64, i64)) -> Result<Interval, StoreError> {
    let ends = (
        SourceTime::from_micros(from),
        SourceTime::from_micros(until),
    );
    Interval::new(ends.0, ends.1).ok_or(StoreError::BadRow("an interval"))
}

pub(super) fn gaps(sql: &Connection, set: SetId) -> Result<Vec<Gap>, StoreError> {
    let mut query = sql.prepare_cached(
        "SELECT from_time, until_time, reason, since FROM gap WHERE set_id = ?1 ORDER BY from_time",
    )?;
    let mut rows = query.query([set.0])?;
    let mut gaps = Vec::new();
    while let Some(found) = rows.next()? {
        gaps.push(Gap {
            interval: interval((found.get(0)?, found.get(1)?))?,
            reason: GapReason::from_code(&found.get::<_, String>(2)?)
                .ok_or(StoreError::BadRow("a gap's reason"))?,
            since: row::datetime(found.get(3)?),
        });
    }
    Ok(gaps)
}

/// Replaces what is known of a set's time.
pub(super) fn save_progress(
    tx: &mut Tx<'_>,
    set: SetId,
    coverage: &Coverage,
    gaps: &[Gap],
) -> Result<(), StoreError> {
    tx.sql
        .prepare_cached("DELETE FROM coverage WHERE set_id = ?1")?
        .execute([set.0])?;
    let mut insert = tx.sql.prepare_cached(
        "INSERT INTO coverage (set_id, from_time, until_time) VALUES (?1, ?2, ?3)",
    )?;
    for known in coverage.intervals() {
        insert.execute(params![
            set.0,
            known.from().micros(),
            known.until().micros()
        ])?;
    }
    tx.sql
        .prepare_cached("DELETE FROM gap WHERE set_id = ?1")?
        .execute([set.0])?;
    let mut insert = tx.sql.prepare_cached(
        "INSERT INTO gap (set_id, from_time, until_time, reason, since) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for gap in gaps {
        let (from, until) = (gap.interval.from().micros(), gap.interval.until().micros());
        insert.execute(params![
            set.0,
            from,
            until,
            gap.reason.code(),
            row::micros(gap.since)
        ])?;
    }
    Ok(())
}

pub(super) fn save_document(
    tx: &mut Tx<'_>,
    set: SetId,
    document: &DocumentRecord,
) -> Result<(), StoreError> {
    tx.sql
        .prepare_cached(
            "INSERT INTO document (set_id, uri, etag, last_modified, digest) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (set_id, uri) DO UPDATE SET etag = ?3, last_modified = ?4, digest = ?5",
        )?
        .execute(params![set.0, document.uri, document.etag, document.last_modified, document.digest])?;
    Ok(())
}
