//! Checks the findings a second time: a running daemon may have repaired them meanwhile, and a resource that the Source does not
//! serve is unreachable, not missing.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};
use resyncd_core::ResourceUri;
use resyncd_fetch::{AllowedHosts, Client};
use resyncd_mirror::MirrorReader;

use super::context::AuditContext;
use super::files::{ExpectedFile, FileState, examine};
use super::run::MirrorComparison;
use crate::engine::EngineError;
use crate::engine::progress::Progress;
use crate::store::{AuditDb, Finding, FindingKind, KnownFile, KnownFiles, StatePlace};

/// How many findings are checked at once.
const PAGE: usize = 256;
/// How many resources are requested at once; the client limits the requests per host.
const PROBES: usize = 16;
/// How often findings are checked that a daemon is about to repair, and the pause between.
const CHECKS: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);

impl AuditContext {
    /// Drops the findings that a daemon has repaired since the audit began, and marks those that a running one has still pending.
    pub(super) async fn recheck(
        &self,
        comparison: &MirrorComparison,
        began: DateTime<Utc>,
    ) -> Result<(), EngineError> {
        let Some(reader) = &comparison.reader else {
            return Ok(());
        };
        for check in 1..=CHECKS {
            let recheck = Recheck {
                source: self.source.name.clone(),
                state: self.config.state(),
                audit_db: Arc::clone(&comparison.audit_db),
                reader: Arc::clone(reader),
                progress: Arc::clone(&self.progress),
                began,
            };
            let is_last = check == CHECKS;
            let checking = tokio::task::spawn_blocking(move || recheck.check(is_last));
            let checked = checking.await;
            if checked.map_err(|error| EngineError::of_join(&error, "the mirror"))?? {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Requests the resources that the mirror lacks; those that the Source does not serve are unreachable.
    pub(super) async fn probe(&self, comparison: &MirrorComparison) -> Result<(), EngineError> {
        let (audit_db, client) = (&comparison.audit_db, &comparison.reading.client);
        let mut after = 0;
        while let Some(page) = audit_db.next_findings(&mut after, PAGE)? {
            let lacking = page.into_iter().filter(Finding::needs_bytes);
            let probing = stream::iter(lacking).map(|finding| self.probed(client, finding));
            let unreachable: Vec<Finding> = probing
                .buffer_unordered(PROBES)
                .filter_map(std::future::ready)
                .collect()
                .await;
            audit_db.change_findings(&unreachable)?;
        }
        Ok(())
    }

    async fn probed(&self, client: &Client, finding: Finding) -> Option<Finding> {
        let uri = ResourceUri::parse(finding.uri.as_deref()?).ok()?;
        let hosts = AllowedHosts::new(&self.source.hosts);
        let error = client.probe(&uri, &hosts).await.err()?;
        Some(Finding {
            kind: FindingKind::Unreachable,
            code: Some(error.code().to_owned()),
            message: Some(error.to_string()),
            ..finding
        })
    }
}

impl Finding {
    /// Whether the bytes of the resource would repair it.
    pub(super) fn needs_bytes(&self) -> bool {
        match self.kind {
            FindingKind::Missing => true,
            FindingKind::Altered => self.differs != ["lastmod"],
            _ => false,
        }
    }
}

struct Recheck {
    source: String,
    state: StatePlace,
    audit_db: Arc<AuditDb>,
    reader: Arc<MirrorReader>,
    progress: Arc<Progress>,
    began: DateTime<Utc>,
}

impl Recheck {
    /// Checks every finding; returns whether that is final. It is not while a running daemon is about to repair some. `is_last`: it is in any
    /// case, and what the daemon has pending is marked.
    fn check(&self, is_last: bool) -> Result<bool, EngineError> {
        let Some(known) = KnownFiles::open(&self.state)? else {
            return Ok(true);
        };
        let has_daemon = !self.state.is_free();
        let is_behind = has_daemon && known.is_behind(&self.source)?;
        let mut is_final = true;
        let mut after = 0;
        while let Some(page) = self.audit_db.next_findings(&mut after, PAGE)? {
            let (mut settled, mut pending) = (Vec::new(), Vec::new());
            for finding in page {
                let (Some(path), uri) = (finding.path.as_deref(), finding.uri.as_deref()) else {
                    continue;
                };
                let file = known.of(&self.source, uri, Some(path))?;
                let is_pending = has_daemon && file.as_ref().is_some_and(|file| file.pending);
                if self.is_settled(&finding, path, file.as_ref()) {
                    settled.push(finding.id);
                } else if is_pending && is_last {
                    pending.push(Finding {
                        kind: FindingKind::Pending,
                        ..finding
                    });
                } else {
                    is_final &= is_last || !(is_pending || is_behind);
                }
            }
            self.audit_db.drop_findings(&settled)?;
            self.audit_db.change_findings(&pending)?;
        }
        Ok(is_final)
    }

    fn is_settled(&self, finding: &Finding, path: &str, known: Option<&KnownFile>) -> bool {
        if finding.kind == FindingKind::Extra && self.is_absent(path) {
            return true;
        }
        let Some(known) = known else { return false };
        if known.applied_at.is_none_or(|applied| applied < self.began) {
            return false;
        }
        let path = known.path.as_deref().unwrap_or(path);
        if known.deleted {
            return self.is_absent(path);
        }
        matches!(
            examine(&self.reader, path, &ExpectedFile::of(known), &self.progress),
            FileState::Right { .. }
        )
    }

    fn is_absent(&self, path: &str) -> bool {
        let nothing = ExpectedFile::default();
        examine(&self.reader, path, &nothing, &self.progress) == FileState::Missing
    }
}
