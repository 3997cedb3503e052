//! A disk that refuses: at every call that changes it, once or from then on.

use rustix::io::Errno;

use super::super::refusals::Refusals;
use super::*;

/// What a cycle that creates, updates and deletes reports; `None`: it did not come so far.
#[derive(Debug, Default)]
struct Reports {
    published: Vec<(&'static str, Result<(), MirrorError>)>,
    removed: Option<Result<bool, MirrorError>>,
}

impl Reports {
    fn errors(&self) -> impl Iterator<Item = &MirrorError> {
        let published = self
            .published
            .iter()
            .filter_map(|(_, told)| told.as_ref().err());
        published.chain(self.removed.as_ref().and_then(|told| told.as_ref().err()))
    }

    /// Whether it was reported that this path has its new file.
    fn is_done(&self, at: &str) -> bool {
        self.published
            .iter()
            .any(|(path, told)| *path == at && told.is_ok())
    }
}

impl World {
    /// A mirror that has a file that stays, one to be updated, and one to be removed.
    fn with_files() -> Self {
        let world = Self::new();
        for at in ["h/a/kept", "h/a/changed", "h/old/gone"] {
            world.publish(at).unwrap();
        }
        world
    }

    fn stage(&self, bytes: &str) -> Result<CompletedFile, MirrorError> {
        let mut staged = self.mirror.stage()?;
        if let Err(error) = staged.write(bytes.as_bytes()) {
            assert!(staged.finish(None).is_err(), "half a file is never whole");
            return Err(error);
        }
        staged.finish(Some(SourceTime::from_micros(1)))
    }

    fn cycle(&self) -> Reports {
        let mut reports = Reports::default();
        let mut batch = Vec::new();
        for at in ["h/a/changed", "h/new/made/file"] {
            match self.stage("new") {
                Ok(whole) => batch.push((at, whole)),
                Err(error) => reports.published.push((at, Err(error))),
            }
        }
        let (names, files): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|(at, whole)| (at, (whole, path(at))))
            .unzip();
        let answers = self.mirror.publish(files);
        for (at, answer) in names.into_iter().zip(answers) {
            reports
                .published
                .push((at, answer.map_err(|unpublished| unpublished.error)));
        }
        for (at, told) in &reports.published {
            self.check_synced(at, told.is_ok());
        }
        reports.removed = self.mirror.remove(&[path("h/old/gone")]).pop();
        self.check_synced("h/old/gone", matches!(reports.removed, Some(Ok(_))));
        reports
    }

    /// What was just reported as done relies on no folder that may not be on disk.
    fn check_synced(&self, at: &str, is_done: bool) {
        let unsynced = self.mirror.unsynced.lock().unwrap();
        let mut folders = super::super::beneath::upwards(at);
        let relies_on = folders.find(|folder| unsynced.contains(*folder));
        assert!(
            !is_done || relies_on.is_none(),
            "{at}: {relies_on:?} is not on disk"
        );
    }

    fn read(&self, at: &str) -> Option<String> {
        fs::read_to_string(self.at(at)).ok()
    }

