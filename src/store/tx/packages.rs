//! Stores which packages of dumps were read, and which package files are needed.

use std::sync::Arc;

use crate::store::ids::SetId;
use crate::store::named::NamedSoFar;
use crate::store::tables::dump_package::{self, PackageRecord};
use crate::store::tables::package_file;
use crate::store::{Store, StoreError};

impl Store {
    /// Stores that a package of the current Resource Dump was read completely, and what it names.
    pub async fn end_package(
        self: &Arc<Self>,
        set: SetId,
        package: PackageRecord,
        named: &NamedSoFar,
    ) -> Result<(), StoreError> {
        let named = named.get();
        self.write(move |tx| Ok(dump_package::save(tx.sql, set, &package, &named)?))
            .await
    }

    /// Marks the package file of that name as needed by a set.
    pub async fn mark_package_file_needed(
        self: &Arc<Self>,
        set: SetId,
        name: String,
    ) -> Result<(), StoreError> {
        self.write(move |tx| Ok(package_file::insert(tx.sql, set, &name)?))
            .await
    }

    /// Marks the package files of a set as no longer needed, and returns whether it had any. A set that has none does not wait
    /// for the writer.
    pub async fn unmark_needed_package_files(
        self: &Arc<Self>,
        set: SetId,
    ) -> Result<bool, StoreError> {
        let has_any = self.read(move |sql| Ok(package_file::has_any(sql, set)?));
        if !has_any.await? {
            return Ok(false);
        }
        self.write(move |tx| {
            package_file::delete_all(tx.sql, set)?;
            Ok(true)
        })
        .await
    }
}
