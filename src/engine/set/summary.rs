//! Summarizes documents off the asynchronous threads, before anything is done with their entries: a document that is cut
//! short, or of another capability than expected, changes nothing.

use url::Url;

use crate::clock;
use crate::engine::EngineError;
use crate::fetch::FetchedDocument;
use crate::protocol::{Capability, DocumentSummary};
use crate::sync::latest_source_time;

/// Rejects a manifest that states another capability. One that states the capability of its dump is accepted.
pub(super) fn expect_manifest(
    summary: &DocumentSummary,
    capability: &Capability,
    uri: &Url,
) -> Result<(), EngineError> {
    match (&summary.head.md.capability, capability) {
        (None, _)
        | (Some(Capability::ResourceDump), Capability::ResourceDumpManifest)
        | (Some(Capability::ChangeDump), Capability::ChangeDumpManifest) => Ok(()),
        (Some(stated), wanted) if stated != wanted => Err(EngineError::WrongCapability {
            document: format!("the manifest of {uri}"),
            wanted: wanted.clone(),
            found: stated.clone(),
        }),
        _ => Ok(()),
    }
}

/// Reads a document once to its end, on a blocking thread.
pub(super) async fn summarize(
    mut document: Box<FetchedDocument>,
) -> Result<(Box<FetchedDocument>, DocumentSummary), EngineError> {
    let latest = latest_source_time(clock::now().wall);
    let reading = tokio::task::spawn_blocking(move || {
        let summary = DocumentSummary::read(document.reader()?, latest)?;
        Ok::<_, EngineError>((document, summary))
    });
    reading.await.map_err(|_| EngineError::Interrupted)?
}
