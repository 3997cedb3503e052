//! Repairs what was found: resources without the right bytes are fetched, always; a file with only another time gets the stated
//! one; a right file without a record gets one; extra files are removed if that was requested.

use std::collections::HashMap;
use std::sync::Arc;

use resourcesync::ChangeKind;
use resyncd_core::ResourceUri;
use resyncd_mirror::{Mirror, MirrorError, MirrorPath, MirrorReader, file_time};

use super::context::{AuditContext, Repair, blocking};
use super::files::{ExpectedFile, FileState, examine};
use super::run::MirrorComparison;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::apply::temporary_executor::{Awaited, drain};
use crate::engine::progress::Progress;
use crate::store::{
    Adoption, Change, Expectation, Finding, FindingKind, FindingOutcome, KnownFiles, SetId,
    StatePlace, VersionRule,
};

/// How many findings are worked on at once.
const PAGE: usize = 256;

/// Begins to repair what was found: at once where no bytes are needed, else by tasks. No executor may work yet: what it publishes
/// meanwhile is not what was compared, and a file that was extra then has a record.
pub(super) async fn begin<'a>(
    context: &'a AuditContext,
    repair: &'a Repair,
    comparison: &'a MirrorComparison,
    mirror: &'a Arc<Mirror>,
) -> Result<RepairJob<'a>, EngineError> {
    let store = &repair.context.store;
    let mut sets = HashMap::new();
    for read in &comparison.reading.sets {
        let set = store.begin_set(&read.source, &read.capability_list).await?;
        if set.offers.is_empty() {
            store.save_offers(set.id, &read.offers, None).await?;
        }
        sets.insert(read.id, set.id);
    }
    let job = RepairJob {
        repair,
        comparison,
        mirror,
        sets,
        state: context.config.state(),
        progress: &context.progress,
    };
    job.each_page(RepairStep::Begin).await?;
    Ok(job)
}

/// The repair of one Source.
pub(super) struct RepairJob<'a> {
    repair: &'a Repair,
    comparison: &'a MirrorComparison,
    mirror: &'a Arc<Mirror>,
    /// Those of the state database, by those that were read.
    sets: HashMap<SetId, SetId>,
    state: StatePlace,
    progress: &'a Arc<Progress>,
}

#[derive(Clone, Copy)]
enum RepairStep {
    /// Repairs without tasks are made, tasks are planned for the others.
    Begin,
    /// The tasks are executed or given up.
    End,
}

/// The repairs of a page of findings.
#[derive(Default)]
struct Measures {
    tasks: Vec<(Option<SetId>, Change)>,
    adoptions: Vec<(Finding, Adoption)>,
    removals: Vec<(Finding, MirrorPath)>,
}

