//! The audit of one Source, from its documents to the report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use resourcesync::Link;
use resyncd_core::{ResourceUri, Standing};
use resyncd_fetch::Client;
use resyncd_mirror::{MirrorError, MirrorReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::context::{AuditContext, Repair, RepairOptions, blocking};
use super::reading::SourceReading;
use super::results::{Reported, ReportedFinding, Summary, Sums};
use super::{files, repair};
use crate::clock;
use crate::config::Config;
use crate::engine::EngineError;
use crate::engine::apply::temporary_executor::with_executor;
use crate::engine::lifecycle::Engine;
use crate::engine::mirror_opening::{Accepting, open_mirror};
use crate::engine::progress::Counts;
use crate::status::StatusError;
use crate::store::{AuditDb, FindingKind, ScratchFolder};

/// How many findings are read at once.
const PAGE: usize = 256;

/// A mirror that was compared with its Source, before anything is repaired or reported.
pub(super) struct MirrorComparison {
    pub(super) audit_db: Arc<AuditDb>,
    pub(super) reading: SourceReading,
    pub(super) reader: Option<Arc<MirrorReader>>,
    /// How many files were expected.
    expected: u64,
    /// How many files of deleted resources stay.
    kept: u64,
    _scratch: ScratchFolder,
}

/// The audit of one Source.
pub struct Audit {
    context: AuditContext,
    expected: AtomicU64,
}

impl Audit {
    /// Audits that only compare, one for each Source of a configuration. They may run beside a daemon.
    #[must_use]
    pub fn comparing(config: &Config, client: &Client) -> Vec<Self> {
        let sources = config.sources.iter();
        sources
            .map(|source| Self {
                context: AuditContext {
                    source: source.clone(),
                    config: Config {
                        sources: vec![source.clone()],
                        ..config.clone()
                    },
                    client: client.clone(),
                    repair: None,
                    originals: false,
                    rests: false,
                    progress: Arc::default(),
                    reading: OnceLock::new(),
                    stop: CancellationToken::new(),
                },
                expected: AtomicU64::new(0),
            })
            .collect()
    }

    /// Audits that repair what they find. `engine`: one for a [single run](Engine::once) that has not begun.
    #[must_use]
    pub fn repairing(
        config: &Config,
        client: &Client,
        engine: &Arc<Engine>,
        options: RepairOptions,
    ) -> Vec<Self> {
        let audits = Self::comparing(config, client).into_iter();
        audits
            .zip(engine.sources.contexts())
            .map(|(mut audit, context)| {
                audit.context.repair = Some(Repair { context, options });
                audit
            })
            .collect()
    }

    /// The same audit; `originals`: files are also compared with what is stated of their originals.
    #[must_use]
    pub fn with_originals(mut self, originals: bool) -> Self {
        self.context.originals = originals;
        self
    }

    /// The same audit, which rests between files three times as long as it reads: it is no load for a disk that serves others.
    #[must_use]
    pub fn resting(mut self) -> Self {
        self.context.rests = true;
        self
    }

    /// The name of the Source.
    pub fn source(&self) -> &str {
        &self.context.source.name
    }

    /// The progress; `applied` counts the compared files. Also how many files are expected in all.
    pub fn counts(&self) -> (Counts, u64) {
        let mut counts = self.context.progress.counts();
        if let Some(reading) = self.context.reading.get() {
            counts.documents = reading.counts().documents;
        }
        if let Some(repair) = &self.context.repair {
            counts.bytes += repair.context.progress.counts().bytes;
        }
        (counts, self.expected.load(Ordering::Relaxed))
    }

    /// Ends it early, and in order.
    pub fn interrupt(&self) {
        self.context.stop.cancel();
    }

    /// Runs the audit, and sends its findings one by one.
    ///
    /// # Errors
    /// When it could not be completed: the mirror or the database can't be read, or are in use by another process where it is to
    /// repair, or it was interrupted.
    pub async fn run(&self, findings: &mpsc::Sender<Reported>) -> Result<Summary, StatusError> {
        let done = match &self.context.repair {
            None => self.compare_and_report(findings).await,
            Some(repair) => self.compare_and_repair(repair, findings).await,
        };
        done.map_err(|error| error.status_error())
    }

    async fn compare_and_report(
        &self,
        findings: &mpsc::Sender<Reported>,
    ) -> Result<Summary, EngineError> {
        let (context, began) = (&self.context, clock::now().wall);
        let comparison = self.compare().await?;
        let reporting = async {
            context.recheck(&comparison, began).await?;
            context.probe(&comparison).await?;
            self.report(&comparison, findings).await
        };
        tokio::select! {
            () = context.stop.cancelled() => Err(EngineError::Interrupted),
            done = reporting => done,
        }
    }

    /// Opens the mirror for writing, compares, and repairs.
    async fn compare_and_repair(
        &self,
        repair: &Repair,
        findings: &mpsc::Sender<Reported>,
    ) -> Result<Summary, EngineError> {
        let context = &self.context;
        let accepting = if repair.options.new_mirror {
            Accepting::Any
        } else {
            Accepting::Known
        };
        let mirror = open_mirror(&repair.context, accepting).await?;
        let mirror = Arc::new(mirror);
        let comparison = self.compare().await?;
        let job = tokio::select! {
            () = context.stop.cancelled() => return Err(EngineError::Interrupted),
            begun = repair::begin(context, repair, &comparison, &mirror) => begun?,
        };
        let mut repaired = Ok(());
        let work = async {
            tokio::select! {
                () = context.stop.cancelled() => repaired = Err(EngineError::Interrupted),
                done = job.complete() => repaired = done,
            }
        };
        with_executor(&repair.context, Arc::clone(&mirror), work).await?;
        repaired?;
        self.report(&comparison, findings).await
    }

    /// Reads the Source's documents, and compares every file.
    async fn compare(&self) -> Result<MirrorComparison, EngineError> {
        let context = &self.context;
        let state = context.config.state_dir.clone();
        let scratch = blocking(move || ScratchFolder::create(&state)).await??;
        let reading = context.read(&scratch).await?;
        tokio::select! {
            () = context.stop.cancelled() => Err(EngineError::Interrupted),
            compared = self.compare_with(scratch, reading) => compared,
        }
    }

    async fn compare_with(
        &self,
        scratch: ScratchFolder,
        reading: SourceReading,
    ) -> Result<MirrorComparison, EngineError> {
        let context = &self.context;
        let audit_db = self.merge_known(&scratch, &reading).await?;
        let expected = audit_db.expected()?;
        self.expected.store(expected, Ordering::Relaxed);
        let root = context.source.mirror.clone();
        let reader = match blocking(move || MirrorReader::open(&root)).await? {
            Ok(reader) => Some(Arc::new(reader)),
            // Nothing was ever mirrored.
            Err(MirrorError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        context.compare(&audit_db, reader.as_ref()).await?;
        let mut kept = 0;
        if let Some(reader) = reader.clone().filter(|_| reading.proves_extras()) {
            let (audit_db, source) = (Arc::clone(&audit_db), context.source.clone());
            let stop = context.stop.clone();
            let finding = move || files::find_extras(&audit_db, &reader, &source, &stop);
            kept = blocking(finding).await??;
        }
        Ok(MirrorComparison {
            audit_db,
            reading,
            reader,
            expected,
            kept,
            _scratch: scratch,
        })
    }

    /// Opens what was read, beside what the state database knows.
    async fn merge_known(
        &self,
        scratch: &ScratchFolder,
        reading: &SourceReading,
    ) -> Result<Arc<AuditDb>, EngineError> {
        let (lists, findings) = (reading.list_times(), reading.findings());
        let (stated, known, source) = (
            scratch.state(),
            self.context.config.state(),
            self.context.source.clone(),
        );
        let merging = move || {
            let audit_db = AuditDb::open(&stated, &known, &source.name)?;
            let filter = &source.filter;
            let wants = |uri: &ResourceUri| filter.wants(uri);
            let selects = |media_type: Option<&str>, links: &[Link]| {
                let standing = filter.selection().standing(media_type, links);
                standing.is_none_or(Standing::is_wanted)
            };
            audit_db.merge_known(&lists, wants, selects)?;
            audit_db.add_findings(&findings)?;
            Ok::<_, EngineError>(Arc::new(audit_db))
        };
        blocking(merging).await?
    }

    /// Sends the findings, and sums them up.
    async fn report(
        &self,
        comparison: &MirrorComparison,
        findings: &mpsc::Sender<Reported>,
    ) -> Result<Summary, EngineError> {
        let mut sums = Sums {
            compared: comparison.expected,
            right: comparison.expected,
            kept: comparison.kept,
            ..Sums::default()
        };
        let mut after = 0;
        while let Some(page) = comparison.audit_db.next_findings(&mut after, PAGE)? {
            for finding in page {
                sums.count(&finding);
                if matches!(finding.kind, FindingKind::Unknown | FindingKind::Pending) {
                    continue;
                }
                let set = comparison.reading.set(finding.set);
                // After an interruption nothing receives it.
                let found = Reported::Finding(ReportedFinding { finding, set });
                let _ = findings.send(found).await;
            }
        }
        let originals = if self.context.originals {
            Some(self.context.compare_originals(comparison, findings).await?)
        } else {
            None
        };
        Ok(Summary {
            originals,
            sums,
            whole: comparison.reading.is_complete(),
            proves_absence: comparison.reading.proves_extras(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    use axum::http;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use reqwest::{Request, Response};
    use resourcesync::ChangeKind;
    use resyncd_fetch::{FetchError, HttpNetwork};
    use url::Url;

    use super::*;
    use crate::config::Source;
    use crate::engine::tests::NAME;
    use crate::store::{Change, ChangeBatch, Origin, Store};

    /// How many resources the Source lists: more than are repaired at once.
    const LISTED: usize = PAGE + 4;

    /// A Source with a Resource List that does not name one of the resources that it serves.
    struct Site {
        /// The file of that resource.
        unlisted: PathBuf,
        /// Whether the file was there when the resource was requested.
        was_there: Arc<AtomicBool>,
    }

    fn document(md: &str, entries: &str) -> String {
        format!(
            r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md {md}/>{entries}</urlset>"#
        )
    }

    impl HttpNetwork for Site {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            let uri = |path: &str| format!("<loc>https://example.org/{path}</loc>");
            let (status, body) = match request.url().path() {
                "/set" => {
                    let list = r#"<rs:md capability="resourcelist"/>"#;
                    let list = format!("<url>{}{list}</url>", uri("list"));
                    (200, document(r#"capability="capabilitylist""#, &list))
                }
                "/list" => {
                    let resource = |number| format!("<url>{}</url>", uri(&format!("r/{number}")));
                    let resources: String = (0..LISTED).map(resource).collect();
                    let md = r#"capability="resourcelist" at="2026-01-01T00:00:00Z""#;
                    (200, document(md, &resources))
                }
                "/unlisted" => {
                    self.was_there
                        .store(self.unlisted.exists(), Ordering::SeqCst);
                    (200, "served".to_owned())
                }
                path if path.starts_with("/r/") => (200, "listed".to_owned()),
                _ => (404, String::new()),
            };
            let answer = http::Response::builder().status(status);
            let answer = answer.body(body.into_bytes()).unwrap();
            std::future::ready(Ok(answer.into())).boxed()
        }
    }

    /// A kill has left a file without a record. The task is executed while the audit repairs.
    #[tokio::test]
    async fn extra_file_is_removed_before_its_resource_is_published() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let url = Url::parse("https://example.org/set").unwrap();
        let root = folder.path().join("mirror");
        let config = Config::new(folder.path(), vec![Source::new(NAME, url.clone(), &root)]);
        let uri = ResourceUri::parse("https://example.org/unlisted").unwrap();
        let set = store.begin_set(NAME, &url).await.unwrap().id;
        let created = Change {
            kind: ChangeKind::Created,
            ..Change::deletion(uri.clone(), None)
        };
        let announced = store.ingest(ChangeBatch {
            set,
            source: NAME.to_owned(),
            origin: Origin::Notification,
            now: clock::now().wall,
            begins: true,
            changes: vec![created],
            end: None,
        });
        assert_eq!(announced.await.unwrap().tasks, 1);
        let unlisted = root.join("example.org/unlisted");
        std::fs::create_dir_all(unlisted.parent().unwrap()).unwrap();
        std::fs::write(&unlisted, "without a record").unwrap();
        let was_there = Arc::new(AtomicBool::new(true));
        let site = Site {
            unlisted: unlisted.clone(),
            was_there: Arc::clone(&was_there),
        };
        let client = Client::new(&config.http, crate::clock::now).unwrap();
        let client = client.with_network(Arc::new(site));
        let engine = Engine::once(&config, Arc::clone(&store), &client);
        let engine = engine.await.unwrap();
        let audit = Audit::repairing(
            &config,
            &client,
            &engine,
            RepairOptions {
                delete_extra: true,
                new_mirror: false,
            },
        )
        .remove(0);
        let (sender, _findings) = mpsc::channel(2 * LISTED);
        let summary = audit.run(&sender).await.unwrap();
        assert_eq!(
            (summary.sums.missing, summary.sums.extra),
            (LISTED as u64, 1)
        );
        assert!(summary.is_in_sync(), "{summary:?}");
        assert!(!was_there.load(Ordering::SeqCst));
        let recorded = store.resource(&uri).await.unwrap().unwrap();
        assert!(!recorded.deleted);
        assert_eq!(std::fs::read(&unlisted).unwrap(), b"served");
    }
}
