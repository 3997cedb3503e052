//! The audit of one Source, from its documents to the report.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use resourcesync::Link;
use resyncd_core::{ResourceUri, Standing};
use resyncd_fetch::Client;
use resyncd_mirror::{MirrorError, MirrorReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::comparison::MirrorComparison;
use super::context::{AuditContext, Repair, RepairOptions, blocking};
use super::documents::SourceDocuments;
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
use crate::store::{AuditDb, FindingKind};

/// How many findings are read at once.
const PAGE: usize = 256;

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
                    limits: config.limits.clone(),
                    state: config.state_dir.clone(),
                    client: source.obeying_robots(client.with_credentials(&source.credentials)),
                    repair: None,
                    originals: false,
                    progress: Arc::default(),
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

    /// The name of the Source.
    pub fn source(&self) -> &str {
        &self.context.source.name
    }

    /// The progress; `applied` counts the compared files. Also how many files are expected in all.
    pub fn counts(&self) -> (Counts, u64) {
        let mut counts = self.context.progress.counts();
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
            None => tokio::select! {
                () = self.context.stop.cancelled() => Err(EngineError::Interrupted),
                done = self.compare_and_report(findings) => done,
            },
            Some(repair) => self.compare_and_repair(repair, findings).await,
        };
        done.map_err(|error| error.status_error())
    }

    async fn compare_and_report(
        &self,
        findings: &mpsc::Sender<Reported>,
    ) -> Result<Summary, EngineError> {
        let began = clock::now().wall;
        let comparison = self.compare().await?;
        let reader = comparison.reader.as_ref();
        let context = &self.context;
        context.recheck(&comparison.audit_db, reader, began).await?;
        context.probe(&comparison.audit_db).await?;
        self.report(&comparison, findings).await
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
        let comparison = tokio::select! {
            () = context.stop.cancelled() => return Err(EngineError::Interrupted),
            comparison = self.compare() => comparison?,
        };
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
        let audit_db = Arc::new(blocking(AuditDb::begin).await??);
        let documents = context.read_documents(&audit_db).await?;
        self.ingest_records(&audit_db, &documents).await?;
        let counting = Arc::clone(&audit_db);
        let expected = blocking(move || counting.expected()).await??;
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
        if let Some(reader) = reader.clone().filter(|_| documents.proves_extras()) {
            kept = self.extras(&audit_db, reader).await?;
        }
        Ok(MirrorComparison {
            audit_db,
            documents,
            reader,
            expected,
            kept,
        })
    }

    async fn ingest_records(
        &self,
        audit_db: &Arc<AuditDb>,
        documents: &SourceDocuments,
    ) -> Result<(), EngineError> {
        let (audit_db, source, state) = (
            Arc::clone(audit_db),
            self.context.source.clone(),
            self.context.state.clone(),
        );
        let since = documents.since;
        blocking(move || {
            let filter = &source.filter;
            let wants = |uri: &ResourceUri| filter.wants(uri);
            let selects = |media_type: Option<&str>, links: &[Link]| {
                let standing = filter.selection().standing(media_type, links);
                standing.is_none_or(Standing::is_wanted)
            };
            audit_db.copy_known(&state, &source.name, wants, selects)?;
            audit_db.merge_known(since)
        })
        .await??;
        Ok(())
    }

    async fn extras(
        &self,
        audit_db: &Arc<AuditDb>,
        reader: Arc<MirrorReader>,
    ) -> Result<u64, EngineError> {
        let (audit_db, stop) = (Arc::clone(audit_db), self.context.stop.clone());
        let deletes = self.context.source.delete;
        blocking(move || files::find_extras(&audit_db, &reader, deletes, &stop)).await?
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
                let set = finding
                    .set
                    .and_then(|number| comparison.documents.set(number));
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
            whole: comparison.documents.is_complete,
            proves_absence: comparison.documents.proves_extras(),
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
    use crate::engine::test_source::NAME;
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
