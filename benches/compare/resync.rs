//! The client of `resync`, the reference implementation.

use std::process::Command;

use tempfile::TempDir;

use super::harness::{Bench, BenchResult, Timed, timed};
use super::site::{RESOURCE_LIST, Site};

/// A folder that `resync-sync` keeps like a site.
pub(crate) struct ResyncClient {
    folder: TempDir,
}

impl ResyncClient {
    pub(crate) fn new(bench: &Bench) -> BenchResult<Self> {
        Ok(Self {
            folder: bench.folder()?,
        })
    }

    /// Runs a baseline, or another one that finds everything in place.
    pub(crate) fn sync(&self, bench: &Bench, site: &Site) -> BenchResult<Timed> {
        let base = site.base();
        let mut sync = Command::new(bench.peers.find("resync-sync")?);
        sync.args(["--baseline", "--hash", "sha-256", "--sitemap"])
            .arg(format!("{base}/{RESOURCE_LIST}"))
            .arg(format!(
                "{base}/data={}",
                self.folder.path().join("mirror/data").display()
            ))
            // For the file in which it stores its state.
            .current_dir(self.folder.path());
        let timed = timed(&mut sync)?;
        site.compare_folder(&self.folder.path().join("mirror"))?;
        Ok(timed)
    }
}
