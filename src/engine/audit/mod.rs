//! Compares a mirror, file by file, with what its Source says now, and mends it if it is asked to.
//!
//! What the Source says is written into a [`AuditDb`] on disk, so that memory does not grow with the set; what is found is
//! written there, too, and told at the end. Nothing here decides what a daemon does: an audit that only looks takes no
//! lock and writes nothing, and an audit that mends makes tasks like those of the daemon, which the
//! [`Applier`](super::apply::executor::Applier) carries out.

mod document;
mod documents;
mod files;
mod recheck;
mod repair;

use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::clock;
use crate::config::{self, Config};
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::lifecycle::Engine;
use crate::engine::progress::{Counts, Progress};
use crate::fetch::Client;
use crate::mirror::{MirrorError, MirrorReader, made_path};
use crate::status::StatusError;
use crate::store::{AuditDb, Finding, FindingKind, FindingOutcome};

use documents::Reading;

/// How many findings are told at once.
const PAGE: usize = 256;

/// The audit of one Source.
pub struct Audit {
    source: config::Source,
    limits: config::Limits,
    state: PathBuf,
    client: Client,
    mending: Option<Mending>,
    progress: Arc<Progress>,
    expected: AtomicU64,
    stop: CancellationToken,
}

/// What an audit needs to mend what it finds.
struct Mending {
    context: Arc<SourceContext>,
    delete_extra: bool,
}

/// Something that an audit has found, as it is told.
#[derive(Clone, Debug)]
pub struct ReportedFinding {
    /// What was found.
    pub finding: Finding,
    /// The Capability List of the set that told of it.
    pub set: Option<Url>,
}

/// What came of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What was found, in numbers.
    pub sums: Sums,
    /// Whether everything that the Source says could be read.
    pub whole: bool,
    /// Whether what the Source does not name is extra; if not, nothing was called so.
    pub proves_absence: bool,
}

/// What an audit has found, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Files that were expected, and looked at.
    pub compared: u64,
    /// Those that were as they should be.
    pub right: u64,
    /// Those that were not there.
    pub missing: u64,
    /// Those that were something else.
    pub altered: u64,
    /// Files that nobody expected.
    pub extra: u64,
    /// What was missing or altered and can't be had, and lists that can't be read.
    pub unreachable: u64,
    /// Files of deleted resources, which are kept because the configuration says so.
    pub kept: u64,
    /// Findings that were mended.
    pub mended: u64,
    /// Files whose bytes were right: the database did not know of them, or they had another time.
    pub adopted: u64,
}

impl Summary {
    /// Whether the mirror is, now, what the Source says.
    #[must_use]
    pub fn is_in_sync(&self) -> bool {
        let sums = &self.sums;
        let wrong = sums.missing + sums.altered + sums.extra + sums.unreachable;
        self.whole && wrong == sums.mended
    }
}

impl Sums {
    fn count(&mut self, finding: &Finding) {
        let count = match finding.kind {
            FindingKind::Missing => &mut self.missing,
            FindingKind::Altered => &mut self.altered,
            FindingKind::Extra => &mut self.extra,
            FindingKind::Unreachable => &mut self.unreachable,
            FindingKind::Unknown => {
                self.adopted += u64::from(finding.outcome == FindingOutcome::Repaired);
                return;
            }
        };
        *count += 1;
        self.mended += u64::from(finding.outcome == FindingOutcome::Repaired);
        // Lists are no files, and what is extra was not expected.
        let is_wrong = finding.expected.is_some();
        self.right -= u64::from(is_wrong && self.right > 0);
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.compared += other.compared;
        self.right += other.right;
        self.missing += other.missing;
        self.altered += other.altered;
        self.extra += other.extra;
        self.unreachable += other.unreachable;
        self.kept += other.kept;
        self.mended += other.mended;
        self.adopted += other.adopted;
    }
}

impl Audit {
    /// Audits that only look, one for each Source of a configuration. They may go on beside a daemon.
    #[must_use]
    pub fn looking(config: &Config, client: &Client) -> Vec<Self> {
        let sources = config.sources.iter();
        sources
            .map(|source| Self {
                source: source.clone(),
                limits: config.limits.clone(),
                state: config.state_dir.clone(),
                client: client.with_credentials(&source.credentials),
                mending: None,
                progress: Arc::default(),
                expected: AtomicU64::new(0),
                stop: CancellationToken::new(),
            })
            .collect()
    }

    /// Audits that mend what they find. `engine`: one that works [once](Engine::once); it follows nothing meanwhile.
    #[must_use]
    pub fn mending(
        config: &Config,
        client: &Client,
        engine: &Arc<Engine>,
        delete_extra: bool,
    ) -> Vec<Self> {
        let audits = Self::looking(config, client).into_iter();
        audits
            .zip(&engine.sources)
            .map(|(audit, followed)| Self {
                mending: Some(Mending {
                    context: Arc::clone(&followed.context),
                    delete_extra,
                }),
                ..audit
            })
            .collect()
    }

