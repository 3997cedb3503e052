//! Mends what was found: what lacks bytes is fetched, in any case; what is only dated wrongly is dated; what is right and not
//! known is made known; what is extra goes, if a person has asked for that.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::files::{Facts, Seen, examine};
use super::{Audit, Looked, Mending, ReportedFinding, Summary, blocking};
use crate::clock;
use crate::engine::EngineError;
use crate::engine::apply::session::{drain, with_executor};
use crate::engine::progress::Progress;
use crate::engine::set::changes::paths_of;
use crate::engine::source::discovery::begin_set;
use crate::mirror::{Mirror, MirrorPath, MirrorReader, file_time};
use crate::protocol::{ChangeKind, ResourceUri};
use crate::store::{
    Adoption, Change, Expectation, Finding, FindingKind, FindingOutcome, KnownFiles, SetId,
};

/// How many findings are worked on at once.
const PAGE: usize = 256;

impl Audit {
    /// Takes the mirror, looks, and mends.
    pub(super) async fn look_and_mend(
        &self,
        mending: &Mending,
        told: &mpsc::Sender<ReportedFinding>,
    ) -> Result<Summary, EngineError> {
        let root = self.source.mirror.clone();
        let mirror = Arc::new(blocking(move || Mirror::open(&root)).await??);
        let looked = tokio::select! {
            () = self.stop.cancelled() => return Err(EngineError::Interrupted),
            looked = self.look() => looked?,
        };
        let mut mended = Ok(());
        let work = async {
            tokio::select! {
                () = self.stop.cancelled() => mended = Err(EngineError::Interrupted),
                done = self.mend(mending, &looked, &mirror) => mended = done,
            }
        };
        with_executor(&mending.context, Arc::clone(&mirror), work).await;
        mended?;
        self.tell(&looked, told).await
    }

    async fn mend(
        &self,
        mending: &Mending,
        looked: &Looked,
        mirror: &Arc<Mirror>,
    ) -> Result<(), EngineError> {
        let mut sets = Vec::new();
        for set in &looked.reading.sets {
            sets.push(begin_set(&mending.context, set).await?.id);
        }
        let job = Job {
            mending,
            looked,
            mirror,
            sets,
            state: &self.state,
            progress: &self.progress,
        };
        job.each_page(Step::Begin).await?;
        drain(&mending.context).await;
        job.each_page(Step::End).await
    }
}

struct Job<'a> {
    mending: &'a Mending,
    looked: &'a Looked,
    mirror: &'a Arc<Mirror>,
    sets: Vec<SetId>,
    /// The folder of the database.
    state: &'a Path,
    progress: &'a Arc<Progress>,
}

#[derive(Clone, Copy)]
enum Step {
    /// What can be done at once is done, for the rest there are tasks.
    Begin,
    /// The tasks are done, or can't be.
    End,
}

/// What is done about some findings.
#[derive(Default)]
struct Measures {
    tasks: Vec<(Option<SetId>, Change)>,
    adoptions: Vec<(Finding, Adoption)>,
    removals: Vec<(Finding, MirrorPath)>,
}

