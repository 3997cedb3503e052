//! Which resources a part of a list names: a compressed bitmap of their ids, of which a list that is in order takes a few bytes.

use std::sync::Arc;

use parking_lot::Mutex;
use roaring::RoaringTreemap;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use super::ids::ResourceId;

/// The resources that a document names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named(RoaringTreemap);

impl Named {
    pub(crate) fn insert(&mut self, resource: ResourceId) {
        self.0.insert(number(resource));
    }

    pub(crate) fn contains(&self, resource: ResourceId) -> bool {
        self.0.contains(number(resource))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }

    pub(crate) fn has_all_of(&self, other: &Self) -> bool {
        other.0.is_subset(&self.0)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0 |= &other.0;
    }
}

fn number(resource: ResourceId) -> u64 {
    u64::try_from(resource.0).unwrap_or_default()
}

/// Nothing is an empty blob.
impl ToSql for Named {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let mut blob = Vec::new();
        if !self.is_empty() {
            let mut compressed = self.0.clone();
            compressed.optimize();
            compressed
                .serialize_into(&mut blob)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        }
        Ok(blob.into())
    }
}

impl FromSql for Named {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let blob = value.as_blob()?;
        if blob.is_empty() {
            return Ok(Self::default());
        }
        RoaringTreemap::deserialize_from(blob)
            .map(Self)
            .map_err(FromSqlError::other)
    }
}

/// What was named so far of a part of a list, or of all of it, in the transactions that read it.
#[derive(Clone, Debug, Default)]
pub struct NamedSoFar(Arc<Mutex<Named>>);

impl NamedSoFar {
    pub(crate) fn insert(&self, resource: ResourceId) {
        self.0.lock().insert(resource);
    }

    pub(crate) fn contains(&self, resource: ResourceId) -> bool {
        self.0.lock().contains(resource)
    }

    pub(crate) fn add(&self, other: &Named) {
        self.0.lock().add(other);
    }

    pub(crate) fn get(&self) -> Named {
        self.0.lock().clone()
    }
}
