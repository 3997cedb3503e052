//! Disk errors at every call that changes the disk, once or lasting; of a large batch at every seventh, and at all of them if
//! `RESYNCD_FAULTS` is `all`.

use rustix::io::Errno;

use super::*;

/// The results of a cycle that creates, updates and deletes; `None`: not reached.
#[derive(Debug, Default)]
struct Reports {
    published: Vec<(String, Result<(), MirrorError>)>,
    removed: Option<Result<bool, MirrorError>>,
}

impl Reports {
    fn errors(&self) -> impl Iterator<Item = &MirrorError> {
        let published = self
            .published
            .iter()
            .filter_map(|(_, result)| result.as_ref().err());
        let removed = self.removed.as_ref();
        published.chain(removed.and_then(|result| result.as_ref().err()))
    }

    /// Whether the new file of this path was reported as published.
    fn is_done(&self, at: &str) -> bool {
        self.published
            .iter()
            .any(|(path, result)| path == at && result.is_ok())
    }
}

impl World {
    /// A mirror with a file that is not changed, one to be updated, and one to be removed.
    fn with_files() -> Self {
        let world = Self::new();
        for at in ["h/a/unchanged", "h/a/changed", "h/old/gone"] {
            world.publish(at).unwrap();
        }
        world
    }

    fn stage(&self, bytes: &str, is_unnamed: bool) -> Result<CompletedFile, MirrorError> {
        let mut staged = if is_unnamed {
            self.mirror.stage_of_many()?
        } else {
            self.mirror.stage()?
        };
        if let Err(error) = staged.write(bytes.as_bytes()) {
            assert!(
                staged.finish(None).is_err(),
                "an incomplete file can't be finished"
            );
            return Err(error);
        }
        staged.finish(Some(SourceTime::from_micros(1)))
    }

    /// `more`: how many more files are created, each in a folder of its own.
    fn cycle(&self, more: usize, staging: Staging) -> Reports {
        let mut reports = Reports::default();
        let mut batch = Vec::new();
        for at in new_files(more) {
            match self.stage("new", staging == Staging::Unnamed) {
                Ok(file) => batch.push((at, file)),
                Err(error) => reports.published.push((at, Err(error))),
            }
        }
        if staging != Staging::Named {
            let (names, files): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let synced = self.mirror.sync(files, names.iter().map(String::as_str));
            batch = Vec::new();
            for (at, synced) in names.into_iter().zip(synced) {
                match synced {
                    Ok(file) => batch.push((at, file)),
                    Err(error) => reports.published.push((at, Err(error))),
                }
            }
        }
        let (names, files): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|(at, file)| (at.clone(), (file, path(&at))))
            .unzip();
        let answers = self.mirror.publish(files);
        for (at, answer) in names.into_iter().zip(answers) {
            reports
                .published
                .push((at, answer.map_err(|failed| failed.error)));
        }
        for (at, result) in &reports.published {
            self.check_synced(at, result.is_ok());
        }
        reports.removed = self.mirror.remove(&[path("h/old/gone")]).pop();
        self.check_synced("h/old/gone", matches!(reports.removed, Some(Ok(_))));
        reports
    }

    /// Checks that what was reported as done does not depend on an unsynced folder.
    fn check_synced(&self, at: &str, is_done: bool) {
        let unsynced = self.mirror.unsynced.lock();
        let mut folders = super::super::tree::ancestors(at);
        let depends_on = folders.find(|folder| unsynced.contains(folder));
        assert!(
            !is_done || depends_on.is_none(),
            "{at}: {depends_on:?} is not on disk"
        );
    }

    fn read(&self, at: &str) -> Option<String> {
        fs::read_to_string(self.at(at)).ok()
    }

    /// Checks that each file is complete, the old one or the new one, and that what was reported as done is done.
    fn check(&self, more: usize, reports: &Reports, context: &str) {
        assert_eq!(
            self.read("h/a/unchanged").as_deref(),
            Some("h/a/unchanged"),
            "{context}"
        );
        for at in &new_files(more) {
            let old = (at == CHANGED).then_some(CHANGED);
            let found = self.read(at);
            let found = found.as_deref();
            assert!(
                found == Some("new") || found == old,
                "{context}: {at} is {found:?}"
            );
            if reports.is_done(at) {
                assert_eq!(found, Some("new"), "{context}: {at}");
            }
        }
        let gone = self.read("h/old/gone");
        assert!(
            gone.is_none() || gone.as_deref() == Some("h/old/gone"),
            "{context}"
        );
        if matches!(reports.removed, Some(Ok(_))) {
            assert_eq!(gone, None, "{context}");
        }
        let mut known = new_files(more);
        known.extend(["h/a/unchanged", "h/old/gone"].map(str::to_owned));
        assert!(
            self.files().iter().all(|file| known.contains(file)),
            "{context}"
        );
    }
}

/// How files are staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Staging {
    Named,
    /// They are synced before they are published.
    SyncedEarly,
    /// The same, without names.
    Unnamed,
}

const CHANGED: &str = "h/a/changed";
/// How far apart the calls are that fail in a large batch.
const STRIDE: usize = 7;

/// The files that a cycle publishes.
fn new_files(more: usize) -> Vec<String> {
    let mut files = vec![CHANGED.to_owned(), "h/new/made/file".to_owned()];
    files.extend((0..more).map(|n| format!("h/more/{n}/file")));
    files
}