impl RepairJob<'_> {
    /// Waits for the tasks, which an executor must be executing now, and checks their results.
    pub(super) async fn complete(&self) -> Result<(), EngineError> {
        drain(&self.repair.context, Awaited::TasksAndVersions).await;
        self.each_page(RepairStep::End).await
    }

    async fn each_page(&self, step: RepairStep) -> Result<(), EngineError> {
        let audit_db = &self.comparison.audit_db;
        let mut after = 0;
        while let Some(page) = audit_db.next_findings(&mut after, PAGE)? {
            let changed = match step {
                RepairStep::Begin => self.begin(page).await?,
                RepairStep::End => self.end(page).await?,
            };
            audit_db.change_findings(&changed)?;
        }
        Ok(())
    }

    /// The set of a finding; `None`: only the database has it.
    fn set(&self, read: Option<SetId>) -> Option<SetId> {
        self.sets.get(&read?).copied()
    }

    async fn begin(&self, page: Vec<Finding>) -> Result<Vec<Finding>, EngineError> {
        let mut measures = Measures::default();
        for finding in page {
            match finding.kind {
                FindingKind::Extra if self.repair.options.delete_extra => {
                    self.remove(&mut measures, finding)?;
                }
                FindingKind::Missing | FindingKind::Altered | FindingKind::Unknown => {
                    self.restore(&mut measures, finding).await?;
                }
                FindingKind::Extra | FindingKind::Unreachable | FindingKind::Pending => {}
            }
        }
        let now = clock::now().wall;
        let (store, source) = (&self.repair.context.store, self.repair.context.name());
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
                .map(repaired),
        );
        store.repair(source, now, measures.tasks).await?;
        Ok(mended)
    }

    /// Plans the repair of a resource.
    async fn restore(&self, measures: &mut Measures, finding: Finding) -> Result<(), EngineError> {
        let Some(id) = finding.expected else {
            return Ok(());
        };
        let set = self.set(finding.set);
        let expectation = self.comparison.audit_db.expectation(id)?;
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

    /// Sets the stated time of a file that has the right bytes, and syncs it, because somebody may have copied it there a moment ago;
    /// `false`: that failed.
    async fn date(&self, expectation: &Expectation) -> Result<bool, EngineError> {
        let (mirror, path) = (Arc::clone(self.mirror), expectation.path.clone());
        let time = expectation.lastmod;
        blocking(move || {
            let Ok(path) = MirrorPath::parse(&path) else {
                return false;
            };
            let Ok(file) = mirror.open_file(&path) else {
                return false;
            };
            let set_time = |time| match file.metadata() {
                // A file that nothing changes is quickly synced.
                Ok(found) if found.modified == time => Ok(()),
                _ => file.set_modified(time),
            };
            let is_dated = time
                .map(file_time)
                .is_none_or(|time| set_time(time).is_ok());
            is_dated && file.sync().is_ok() && mirror.sync_entry(&path).is_ok()
        })
        .await
    }

    fn remove(&self, measures: &mut Measures, finding: Finding) -> Result<(), EngineError> {
        let Some(path) = finding.path.as_deref() else {
            return Ok(());
        };
        let place = self.comparison.audit_db.path_state(path)?;
        let uri = finding.uri.as_deref().map(ResourceUri::parse);
        match uri {
            Some(Ok(uri)) if place.live => {
                let deletion = Change::deletion(uri, None);
                measures.tasks.push((None, deletion));
            }
            _ => measures.removals.push((
                finding.clone(),
                MirrorPath::parse(path).map_err(MirrorError::from)?,
            )),
        }
        Ok(())
    }

    /// Removes files without a record.
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
                    Ok(_) => repaired(finding),
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

    /// Checks the results of the tasks.
    async fn end(&self, page: Vec<Finding>) -> Result<Vec<Finding>, EngineError> {
        let (store, source) = (&self.repair.context.store, self.repair.context.name());
        let (mut failed, mut done) = (Vec::new(), Vec::new());
        for finding in page {
            let had_task = match finding.kind {
                FindingKind::Missing | FindingKind::Altered => true,
                FindingKind::Extra => self.repair.options.delete_extra && finding.code.is_none(),
                FindingKind::Unreachable | FindingKind::Unknown | FindingKind::Pending => false,
            };
            let is_mended = finding.outcome == FindingOutcome::Repaired;
            let uri = finding.uri.as_deref().filter(|_| had_task && !is_mended);
            let Some(uri) = uri.and_then(|uri| ResourceUri::parse(uri).ok()) else {
                continue;
            };
            match store.task_error(source, &uri).await? {
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
        failed.extend(self.repaired_of(done).await?);
        Ok(failed)
    }

    /// Those of the findings whose files are now as their records state. Nothing is reported as repaired that was not compared.
    async fn repaired_of(&self, done: Vec<Finding>) -> Result<Vec<Finding>, EngineError> {
        let context = Arc::clone(&self.repair.context);
        let (state, progress) = (self.state.clone(), Arc::clone(self.progress));
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
                    let stated = finding.path.as_deref().unwrap_or_default();
                    let path = known.path.as_deref().unwrap_or(stated);
                    let seen = examine(&reader, path, &ExpectedFile::of(&known), &progress);
                    match finding.kind {
                        FindingKind::Extra => known.deleted && seen == FileState::Missing,
                        _ => !known.deleted && matches!(seen, FileState::Right { .. }),
                    }
                });
                mended.extend(is_right.then(|| repaired(finding)));
            }
            Ok(mended)
        })
        .await?
    }
}

fn repaired(finding: Finding) -> Finding {
    Finding {
        outcome: FindingOutcome::Repaired,
        ..finding
    }
}

fn change_of(expectation: Expectation, kind: ChangeKind) -> Change {
    Change {
        authority: expectation.uri.authority(),
        uri: expectation.uri,
        kind,
        changed_at: expectation.changed_at,
        lastmod: expectation.lastmod,
        content: expectation.content,
        links: expectation.links,
        overtaken: false,
        frequency: None,
        encoding: None,
        unconfirmed: false,
        standing: None,
        has_cut_links: false,
        linked: Vec::new(),
        version: VersionRule::Ignored,
    }
}
