//! Shows the versions of a resource: those that are stored, by their files, and those that are to be.

use std::collections::BTreeMap;

use chrono::SecondsFormat;
use resourcesync::SourceTime;
use resyncd_core::{ResourceUri, parse_version_name};
use resyncd_mirror::{MirrorError, MirrorPlace, MirrorReader, publication_paths};

use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::status::{ResourceVersion, VersionError};

/// A stored version.
struct StoredFile {
    path: String,
    length: u64,
}

/// The versions of a resource of one Source, by time, with its TimeMap first if that is to be read.
pub(crate) async fn versions_of(
    context: &SourceContext,
    uri: &ResourceUri,
) -> Result<Vec<ResourceVersion>, EngineError> {
    let Some(folder) = &context.source.versions else {
        return Ok(Vec::new());
    };
    let known = context
        .store
        .versioned_resource(context.name(), uri)
        .await?;
    let Some((resource, waiting)) = known else {
        return Ok(Vec::new());
    };
    let (place, of_listing) = (folder.clone(), uri.clone());
    let listing = move || stored(&place, &resource.path, &of_listing);
    let listed = tokio::task::spawn_blocking(listing).await;
    let stored = listed.map_err(|error| EngineError::of_join(&error, uri))??;
    let version = |at: Option<SourceTime>, state: &str| ResourceVersion {
        source: context.name().to_owned(),
        uri: uri.to_string(),
        at: at.map(|at| at.to_string()),
        state: state.to_owned(),
        path: None,
        length: None,
        error: None,
        next_try_at: None,
    };
    let mut versions: BTreeMap<Option<SourceTime>, ResourceVersion> = BTreeMap::new();
    for it in waiting {
        let state = if it.failed { "failed" } else { "pending" };
        let error = it
            .error
            .map(|(code, message)| VersionError { code, message });
        let next = it.next_try_at;
        let shown = ResourceVersion {
            error,
            next_try_at: next.map(|next| next.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
            ..version(it.at, state)
        };
        versions.insert(it.at, shown);
    }
    for (at, file) in stored {
        // What was given up of a version that is stored: the Source has served other bytes of its time.
        let given_up = versions.remove(&Some(at)).filter(|it| it.state == "failed");
        let shown = ResourceVersion {
            path: Some(file.path),
            length: Some(file.length),
            error: given_up.and_then(|it| it.error),
            ..version(Some(at), "stored")
        };
        versions.insert(Some(at), shown);
    }
    Ok(versions.into_values().collect())
}

/// The stored versions of a resource whose file has that path in the mirror. For a blocking thread.
fn stored(
    place: &MirrorPlace,
    path: &str,
    uri: &ResourceUri,
) -> Result<BTreeMap<SourceTime, StoredFile>, MirrorError> {
    let mut found = BTreeMap::new();
    let reader = match MirrorReader::open(place) {
        Ok(reader) => reader,
        // Nothing was stored yet.
        Err(MirrorError::Missing { .. }) => return Ok(found),
        Err(error) => return Err(error),
    };
    for folder in publication_paths(path, uri) {
        for (name, length) in reader.names_in(&folder)? {
            if let Some(at) = parse_version_name(&name) {
                let path = format!("{folder}/{name}");
                found.entry(at).or_insert(StoredFile { path, length });
            }
        }
    }
    Ok(found)
}