    /// The label of the Source.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source.name
    }

    /// How far it has come; `applied` counts the files that were looked at. Also how many are expected in all.
    #[must_use]
    pub fn counts(&self) -> (Counts, u64) {
        let mut counts = self.progress.counts();
        if let Some(mending) = &self.mending {
            counts.bytes += mending.context.progress.counts().bytes;
        }
        (counts, self.expected.load(Ordering::Relaxed))
    }

    /// Ends it early, and in order.
    pub fn interrupt(&self) {
        self.stop.cancel();
    }

    /// Does it, and tells what was found, one after the other.
    ///
    /// # Errors
    /// When it could not be brought to an end: the mirror or the database can't be read, or are in use where it is to mend,
    /// or it was interrupted.
    pub async fn run(&self, told: &mpsc::Sender<ReportedFinding>) -> Result<Summary, StatusError> {
        let done = match &self.mending {
            None => tokio::select! {
                () = self.stop.cancelled() => Err(EngineError::Interrupted),
                done = self.look_only(told) => done,
            },
            Some(mending) => self.look_and_mend(mending, told).await,
        };
        done.map_err(|error| error.status_error())
    }

    async fn look_only(
        &self,
        told: &mpsc::Sender<ReportedFinding>,
    ) -> Result<Summary, EngineError> {
        let began = clock::now().wall;
        let looked = self.look().await?;
        let reader = looked.reader.as_ref();
        self.look_again(&looked.audit_db, reader, began).await?;
        self.probe(&looked.audit_db).await?;
        self.tell(&looked, told).await
    }

    /// Reads what the Source says, and looks at every file.
    async fn look(&self) -> Result<Looked, EngineError> {
        let audit_db = Arc::new(blocking(AuditDb::begin).await??);
        let reading = self.read_documents(&audit_db).await?;
        self.take_known(&audit_db, &reading).await?;
        let counting = Arc::clone(&audit_db);
        let expected = blocking(move || counting.expected()).await??;
        self.expected.store(expected, Ordering::Relaxed);
        let root = self.source.mirror.clone();
        let reader = match blocking(move || MirrorReader::open(&root)).await? {
            Ok(reader) => Some(Arc::new(reader)),
            // Nothing was ever mirrored.
            Err(MirrorError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        self.compare(&audit_db, reader.as_ref()).await?;
        let mut kept = 0;
        if let Some(reader) = reader.clone().filter(|_| reading.proves_extras()) {
            kept = self.extras(&audit_db, reader).await?;
        }
        Ok(Looked {
            audit_db,
            reading,
            reader,
            expected,
            kept,
        })
    }

    async fn take_known(
        &self,
        audit_db: &Arc<AuditDb>,
        reading: &Reading,
    ) -> Result<(), EngineError> {
        let (audit_db, source, state) = (
            Arc::clone(audit_db),
            self.source.clone(),
            self.state.clone(),
        );
        let since = reading.since;
        blocking(move || {
            let wants = |uri: &crate::protocol::ResourceUri| source.filter.wants(uri);
            audit_db.copy_known(&state, &source.name, wants)?;
            audit_db.merge_known(since, |uri| made_path(uri).to_string())
        })
        .await??;
        Ok(())
    }

    async fn extras(
        &self,
        audit_db: &Arc<AuditDb>,
        reader: Arc<MirrorReader>,
    ) -> Result<u64, EngineError> {
        let (audit_db, stop) = (Arc::clone(audit_db), self.stop.clone());
        let deletes = self.source.delete;
        blocking(move || files::find_extras(&audit_db, &reader, deletes, &stop)).await?
    }

    /// Tells what was found, and sums it up.
    async fn tell(
        &self,
        looked: &Looked,
        told: &mpsc::Sender<ReportedFinding>,
    ) -> Result<Summary, EngineError> {
        let mut sums = Sums {
            compared: looked.expected,
            right: looked.expected,
            kept: looked.kept,
            ..Sums::default()
        };
        let mut after = 0;
        while let Some(page) = looked.audit_db.next_findings(&mut after, PAGE)? {
            for finding in page {
                sums.count(&finding);
                if finding.kind == FindingKind::Unknown {
                    continue;
                }
                let set = finding.set.and_then(|number| looked.reading.set(number));
                // Who does not listen any more wants the summary at most.
                let _ = told.send(ReportedFinding { finding, set }).await;
            }
        }
        Ok(Summary {
            sums,
            whole: looked.reading.whole,
            proves_absence: looked.reading.proves_extras(),
        })
    }
}

/// What an audit has seen.
struct Looked {
    audit_db: Arc<AuditDb>,
    reading: Reading,
    reader: Option<Arc<MirrorReader>>,
    expected: u64,
    kept: u64,
}

/// Runs what blocks off the asynchronous threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| EngineError::Interrupted)
}
