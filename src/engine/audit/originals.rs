//! Compares the files of republished resources with what is stated of their originals (`rel="via"`; core, section 14.8).
//!
//! What counts is the digest that the link states: the original itself is not requested. Without one nothing is known.

use std::sync::Arc;

use resourcesync::Link;
use resyncd_mirror::MirrorReader;
use tokio::sync::mpsc;

use super::context::{AuditContext, blocking};
use super::files::{ExpectedFile, FileState, examine};
use super::results::{OriginalOutcome, OriginalSums, Reported, ReportedOriginal};
use super::run::MirrorComparison;
use crate::engine::EngineError;
use crate::engine::progress::Progress;
use crate::store::ResourceId;

/// How many resources are read from the audit database, and compared by one thread, at once.
const PAGE: usize = 64;

impl AuditContext {
    /// Compares the file of every republished resource, sends what differs and what is unknown, and sums up.
    pub(super) async fn compare_originals(
        &self,
        comparison: &MirrorComparison,
        reported: &mpsc::Sender<Reported>,
    ) -> Result<OriginalSums, EngineError> {
        let mut sums = OriginalSums::default();
        let mut after = ResourceId(0);
        loop {
            if self.stop.is_cancelled() {
                return Err(EngineError::Interrupted);
            }
            let page = comparison.audit_db.linked(after, PAGE)?;
            let Some(last) = page.last() else {
                return Ok(sums);
            };
            after = last.id;
            let (reader, progress) = (comparison.reader.clone(), Arc::clone(&self.progress));
            let comparing = blocking(move || {
                let reader = reader.as_deref();
                let mut compared = Vec::new();
                for expectation in page {
                    let links = expectation.links.iter();
                    for original in links.filter(|link| link.is("via")) {
                        let outcome = compare(reader, &expectation.path, original, &progress);
                        let (uri, path) = (expectation.uri.to_string(), expectation.path.clone());
                        let original = original.href.to_string();
                        let found = ReportedOriginal {
                            set: None,
                            uri,
                            path,
                            original,
                            outcome,
                        };
                        compared.push((expectation.set, found));
                    }
                }
                compared
            });
            for (set, found) in comparing.await? {
                sums.count(&found.outcome);
                if found.outcome == OriginalOutcome::Same {
                    continue;
                }
                let set = comparison.reading.set(set);
                // After an interruption nothing receives it.
                let _ = reported
                    .send(Reported::Original(ReportedOriginal { set, ..found }))
                    .await;
            }
        }
    }
}

/// Compares a file with what a link states of its original. For a blocking thread.
fn compare(
    reader: Option<&MirrorReader>,
    path: &str,
    original: &Link,
    progress: &Progress,
) -> OriginalOutcome {
    let Some(reader) = reader else {
        return OriginalOutcome::Unknown("no-file");
    };
    let content = &original.content;
    if content.hashes.is_empty() && content.length.is_none() {
        return OriginalOutcome::Unknown("no-digest");
    }
    let expected = ExpectedFile {
        content: content.clone(),
        lastmod: None,
    };
    match examine(reader, path, &expected, progress) {
        FileState::Right { .. } if content.hashes.is_empty() => {
            OriginalOutcome::Unknown("no-digest")
        }
        FileState::Right { .. } => OriginalOutcome::Same,
        // What is stated may be of the coded bytes.
        FileState::Altered { .. } if original.encoding.is_some() => {
            OriginalOutcome::Unknown("coded")
        }
        FileState::Altered { differs, .. } => OriginalOutcome::Differs(differs),
        FileState::Missing => OriginalOutcome::Unknown("no-file"),
        FileState::Unreadable(_) => OriginalOutcome::Unknown("unreadable"),
    }
}