impl Job<'_> {
    async fn each_page(&self, step: Step) -> Result<(), EngineError> {
        let audit_db = &self.looked.audit_db;
        let mut after = 0;
        while let Some(page) = audit_db.next_findings(&mut after, PAGE)? {
            let changed = match step {
                Step::Begin => self.begin(page).await?,
                Step::End => self.end(page).await?,
            };
            audit_db.change_findings(&changed)?;
        }
        Ok(())
    }

    /// The set that told of something; `None`: only the database knows of it.
    fn set(&self, number: Option<u32>) -> Option<SetId> {
        let index = usize::try_from(number?).ok()?.checked_sub(1)?;
        self.sets.get(index).copied()
    }

    async fn begin(&self, page: Vec<Finding>) -> Result<Vec<Finding>, EngineError> {
        let mut measures = Measures::default();
        for finding in page {
            match finding.kind {
                FindingKind::Extra if self.mending.delete_extra => {
                    self.remove(&mut measures, finding)?;
                }
                FindingKind::Missing | FindingKind::Altered | FindingKind::Unknown => {
                    self.restore(&mut measures, finding).await?;
                }
                FindingKind::Extra | FindingKind::Unreachable => {}
            }
        }
        let now = clock::now().wall;
        let (store, source) = (&self.mending.context.store, self.mending.context.name());
        let mut mended = self.remove_now(measures.removals).await?;
        let (findings, adoptions): (Vec<_>, Vec<_>) = measures.adoptions.into_iter().unzip();
        let adopted = store.adopt(source, now, adoptions).await?;
        mended.extend(
            findings
                .into_iter()
                .filter(|finding| {
                    finding
                        .uri
                        .as_ref()
                        .is_some_and(|uri| adopted.contains(uri))
                })
                .map(mend),
        );
        store.repair(source, now, measures.tasks).await?;
        Ok(mended)
    }

    /// Puts a resource right.
    async fn restore(&self, measures: &mut Measures, finding: Finding) -> Result<(), EngineError> {
        let Some(id) = finding.expected else {
            return Ok(());
        };
        let set = self.set(finding.set);
        let expectation = self.looked.audit_db.expectation(id)?;
        let kind = if expectation.is_known {
            ChangeKind::Updated
        } else {
            ChangeKind::Created
        };
        let is_right = match finding.kind {
            FindingKind::Unknown => self.date(&expectation).await?,
            _ => false,
        };
        if is_right {
            measures.adoptions.push((
                finding.clone(),
                Adoption {
                    path: expectation.path.clone(),
                    length: finding.length.unwrap_or_default(),
                    hashes: finding.hashes,
                    set,
                    change: change_of(expectation, kind),
                },
            ));
        } else {
            measures.tasks.push((set, change_of(expectation, kind)));
        }
        Ok(())
    }

    /// Gives a file that has the right bytes the time that was told; `false`: that can't be done.
    async fn date(&self, expectation: &Expectation) -> Result<bool, EngineError> {
        let (mirror, path) = (Arc::clone(self.mirror), expectation.path.clone());
        let time = expectation.lastmod;
        blocking(move || {
            let opened = MirrorPath::parse(&path).and_then(|path| mirror.open_file(&path));
            match (opened, time) {
                (Ok(file), Some(time)) => file.set_modified(file_time(time)).is_ok(),
                (opened, None) => opened.is_ok(),
                (Err(_), _) => false,
            }
        })
        .await
    }

    fn remove(&self, measures: &mut Measures, finding: Finding) -> Result<(), EngineError> {
        let Some(path) = finding.path.as_deref() else {
            return Ok(());
        };
        let place = self.looked.audit_db.path_state(path)?;
        let uri = finding.uri.as_deref().map(ResourceUri::parse);
        match uri {
            Some(Ok(uri)) if place.live => {
                let deletion = Change::deletion(uri, paths_of, None);
                measures.tasks.push((None, deletion));
            }
            _ => measures
                .removals
                .push((finding.clone(), MirrorPath::parse(path)?)),
        }
        Ok(())
    }

    /// Removes files that the database knows nothing of.
    async fn remove_now(
        &self,
        removals: Vec<(Finding, MirrorPath)>,
    ) -> Result<Vec<Finding>, EngineError> {
        let mirror = Arc::clone(self.mirror);
        let removing = blocking(move || {
            let (findings, paths): (Vec<_>, Vec<_>) = removals.into_iter().unzip();
            let outcomes = mirror.remove(&paths);
            findings
                .into_iter()
                .zip(outcomes)
                .map(|(finding, outcome)| match outcome {
                    Ok(_) => mend(finding),
                    Err(error) => Finding {
                        code: Some(error.code().to_owned()),
                        message: Some(error.to_string()),
                        ..finding
                    },
                })
                .collect()
        });
        removing.await
    }

    /// Looks what became of the tasks.
    async fn end(&self, page: Vec<Finding>) -> Result<Vec<Finding>, EngineError> {
        let (store, source) = (&self.mending.context.store, self.mending.context.name());
        let (mut failed, mut done) = (Vec::new(), Vec::new());
        for finding in page {
            let had_task = match finding.kind {
                FindingKind::Missing | FindingKind::Altered => true,
                FindingKind::Extra => self.mending.delete_extra && finding.code.is_none(),
                FindingKind::Unreachable | FindingKind::Unknown => false,
            };
            let is_mended = finding.outcome == FindingOutcome::Repaired;
            let Some(uri) = finding.uri.as_deref().filter(|_| had_task && !is_mended) else {
                continue;
            };
            match store.task_error(source, uri).await? {
                Some((code, message)) => failed.push(Finding {
                    kind: match finding.kind {
                        FindingKind::Extra => FindingKind::Extra,
                        _ => FindingKind::Unreachable,
                    },
                    code: Some(code),
                    message: Some(message),
                    ..finding
                }),
                None => done.push(finding),
            }
        }
        failed.extend(self.seen_right(done).await?);
        Ok(failed)
    }

    /// Those of the findings whose files are now what the database says of them. Nothing is said to be mended that was not
    /// seen to be.
    async fn seen_right(&self, done: Vec<Finding>) -> Result<Vec<Finding>, EngineError> {
        let context = Arc::clone(&self.mending.context);
        let (state, progress) = (self.state.to_owned(), Arc::clone(self.progress));
        blocking(move || {
            let (name, root) = (context.name(), &context.source.mirror);
            let (Some(known), reader) = (KnownFiles::open(&state)?, MirrorReader::open(root)?)
            else {
                return Ok(Vec::new());
            };
            let mut mended = Vec::new();
            for finding in done {
                let known = known.of(name, finding.uri.as_deref(), None)?;
                let is_right = known.is_some_and(|known| {
                    let told = finding.path.as_deref().unwrap_or_default();
                    let path = known.path.as_deref().unwrap_or(told);
                    let seen = examine(&reader, path, &Facts::of(&known), &progress);
                    match finding.kind {
                        FindingKind::Extra => known.deleted && seen == Seen::Missing,
                        _ => !known.deleted && matches!(seen, Seen::Right { .. }),
                    }
                });
                mended.extend(is_right.then(|| mend(finding)));
            }
            Ok(mended)
        })
        .await?
    }
}

fn mend(finding: Finding) -> Finding {
    Finding {
        outcome: FindingOutcome::Repaired,
        ..finding
    }
}

fn change_of(expectation: Expectation, kind: ChangeKind) -> Change {
    Change {
        paths: paths_of,
        authority: expectation.uri.authority(),
        uri: expectation.uri,
        kind,
        changed_at: expectation.changed_at,
        lastmod: expectation.lastmod,
        length: expectation.length,
        media_type: expectation.media_type,
        hashes: expectation.hashes,
        links: Vec::new(),
        late: false,
    }
}
