//! Remembers what people were told, as the text that it is given.

use std::sync::Arc;

use crate::store::tables::told;
use crate::store::{Store, StoreError};

impl Store {
    /// What was told by the `[[notify]]` of that name; `None`: nothing.
    pub async fn told(self: &Arc<Self>, name: &str) -> Result<Option<String>, StoreError> {
        let name = name.to_owned();
        self.read(move |sql| Ok(told::get(sql, &name)?)).await
    }

    /// Stores what was told by the `[[notify]]` of that name.
    pub async fn put_told(self: &Arc<Self>, name: &str, told: &str) -> Result<(), StoreError> {
        let (name, told) = (name.to_owned(), told.to_owned());
        self.write(move |tx| Ok(told::put(tx.sql, &name, &told)?))
            .await
    }

    /// Forgets what was told by others than these.
    pub async fn retain_told(self: &Arc<Self>, names: Vec<String>) -> Result<(), StoreError> {
        self.write(move |tx| {
            for gone in told::names(tx.sql)? {
                if !names.contains(&gone) {
                    told::delete(tx.sql, &gone)?;
                }
            }
            Ok(())
        })
        .await
    }
}
