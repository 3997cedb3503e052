//! Which mirror belongs to what the database knows of a Source.

use std::sync::Arc;

use crate::store::tables::{followed_source, mirror};
use crate::store::{Store, StoreError};

impl Store {
    /// The id of the mirror that a Source has used last; `None`: none was used yet.
    pub async fn mirror_id(self: &Arc<Self>, source: &str) -> Result<Option<String>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| Ok(mirror::id(sql, &source)?)).await
    }

    /// Records that a Source uses the mirror with this id.
    pub async fn note_mirror(self: &Arc<Self>, source: &str, id: &str) -> Result<(), StoreError> {
        let (source, id) = (source.to_owned(), id.to_owned());
        self.write(move |tx| Ok(mirror::set_id(tx.sql, &source, &id)?))
            .await
    }

    /// Forgets the mirror of a Source, and where it is: any may be used with what the database knows of the Source.
    pub async fn release_mirror(self: &Arc<Self>, source: &str) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            followed_source::clear_mirror(tx.sql, &source)?;
            Ok(mirror::remove(tx.sql, &source)?)
        })
        .await
    }
}
