//! Dumps of version 0.1 (section 4.2): the Sitemap links to the package itself, and no document states what it has before it is there.
//!
//! It proves nothing, neither by absence nor for a time: the draft does not say that a dump has everything. What else there is states
//! the Sitemap, which is read after it.

use chrono::DateTime;
use resourcesync::{Capability, DocumentSummary, Entry, SourceTime};
use resyncd_core::latest_source_time;
use url::Url;

use super::entry_batches::EntrySource;
use super::ingest::ingest_listed;
use super::packages::PackageEntry;
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::store::{DumpProgress, NamedSoFar, Origin};

impl SetState {
    /// Begins the baseline with a package.
    pub(super) async fn read_direct_dump(&mut self, uri: &Url) -> Result<(), EngineError> {
        let set = self.record.id;
        let package = PackageEntry::of(Entry::new(uri.clone()));
        let manifest = Capability::ResourceDumpManifest;
        let mut copy = None;
        let opening = self.packages.open(set, &package, &manifest, &mut copy);
        let (opened, summary, file) = opening.await?;
        let at = time_of(&summary);
        if self.record.list_at.is_some_and(|known| at < known) {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
        // After an interruption the baseline goes on with the same package.
        let progress = DumpProgress {
            uri: uri.to_string(),
            digest: [0; 32],
        };
        let resumed = self.context.store.begin_dump(set, progress).await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, resumed, "reading dump");
        let named = NamedSoFar::default();
        let list = self.list_progress(Origin::ResourceDump, at, &named);
        let entries = EntrySource::Package(opened);
        let result = ingest_listed(&self.context, &list, entries, &named).await?;
        self.found += result.tasks;
        self.packages.end(&package, &summary, Some(file)).await?;
        let names_any = summary.entries > 0;
        // It is not to be read again if the Sitemap can't be read now.
        let covered = DateTime::UNIX_EPOCH.into();
        self.commit_snapshot(Origin::ResourceDump, covered, None, names_any)
            .await?;
        tracing::info!(source = self.context.name(), set = %self.record.capability_list, %at, "dump read");
        Ok(())
    }
}

/// The time of a dump: that of its manifest, or else of its newest entry.
fn time_of(manifest: &DocumentSummary) -> SourceTime {
    let latest = latest_source_time(clock::now().wall);
    let md = &manifest.head.md;
    let mut times = [md.at, md.modified, manifest.newest].into_iter().flatten();
    let time = times.find(|&time| time <= latest);
    time.unwrap_or_else(|| DateTime::UNIX_EPOCH.into())
}
