//! Which URIs the Source's own documents name.

use std::collections::HashMap;

use resyncd_core::ResourceUri;

use crate::store::ids::SetId;
use crate::store::tables::membership;
use crate::store::{Store, StoreError};

/// What the Source's own documents name of a URI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedBySource {
    /// A document of the Source names it.
    pub resource: bool,
    /// A list or a change of the set names a resource at its origin.
    pub origin: bool,
}

impl Store {
    /// What the documents of a Source name of each of these URIs. What only senders have named that may not speak for the Source does not
    /// count. For a caller on a blocking thread.
    pub fn named_by_source(
        &self,
        set: SetId,
        source: &str,
        uris: impl IntoIterator<Item = ResourceUri>,
    ) -> Result<HashMap<ResourceUri, NamedBySource>, StoreError> {
        self.read_blocking(|sql| {
            let mut origins: HashMap<String, bool> = HashMap::new();
            let mut named = HashMap::new();
            for uri in uris {
                let origin = uri.url().origin().ascii_serialization();
                let has_any = match origins.get(&origin) {
                    Some(&known) => known,
                    None => membership::is_origin_of_any(sql, source, set, &origin)?,
                };
                origins.insert(origin, has_any);
                let found = NamedBySource {
                    resource: membership::is_named_by_source(sql, source, &uri)?,
                    origin: has_any,
                };
                named.insert(uri, found);
            }
            Ok(named)
        })
    }
}