    /// Each file is whole, and the old one or the new one; what was reported as done is done, and for good.
    fn check(&self, reports: &Reports, context: &str) {
        assert_eq!(
            self.read("h/a/kept").as_deref(),
            Some("h/a/kept"),
            "{context}"
        );
        for (at, old) in [
            ("h/a/changed", Some("h/a/changed")),
            ("h/new/made/file", None),
        ] {
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
        let known = ["h/a/changed", "h/a/kept", "h/new/made/file", "h/old/gone"];
        assert!(
            self.files()
                .iter()
                .all(|file| known.contains(&file.as_str())),
            "{context}"
        );
    }
}

#[test]
fn whatever_is_refused_files_stay_whole_and_the_next_try_succeeds() {
    for (errno, code) in [
        (Errno::NOSPC, "disk-full"),
        (Errno::DQUOT, "disk-full"),
        (Errno::IO, "io"),
        (Errno::ROFS, "read-only"),
    ] {
        for lasting in [false, true] {
            let mut after = 0;
            loop {
                let context = format!("{errno:?} at call {after}, lasting: {lasting}");
                let world = World::with_files();
                Refusals {
                    after,
                    errno,
                    lasting,
                    met: 0,
                }
                .begin();
                let reports = world.cycle();
                let met = Refusals::end();
                for error in reports.errors() {
                    assert!(
                        error.is_transient() && error.code() == code,
                        "{context}: {error:?}"
                    );
                }
                world.check(&reports, &context);
                let again = world.cycle();
                assert_eq!(again.errors().count(), 0, "{context}: {again:?}");
                world.check(&again, &context);
                assert_eq!(
                    world.files(),
                    ["h/a/changed", "h/a/kept", "h/new/made/file"]
                );
                assert!(
                    world.mirror.unsynced.lock().unwrap().is_empty(),
                    "{context}"
                );
                let World { mirror, base } = world;
                let root = mirror.root().to_owned();
                drop(mirror);
                let world = World {
                    mirror: Mirror::open(&root).unwrap(),
                    base,
                };
                assert_eq!(world.working_files(), 0, "{context}");
                if met == 0 {
                    break;
                }
                after += 1;
            }
            assert!(after > 15, "{after} calls change the disk");
        }
    }
}

#[test]
fn mirror_that_can_t_be_opened_is_opened_later() {
    for errno in [Errno::NOSPC, Errno::IO, Errno::ROFS] {
        for after in 0.. {
            let base = tempfile::tempdir().unwrap();
            let root = base.path().join("mirror");
            fs::create_dir_all(root.join(".resyncd/work")).unwrap();
            fs::write(root.join(".resyncd/work/1"), "half").unwrap();
            fs::write(root.join(".resyncd/lock"), "in use\n").unwrap();
            Refusals {
                after,
                errno,
                lasting: true,
                met: 0,
            }
            .begin();
            let opened = Mirror::open(&root);
            let met = Refusals::end();
            assert_eq!(opened.is_err(), met > 0, "{errno:?} at call {after}");
            if let Err(error) = &opened {
                assert!(error.is_transient(), "{error:?}");
            }
            drop(opened);
            let mirror = Mirror::open(&root);
            assert_eq!(mirror.err(), None, "{errno:?} at call {after}");
            assert_eq!(fs::read_dir(root.join(".resyncd/work")).unwrap().count(), 0);
            if met == 0 {
                break;
            }
        }
    }
}

/// How many calls of an opening change the disk.
fn calls_to_open(root: &Path) -> usize {
    let opens = |after| {
        let planned = Refusals {
            after,
            errno: Errno::IO,
            lasting: false,
            met: 0,
        };
        planned.begin();
        let opened = Mirror::open(root);
        // Nothing of it is to look like a process that was killed.
        let met = Refusals::end();
        (opened.is_ok(), met)
    };
    (0..).find(|&after| opens(after) == (true, 0)).unwrap()
}

#[test]
fn folders_of_a_process_that_was_killed_are_synced_before_they_are_relied_on() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("mirror");
    drop(Mirror::open(&root).unwrap());
    let clean = calls_to_open(&root);
    drop(Mirror::open(&root).unwrap());
    fs::write(root.join(".resyncd/lock"), "in use\n").unwrap();
    let unclean = calls_to_open(&root);
    assert_eq!(unclean, clean + 1, "the file system is synced");
}

#[test]
fn file_whose_sync_failed_never_gets_its_place() {
    let world = World::with_files();
    let mut staged = world.mirror.stage().unwrap();
    staged.write(b"new").unwrap();
    Refusals {
        after: 0,
        errno: Errno::IO,
        lasting: false,
        met: 0,
    }
    .begin();
    let finished = staged.finish(None);
    assert_eq!(Refusals::end(), 1);
    assert_eq!(finished.unwrap_err().code(), "io");
    assert_eq!(
        world.working_files(),
        0,
        "what may be lost is not kept to be synced once more"
    );
}