#[test]
fn after_any_disk_error_files_are_complete_and_the_next_try_succeeds() {
    let every = std::env::var("RESYNCD_FAULTS").is_ok_and(|faults| faults == "all");
    use Staging::{Named, SyncedEarly, Unnamed};
    for (errno, code, more, replaces, staging) in [
        (Errno::NOSPC, "disk-full", 0, true, Named),
        (Errno::DQUOT, "disk-full", 0, true, SyncedEarly),
        (Errno::IO, "io", 0, true, Named),
        (Errno::IO, "io", 0, true, SyncedEarly),
        (Errno::IO, "io", 0, true, Unnamed),
        (Errno::IO, "io", 0, false, Named),
        (Errno::ROFS, "read-only", 0, true, Named),
        (Errno::NOSPC, "disk-full", 0, true, Unnamed),
        // They are synced with the file system, and so are their folders.
        (Errno::IO, "io", SYNC_TOGETHER, true, Named),
        (Errno::IO, "io", SYNC_TOGETHER, true, SyncedEarly),
        (Errno::IO, "io", SYNC_TOGETHER, true, Unnamed),
    ] {
        let stride = if more == 0 || every { 1 } else { STRIDE };
        for lasting in [false, true] {
            let mut after = 0;
            loop {
                let context = format!(
                    "{errno:?} at call {after}, lasting: {lasting}, {more} more, {replaces}, {staging:?}"
                );
                let mut world = World::with_files();
                world.let_sync_replace_fsync(replaces);
                FaultPlan {
                    of: &[],
                    after,
                    errno,
                    lasting,
                    injected: 0,
                }
                .begin();
                let reports = world.cycle(more, staging);
                let injected = FaultPlan::end();
                for error in reports.errors() {
                    assert!(
                        error.class() == ErrorClass::Fatal && error.code() == code,
                        "{context}: {error:?}"
                    );
                }
                world.check(more, &reports, &context);
                let again = world.cycle(more, staging);
                assert_eq!(again.errors().count(), 0, "{context}: {again:?}");
                world.check(more, &again, &context);
                let mut expected = new_files(more);
                expected.push("h/a/unchanged".to_owned());
                expected.sort();
                assert_eq!(world.files(), expected);
                assert!(world.mirror.unsynced.lock().is_empty(), "{context}");
                let World { mirror, base } = world;
                let root = mirror.root().to_owned();
                drop(mirror);
                let world = World {
                    mirror: open_faulty(&root).unwrap(),
                    base,
                };
                assert_eq!(world.staged_files(), 0, "{context}");
                if injected == 0 {
                    break;
                }
                after += stride;
            }
            assert!(after > 15, "{after} calls change the disk");
        }
    }
}

#[test]
fn mirror_that_fails_to_open_can_be_opened_later() {
    for errno in [Errno::NOSPC, Errno::IO, Errno::ROFS] {
        for after in 0.. {
            let base = tempfile::tempdir().unwrap();
            let root = base.path().join("mirror");
            fs::create_dir_all(root.join(".resyncd/work")).unwrap();
            fs::write(root.join(".resyncd/work/1"), "half").unwrap();
            fs::write(root.join(".resyncd/lock"), "in use\n").unwrap();
            FaultPlan {
                of: &[],
                after,
                errno,
                lasting: true,
                injected: 0,
            }
            .begin();
            let opened = open_faulty(&root);
            let injected = FaultPlan::end();
            assert_eq!(opened.is_err(), injected > 0, "{errno:?} at call {after}");
            if let Err(error) = &opened {
                assert_eq!(error.class(), ErrorClass::Fatal, "{error:?}");
            }
            drop(opened);
            let mirror = open_faulty(&root);
            assert_eq!(mirror.err(), None, "{errno:?} at call {after}");
            assert_eq!(fs::read_dir(root.join(".resyncd/work")).unwrap().count(), 0);
            if injected == 0 {
                break;
            }
        }
    }
}

/// The number of calls in an opening that change the disk.
fn calls_to_open(root: &Path) -> usize {
    let opens = |after| {
        let planned = FaultPlan {
            of: &[],
            after,
            errno: Errno::IO,
            lasting: false,
            injected: 0,
        };
        planned.begin();
        let opened = open_faulty(root);
        // The drop must succeed, or the mirror would seem to belong to a killed process.
        let injected = FaultPlan::end();
        (opened.is_ok(), injected)
    };
    (0..).find(|&after| opens(after) == (true, 0)).unwrap()
}

#[test]
fn folders_of_a_killed_process_are_synced() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("mirror");
    drop(open_faulty(&root).unwrap());
    let clean = calls_to_open(&root);
    drop(open_faulty(&root).unwrap());
    fs::write(root.join(".resyncd/lock"), "in use\n").unwrap();
    let unclean = calls_to_open(&root);
    assert_eq!(unclean, clean + 1, "the file system is synced");
}

#[test]
fn file_whose_sync_failed_is_removed() {
    for (length, replaces, is_synced_when_complete) in [
        (3, true, false),
        (SYNC_ALONE - 1, true, false),
        (SYNC_ALONE, true, true),
        (3, false, true),
    ] {
        let mut world = World::with_files();
        world.let_sync_replace_fsync(replaces);
        let mut staged = world.mirror.stage().unwrap();
        let bytes = vec![b'.'; usize::try_from(length).unwrap()];
        staged.write(&bytes).unwrap();
        fail(&[], false);
        let finished = staged.finish(None);
        let code = match finished {
            Ok(file) => {
                assert!(!is_synced_when_complete, "{length} {replaces}");
                let answers = world.mirror.publish(vec![(file, path("h/new"))]);
                codes(&answers)[0]
            }
            Err(error) => {
                assert!(is_synced_when_complete, "{length} {replaces}");
                error.code()
            }
        };
        assert_eq!((FaultPlan::end(), code), (1, "io"), "{length} {replaces}");
        assert!(!world.at("h/new").exists());
        assert_eq!(world.staged_files(), 0, "a failed sync must not be retried");
    }
}
