//! Where a Source is, and where its files are, compared with where they were when it was followed last.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use resyncd_mirror::MirrorId;

use crate::config;
use crate::engine::context::SourceContext;
use crate::store::{Store, StoreError};

/// The folder that the files of a Source were in when it was followed last, if its mirror is another folder now.
async fn former_mirror(
    store: &Arc<Store>,
    source: &config::Source,
) -> Result<Option<PathBuf>, StoreError> {
    let location = store.location_of(&source.name).await?;
    let Some(former) = location.and_then(|location| location.mirror) else {
        return Ok(None);
    };
    let is_same = is_same_folder(&former, &source.mirror).await;
    Ok((!is_same).then_some(former))
}

/// Whether the mirror of a Source is another folder than when it was followed last: then it is not expected to be the mirror that the
/// database knows.
pub async fn has_another_mirror(
    store: &Arc<Store>,
    source: &config::Source,
) -> Result<bool, StoreError> {
    Ok(former_mirror(store, source).await?.is_some())
}

/// Records the URL and the mirror of a Source before it is followed, and with another mirror its id.
///
/// What the database has of the files of another mirror does not hold for this one: it is dropped, and the sets begin with their
/// baselines again, which adopt complete files that were moved. Sets that another URL does not lead to are not followed any more, as sets
/// that are no longer advertised. Returns early once the Source is stopped.
pub(crate) async fn record_source_location(
    context: &SourceContext,
    id: &MirrorId,
) -> Result<(), StoreError> {
    let (store, source) = (&context.store, &context.source);
    let name = source.name.as_str();
    let (url, mirror): (_, &Path) = (source.url.as_str(), &source.mirror);
    if let Some(before) = store.location_of(name).await? {
        if let Some(former) = former_mirror(store, source).await? {
            tracing::warn!(code = "mirror-changed", source = name, former = %former.display(), mirror = %mirror.display(),
                "mirror changed: its files are compared with the Source's, and fetched where they are missing; the former mirror is left \
                 as it is");
            store.begin_anew(name).await?;
            while store.forget_next(name).await? > 0 {
                if context.stop.is_cancelled() {
                    return Ok(());
                }
            }
            store.end_forgetting_resources(name).await?;
        }
        if before.url != url {
            tracing::warn!(
                code = "url-changed",
                source = name,
                former = before.url,
                url,
                "URL of the Source changed: sets that it does not lead to are no longer followed, and their files stay; `resyncd forget {name} --former-sets` deletes them"
            );
        }
        if before.url == url && before.mirror.as_deref() == Some(mirror) {
            return Ok(());
        }
    }
    let mirror = mirror.to_owned();
    store.note_location(name, url, mirror, id.as_str()).await
}

/// Whether two paths lead to the same folder, also through symlinks.
async fn is_same_folder(one: &Path, other: &Path) -> bool {
    if one == other {
        return true;
    }
    let (one, other): (PathBuf, PathBuf) = (one.to_owned(), other.to_owned());
    let comparing = tokio::task::spawn_blocking(move || {
        let resolved = one.canonicalize().ok().zip(other.canonicalize().ok());
        resolved.is_some_and(|(one, other)| one == other)
    });
    comparing.await.unwrap_or_default()
}
