//! Looks for resources by a part of their URIs, for people.

use std::sync::Arc;

use crate::store::query_threads::Lane;
use crate::store::tables::resource::{ResourceView, listing};
use crate::store::tables::source_set;
use crate::store::{Store, StoreError};

/// How many rows are read at most to find some among them, of the index only.
const MOST_READ: usize = 100_000;
/// How many resources are found at most.
const MOST_FOUND: usize = 50;

/// What was found among a bounded number of resources.
#[derive(Clone, Debug)]
pub struct FoundResources {
    /// The resources, by Source and by what identifies them.
    pub found: Vec<ResourceView>,
    /// Where to go on: a Source, and what identifies its next resource; `None`: all were looked at.
    pub next: Option<(String, String)>,
}

impl Store {
    /// Looks for resources with a part in what [identifies](resyncd_core::identity) them, from a place on. A part that begins with
    /// `http://` or `https://` is their beginning, and is looked up in the index.
    pub async fn find_resources(
        self: &Arc<Self>,
        part: String,
        (from_source, from): (String, String),
    ) -> Result<FoundResources, StoreError> {
        let unreadable = Arc::clone(&self.unreadable);
        self.read_in(Lane::Reports, move |sql| {
            let (mut rows_left, mut found) = (MOST_READ, Vec::new());
            // At the default port an identity has no scheme. `/` comes before `h`.
            let is_begin = |scheme: &&str| part.starts_with(&format!("{scheme}//"));
            let begins = match ["http:", "https:"].into_iter().find(is_begin) {
                Some(scheme) => vec![&part[scheme.len()..], &part[..]],
                None => vec![""],
            };
            let mut sources = source_set::sources(sql, None)?;
            sources.retain(|source| *source >= from_source);
            for source in sources {
                let from = if source == from_source { &from[..] } else { "" };
                for &begin in &begins {
                    let wanted = if begin.is_empty() { &part[..] } else { begin };
                    let room = (&mut rows_left, &mut found);
                    let place = (&source[..], from);
                    let next = listing::with_part(
                        sql,
                        place,
                        (begin, wanted),
                        room,
                        MOST_FOUND,
                        &unreadable,
                    )?;
                    if let Some(next) = next {
                        let next = Some((source, next));
                        return Ok(FoundResources { found, next });
                    }
                }
            }
            Ok(FoundResources { found, next: None })
        })
        .await
    }
}
