//! Remembers how far hooks have come in the feed. What they have not accepted is not removed before: see
//! [`feed_read_until`](Store::feed_read_until).

use std::sync::Arc;

use crate::store::tables::{feed, hook};
use crate::store::tx::share::held_elsewhere;
use crate::store::{Store, StoreError};

/// Where a hook begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookBegin {
    /// The number of the feed after which it goes on.
    pub position: i64,
    /// Whether entries after its stored position were removed.
    pub has_missed: bool,
}

impl Store {
    /// Where a hook goes on. One without a position begins with the oldest entry of the feed, and has a position from then on. `name`: of
    /// the hook among those of its Source.
    pub async fn begin_hook(
        self: &Arc<Self>,
        source: &str,
        name: &str,
    ) -> Result<HookBegin, StoreError> {
        let (source, name) = (source.to_owned(), name.to_owned());
        let unreadable = Arc::clone(&self.unreadable);
        self.write(move |tx| {
            let trimmed = feed::trimmed(tx.sql)?;
            let last = feed::last_number(tx.sql)?;
            match hook::position(tx.sql, &source, &name)? {
                Some(stored) => Ok(HookBegin {
                    // One that is beyond the end is of another database: nothing of this feed follows it.
                    position: stored.max(trimmed.unwrap_or(stored)).min(last),
                    has_missed: trimmed.is_some_and(|trimmed| stored < trimmed),
                }),
                None => {
                    let first = feed::after(tx.sql, i64::MIN, 1, true, &unreadable)?;
                    let position = first.first().map_or(last, |entry| entry.seq - 1);
                    hook::put(tx.sql, &source, &name, position)?;
                    Ok(HookBegin {
                        position,
                        has_missed: false,
                    })
                }
            }
        })
        .await
    }

    /// Stores that a hook has accepted everything up to that number of the feed.
    pub async fn note_hook(
        self: &Arc<Self>,
        source: &str,
        name: &str,
        position: i64,
    ) -> Result<(), StoreError> {
        let (source, name) = (source.to_owned(), name.to_owned());
        self.write(move |tx| Ok(hook::put(tx.sql, &source, &name, position)?))
            .await
    }

    /// Forgets the hooks that are not among these, each with its Source and its name, unless another node holds the Source: nothing is
    /// retained for them.
    pub async fn retain_hooks(
        self: &Arc<Self>,
        configured: Vec<(String, String)>,
    ) -> Result<(), StoreError> {
        let node = self.node.clone();
        let known = self.read(move |sql| {
            let elsewhere = held_elsewhere(sql, node.as_ref())?;
            let mut known = hook::all(sql)?;
            known.retain(|(source, _)| !elsewhere.contains(source));
            Ok(known)
        });
        let gone: Vec<_> = known
            .await?
            .into_iter()
            .filter(|known| !configured.contains(known))
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.write(move |tx| {
            for (source, name) in &gone {
                hook::delete(tx.sql, source, name)?;
            }
            Ok(())
        })
        .await
    }
}
