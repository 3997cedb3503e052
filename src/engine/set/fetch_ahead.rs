//! Fetches ahead what an index names: while one list is read, the next ones are downloaded.
//!
//! Only the download is early. Whether a document is read, and what its bytes or its error mean, is decided when its turn comes, in
//! the order of the index. What was fetched counts only if the request that would be made then is the one that was made, and it
//! proves nothing of the time after that request.
//!
//! Invariants: no more than [`AHEAD`] documents are being fetched, or have been fetched and wait for their turn. To drop one ends
//! its request. Its bytes are in memory or in an unnamed file, of which nothing is left.
//!
//! Must not know what comes next, nor what a document is.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resyncd_core::{ErrorClass, Validators};
use resyncd_fetch::FetchedDocument;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::{Child, DocumentWalk, fetch_document, fetch_if_changed};
use crate::store::SetId;

/// How many documents are fetched ahead. Each may take as much disk as one document may.
const AHEAD: usize = 2;

/// The documents of one index that are fetched ahead.
pub(super) struct FetchAhead {
    context: Arc<SourceContext>,
    set: SetId,
    begun: Vec<EarlyDocument>,
}

/// A document that was requested before its turn.
pub(super) struct EarlyDocument {
    uri: Url,
    asked_at: DateTime<Utc>,
    fetching: AbortOnDropHandle<Option<EarlyAnswer>>,
}

/// What an early request has returned.
enum EarlyAnswer {
    Anew(Result<Box<FetchedDocument>, EngineError>),
    /// It was conditional on that version.
    IfChanged(
        Validators,
        Result<Option<Box<FetchedDocument>>, EngineError>,
    ),
}

impl FetchAhead {
    pub(super) fn of(context: &Arc<SourceContext>, set: SetId) -> Self {
        Self {
            context: Arc::clone(context),
            set,
            begun: Vec::new(),
        }
    }

    /// What comes next in a walk and was not requested yet; what does not come next any more is dropped. `current`: the one in hand, of
    /// which nothing new is known yet.
    ///
    /// To be called once that has turned out to be a list: where it is an index, what it names comes first, and those after it are likely
    /// to be indexes, too.
    pub(super) fn not_begun(&mut self, current: &Url, walk: &mut DocumentWalk) -> Vec<Child> {
        let mut upcoming = walk.upcoming(AHEAD);
        self.begun
            .retain(|early| upcoming.iter().any(|next| next.uri == early.uri));
        upcoming.retain(|next| next.uri != *current && !self.has_begun(&next.uri));
        upcoming
    }

    /// Whether a document is being fetched, or has been fetched.
    fn has_begun(&self, uri: &Url) -> bool {
        self.begun.iter().any(|early| early.uri == *uri)
    }

    /// Begins to fetch a document; conditionally unless `unconditional`. Does nothing if there is no room, or if the host is slowed down: an
    /// early request that it refuses is repeated when the turn of the document comes.
    pub(super) async fn begin(&mut self, uri: Url, unconditional: bool) {
        let has_room = self.begun.len() < AHEAD && !self.has_begun(&uri);
        if !has_room || self.context.client.is_slowed_down(&uri) {
            return;
        }
        let asked_at = clock::now().wall;
        let fetching = fetch(
            Arc::clone(&self.context),
            self.set,
            uri.clone(),
            unconditional,
        );
        let fetching = AbortOnDropHandle::new(tokio::spawn(fetching));
        self.begun.push(EarlyDocument {
            uri,
            asked_at,
            fetching,
        });
        // It is requested before the list in hand is read further.
        tokio::task::yield_now().await;
    }

    /// The document whose turn it is, if it was requested. To drop it ends the request.
    pub(super) fn take(&mut self, uri: &Url) -> Option<EarlyDocument> {
        let found = self.begun.iter().position(|early| early.uri == *uri)?;
        Some(self.begun.remove(found))
    }
}

impl EarlyDocument {
    /// A moment on our clock that is not after the request.
    pub(super) fn asked_at(&self) -> DateTime<Utc> {
        self.asked_at
    }

    /// What [`fetch_document`] returns; `None` if another request was made, or none, or if it must be made again.
    pub(super) async fn anew(self) -> Option<Result<Box<FetchedDocument>, EngineError>> {
        match self.answer().await? {
            EarlyAnswer::Anew(fetched) => counting(fetched),
            EarlyAnswer::IfChanged(..) => None,
        }
    }

    /// What [`fetch_if_changed`] returns; `None` if another request was made, or none, or if it must be made again.
    pub(super) async fn if_changed(
        self,
        known: &Validators,
    ) -> Option<Result<Option<Box<FetchedDocument>>, EngineError>> {
        match self.answer().await? {
            EarlyAnswer::IfChanged(asked, fetched) if asked == *known => counting(fetched),
            _ => None,
        }
    }

    async fn answer(self) -> Option<EarlyAnswer> {
        // A panic occurs again when the document is fetched in its turn, and is reported there.
        self.fetching.await.ok().flatten()
    }
}

/// What was fetched, if it counts. The server may be back by now, or there is room: for another request to that host, for a file, on the
/// disk.
fn counting<T>(fetched: Result<T, EngineError>) -> Option<Result<T, EngineError>> {
    let may_be_over = matches!(&fetched, Err(error) if error.class() == ErrorClass::Retry);
    (!may_be_over).then_some(fetched)
}

/// Fetches a document, unless it is still the version that was read last. `None` if the database fails: then it fails also when
/// the turn of the document comes.
async fn fetch(
    context: Arc<SourceContext>,
    set: SetId,
    uri: Url,
    unconditional: bool,
) -> Option<EarlyAnswer> {
    let known = if unconditional {
        None
    } else {
        context.store.document(set, &uri).await.ok()?
    };
    let (client, limit) = (&context.client, context.limits.document);
    Some(match known.map(|read| read.validators) {
        None => EarlyAnswer::Anew(fetch_document(client, &uri, limit).await),
        Some(known) => {
            let fetched = fetch_if_changed(client, &uri, &known, limit).await;
            EarlyAnswer::IfChanged(known, fetched)
        }
    })
}

#[cfg(test)]
mod tests;
