//! Marks the parts of a Resource List: the lists that its index names, or the one list that it is. A part that is the same as
//! when it was last read is skipped: it names what it named then.

use std::sync::Arc;

use url::Url;

use crate::store::ids::SetId;
use crate::store::named::NamedSoFar;
use crate::store::tables::document;
use crate::store::tables::part::{self, UnchangedPart};
use crate::store::{Store, StoreError};

impl Store {
    /// Begins to read a Resource List with its parts: until its end it must be read again, even if unchanged. Parts that were
    /// read with another filter than `trusted` become incomplete; `None`: all do.
    pub async fn begin_parts(
        self: &Arc<Self>,
        set: SetId,
        uri: &Url,
        trusted: Option<&str>,
    ) -> Result<(), StoreError> {
        let (uri, trusted) = (uri.to_string(), trusted.map(str::to_owned));
        self.write(move |tx| {
            document::delete(tx.sql, set, &uri)?;
            Ok(part::invalidate(tx.sql, set, trusted.as_deref())?)
        })
        .await
    }

    /// Marks parts as unchanged in this reading: what they named is named again.
    pub async fn mark_parts_unchanged(
        self: &Arc<Self>,
        parts: Vec<UnchangedPart>,
        named: &NamedSoFar,
    ) -> Result<(), StoreError> {
        let named = named.clone();
        self.write(move |tx| {
            for part in &parts {
                named.add(&part::mark_unchanged(tx.sql, part)?);
            }
            Ok(())
        })
        .await
    }

    /// Notes that a part had news although its index has stated the same time of it as before.
    pub async fn note_misdated(self: &Arc<Self>, set: SetId, uri: &Url) -> Result<(), StoreError> {
        let uri = uri.clone();
        self.write(move |tx| Ok(part::set_misdated(tx.sql, set, &uri)?))
            .await
    }

    /// Deletes the parts that the Resource List, now read completely, does not name any more.
    pub async fn delete_unnamed_parts(self: &Arc<Self>, set: SetId) -> Result<(), StoreError> {
        self.write(move |tx| {
            document::delete_of_unnamed_parts(tx.sql, set)?;
            Ok(part::delete_unnamed(tx.sql, set)?)
        })
        .await
    }
}
