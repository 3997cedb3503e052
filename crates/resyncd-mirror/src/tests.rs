//! The mirror on a real file system.

mod disk_faults;
pub(crate) mod planned_faults;

use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::Ordering;

use planned_faults::{FaultPlan, before_call, fail_syncs_of, open_faulty, record_calls};
use proptest::prelude::*;
use resourcesync::SourceTime;
use resyncd_core::ErrorClass;
use tempfile::TempDir;

use super::DiskCall as Call;
use super::file_system::SYNC_TOGETHER;
use super::staged::{OpenFiles, SYNC_ALONE};
use super::*;

/// A mirror in a temporary folder, and a folder outside of it.
struct World {
    mirror: Mirror,
    base: TempDir,
}

fn completed(staged: Result<Staged, MirrorError>, bytes: &str) -> CompletedFile {
    let mut staged = staged.unwrap();
    staged.write(bytes.as_bytes()).unwrap();
    staged.finish(None).unwrap()
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("outside")).unwrap();
        let mirror = open_faulty(&base.path().join("mirror")).unwrap();
        let mut world = Self { mirror, base };
        // Whatever file system the tests run on.
        world.let_sync_replace_fsync(true);
        world.let_files_be_unnamed();
        world.let_shutdown_be_hidden(false);
        // Other tests run in this process.
        world.limit_open_files(1000);
        world
    }

    /// Both ways to look up a path.
    fn of_each_look_up() -> [Self; 2] {
        let (world, walking) = (Self::new(), Self::new());
        walking.mirror.tree.walks.store(true, Ordering::Relaxed);
        [world, walking]
    }

    fn limit_open_files(&mut self, limit: usize) {
        let staging = Arc::get_mut(&mut self.mirror.staging).unwrap();
        staging.open_files = Arc::new(OpenFiles::new(limit));
    }

    fn let_sync_replace_fsync(&mut self, replaces: bool) {
        let staging = Arc::get_mut(&mut self.mirror.staging).unwrap();
        staging.file_system.replaces_fsync = replaces;
    }

    /// Where the file system can.
    fn let_files_be_unnamed(&mut self) {
        let staging = Arc::get_mut(&mut self.mirror.staging).unwrap();
        staging.links_unnamed = super::unnamed::links_unnamed(&staging.folder);
        assert!(staging.links_unnamed, "ext4, XFS, Btrfs and tmpfs can");
    }

    fn let_shutdown_be_hidden(&mut self, is_hidden: bool) {
        let staging = Arc::get_mut(&mut self.mirror.staging).unwrap();
        staging.file_system.hides_shutdown = is_hidden;
    }

    /// So many files for folders of their own, or for one.
    fn batch(&self, number: usize, is_wide: bool) -> Vec<(CompletedFile, MirrorPath)> {
        let files = (0..number).map(|n| {
            let folder = if is_wide { n } else { 0 };
            let at = format!("h/{folder}/{n}");
            (self.completed(&at), path(&at))
        });
        files.collect()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.base.path().join("mirror").join(path)
    }

    fn outside(&self) -> PathBuf {
        self.base.path().join("outside")
    }

    fn completed(&self, bytes: &str) -> CompletedFile {
        completed(self.mirror.stage(), bytes)
    }

    fn unnamed(&self, bytes: &str) -> CompletedFile {
        completed(self.mirror.stage_of_many(), bytes)
    }

    fn publish(&self, at: &str) -> Result<(), PublishError> {
        let batch = vec![(self.completed(at), path(at))];
        self.mirror.publish(batch).pop().unwrap()
    }

    fn remove(&self, at: &str) -> Result<bool, &'static str> {
        let result = self.mirror.remove(&[path(at)]).pop().unwrap();
        result.map_err(|error| error.code())
    }

    fn staged_files(&self) -> usize {
        fs::read_dir(self.at(".resyncd/work")).unwrap().count()
    }

    fn files(&self) -> Vec<String> {
        let files = self.mirror.files().map(|path| path.unwrap().to_string());
        let mut files: Vec<String> = files.collect();
        files.sort();
        files
    }
}

fn path(text: &str) -> MirrorPath {
    MirrorPath::parse(text).unwrap()
}

fn codes(results: &[Result<(), PublishError>]) -> Vec<&'static str> {
    let code = |result: &Result<(), PublishError>| match result {
        Ok(()) => "ok",
        Err(failed) => failed.error.code(),
    };
    results.iter().map(code).collect()
}

#[test]
fn published_file_has_its_bytes_and_its_time() {
    let world = World::new();
    let mut staged = world.mirror.stage().unwrap();
    staged.write(b"one ").unwrap();
    staged.write(b"two").unwrap();
    let time = SourceTime::from_micros(1_357_000_000_250_000);
    let file = staged.finish(Some(time)).unwrap();
    assert!(!world.at("h").exists());
    let answers = world.mirror.publish(vec![(file, path("h/a/b.txt"))]);
    assert_eq!(codes(&answers), ["ok"]);

    let mut bytes = String::new();
    let mut file = world.mirror.open_file(&path("h/a/b.txt")).unwrap();
    file.read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "one two");
    let metadata = file.into_disk().unwrap().metadata().unwrap();
    assert_eq!(
        (metadata.mtime(), metadata.mtime_nsec()),
        (1_357_000_000, 250_000_000)
    );
    assert_eq!(metadata.mode() & 0o600, 0o600);
    assert_eq!(world.staged_files(), 0);
}

#[test]
fn times_that_file_systems_can_not_store_are_clamped() {
    let world = World::new();
    for (micros, seconds) in [
        (i64::MIN, Some(-2_147_483_648)),
        (-1_500_000, Some(-2)),
        (0, Some(0)),
        // The range of the file system may be smaller.
        (i64::MAX, None),
    ] {
        let staged = world.mirror.stage().unwrap();
        let file = staged
            .finish(Some(SourceTime::from_micros(micros)))
            .unwrap();
        let answers = world.mirror.publish(vec![(file, path("h/a"))]);
        assert_eq!(codes(&answers), ["ok"]);
        if let Some(seconds) = seconds {
            assert_eq!(fs::metadata(world.at("h/a")).unwrap().mtime(), seconds);
        }
    }
}

#[test]
fn new_version_replaces_the_old_one_and_open_readers_see_the_old_one() {
    let world = World::new();
    let batch = vec![(world.completed("old"), path("h/a"))];
    assert_eq!(codes(&world.mirror.publish(batch)), ["ok"]);
    let mut reader = world.mirror.open_file(&path("h/a")).unwrap();
    let batch = vec![
        (world.completed("newer"), path("h/a")),
        (world.completed("newest"), path("h/a")),
    ];
    assert_eq!(codes(&world.mirror.publish(batch)), ["ok", "ok"]);
    let mut bytes = String::new();
    reader.read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "old");
    assert_eq!(fs::read_to_string(world.at("h/a")).unwrap(), "newest");
}

#[test]
fn staged_files_are_removed_when_dropped() {
    let world = World::new();
    let mut staged = world.mirror.stage().unwrap();
    staged.write(b"half").unwrap();
    let completed = world.completed("complete");
    assert_eq!(world.staged_files(), 2);
    drop(staged);
    drop(completed);
    assert_eq!(world.staged_files(), 0);
}

#[test]
fn staged_files_of_a_crash_are_swept_and_published_files_are_not() {
    let world = World::new();
    world.publish("h/a").unwrap();
    let root = world.mirror.root().to_owned();
    let World { mirror, base } = world;
    drop(mirror);
    assert_eq!(fs::read(root.join(".resyncd/lock")).unwrap(), b"");
    fs::write(root.join(".resyncd/work/7"), "half").unwrap();
    fs::write(root.join(".resyncd/lock"), "in use\n").unwrap();
    fs::create_dir(root.join(".resyncd/work/1")).unwrap();

    let mirror = Mirror::open(&root).unwrap();
    let world = World { mirror, base };
    assert_eq!(world.staged_files(), 1);
    assert!(!world.at(".resyncd/work/7").exists());
    assert_eq!(world.files(), ["h/a"]);
    world.publish("h/b").unwrap();
}

#[test]
fn folder_that_is_not_the_open_one_is_not_the_place_of_the_mirror() {
    let world = World::new();
    let (root, elsewhere) = (world.at(""), world.base.path().join("elsewhere"));
    let code = || world.mirror.check_place().err().map(|error| error.code());
    assert_eq!(code(), None);
    fs::rename(&root, &elsewhere).unwrap();
    assert_eq!(code(), Some("mirror-missing"));
    fs::write(world.base.path().join("mirror"), "a file").unwrap();
    assert_eq!(code(), Some("mirror-missing"));
    fs::remove_file(world.base.path().join("mirror")).unwrap();
    fs::create_dir(&root).unwrap();
    assert_eq!(code(), Some("mirror-missing"));
    fs::remove_dir(&root).unwrap();
    // It is configured, so that it may be a symlink.
    symlink(&elsewhere, world.base.path().join("mirror")).unwrap();
    assert_eq!(code(), None);
    // A parent that is a file.
    let base = world.base.path().with_extension("moved");
    fs::rename(world.base.path(), &base).unwrap();
    fs::write(world.base.path(), "a file").unwrap();
    assert_eq!(code(), Some("mirror-missing"));
    fs::remove_file(world.base.path()).unwrap();
    fs::rename(&base, world.base.path()).unwrap();
    assert_eq!(code(), None);
}

#[test]
fn mirror_is_locked_until_the_last_staged_file_is_dropped() {
    let world = World::new();
    let root = world.mirror.root().to_owned();
    let code = || Mirror::open(&root).err().map(|error| error.code());
    assert_eq!(code(), Some("mirror-locked"));
    let staged = world.mirror.stage().unwrap();
    drop(world.mirror);
    assert_eq!(code(), Some("mirror-locked"));
    drop(staged);
    assert_eq!(code(), None);
}

#[test]
fn reader_needs_no_lock() {
    let world = World::new();
    world.publish("h/a/b").unwrap();
    fs::write(world.at("beside-the-hosts"), "").unwrap();
    symlink(world.outside(), world.at("h/link")).unwrap();
    let reader = MirrorReader::open(world.mirror.root()).unwrap();
    let files: Vec<_> = reader.files().collect();
    assert_eq!(files, [Ok(path("h/a/b"))]);
    assert!(reader.open_file(&path("h/a/b")).is_ok());
    let missing = reader.open_file(&path("h/c")).unwrap_err();
    assert_eq!(missing.code(), "missing-file");
}

#[test]
fn blocked_file_is_returned_and_can_be_published_elsewhere() {
    for world in World::of_each_look_up() {
        world.publish("h/file").unwrap();
        world.publish("h/folder/a").unwrap();
        for at in ["h/file/a", "h/file/a/b", "h/folder"] {
            let PublishError { error, file } = world.publish(at).unwrap_err();
            assert_eq!(error.code(), "path-blocked", "{at}");
            assert_eq!(error.class(), ErrorClass::Unusable);
            let made = path(&format!("h/%made/{}", at.len()));
            let answers = world.mirror.publish(vec![(file.unwrap(), made.clone())]);
            assert_eq!(codes(&answers), ["ok"]);
            assert_eq!(fs::read_to_string(world.at(made.as_str())).unwrap(), at);
        }
        assert_eq!(fs::read_to_string(world.at("h/file")).unwrap(), "h/file");
    }
}

#[test]
fn blocked_file_does_not_fail_the_batch() {
    let world = World::new();
    let at = ["g/z", "h/a/b", "h/a", "h/b/c", "g/y"];
    let batch = at.map(|at| (world.completed(at), path(at)));
    let answers = world.mirror.publish(batch.into());
    assert_eq!(codes(&answers), ["ok", "path-blocked", "ok", "ok", "ok"]);
    assert_eq!(world.files(), ["g/y", "g/z", "h/a", "h/b/c"]);
    assert!(world.mirror.unsynced.lock().is_empty());
}

#[test]
fn folder_in_which_an_unnamed_file_is_blocked_is_not_to_be_synced() {
    let world = World::new();
    fs::create_dir_all(world.at("g/blocked")).unwrap();
    fs::create_dir(world.at("h")).unwrap();
    symlink("nothing", world.at("h/symlink")).unwrap();
    let at = ["g/blocked", "h/symlink"];
    let batch = at.map(|at| (world.unnamed(at), path(at)));
    let answers = world.mirror.publish(batch.into());
    assert_eq!(codes(&answers), ["path-blocked"; 2]);
    assert!(world.mirror.unsynced.lock().is_empty());
    assert!(world.at("h/symlink").is_symlink());
}

#[test]
fn symlinks_are_neither_followed_nor_replaced() {
    for world in World::of_each_look_up() {
        let outside = world.outside();
        fs::write(outside.join("a"), "theirs").unwrap();
        fs::create_dir(world.at("h")).unwrap();
        symlink(&outside, world.at("g")).unwrap();
        symlink(&outside, world.at("h/folder")).unwrap();
        symlink(outside.join("a"), world.at("h/name")).unwrap();
        symlink(outside.join("nothing"), world.at("h/dangling")).unwrap();
        for at in ["g/a", "g/new/a", "h/folder/a", "h/name", "h/dangling"] {
            let error = world.publish(at).unwrap_err().error;
            assert_eq!(error.code(), "path-blocked", "publish {at}");
            assert_eq!(world.remove(at), Err("path-blocked"), "remove {at}");
            let error = world.mirror.open_file(&path(at)).unwrap_err();
            assert_eq!(error.code(), "path-blocked", "open {at}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "theirs");
        assert!(world.at("h/name").is_symlink() && world.at("g").is_symlink());
        assert_eq!(world.staged_files(), 0);
    }
}

#[test]
fn own_folder_that_is_a_symlink_is_rejected() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("mirror");
    fs::create_dir(&root).unwrap();
    symlink(base.path(), root.join(".resyncd")).unwrap();
    let code = Mirror::open(&root).err().map(|error| error.code());
    assert_eq!(code, Some("path-blocked"));
}

#[test]
fn fifo_at_a_path_is_an_error_and_does_not_block() {
    let world = World::new();
    fs::create_dir(world.at("h")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, world.at("h/a"), fifo, mode, 0).unwrap();
    let error = world.mirror.open_file(&path("h/a")).unwrap_err();
    assert_eq!(error.code(), "path-blocked");
    let error = world.publish("h/a").unwrap_err().error;
    assert_eq!(error.code(), "path-blocked");
}

#[test]
fn removing_prunes_empty_folders_up_to_the_host() {
    let world = World::new();
    for at in ["g/a/b/c", "h/a/b/c", "h/a/d"] {
        world.publish(at).unwrap();
    }
    let paths = ["g/a/b/c", "h/a/b/c", "h/x/y", "g/a/b/c"].map(path);
    let answers = world.mirror.remove(&paths);
    assert_eq!(answers, [Ok(true), Ok(true), Ok(false), Ok(false)]);
    assert!(!world.at("g").exists() && !world.at("h/a/b").exists());
    assert_eq!(world.files(), ["h/a/d"]);
    assert_eq!(world.remove("h/a/d"), Ok(true));
    assert_eq!(world.remove("h/a/d"), Ok(false));
    assert!(!world.at("h").exists() && world.at(".resyncd/lock").exists());
    assert!(world.mirror.unsynced.lock().is_empty());
}

#[test]
fn file_whose_path_has_another_use_counts_as_removed() {
    for world in World::of_each_look_up() {
        world.publish("h/a/b").unwrap();
        assert_eq!(world.remove("h/a"), Ok(false));
        assert_eq!(world.remove("h/a/b/c"), Ok(false));
        assert_eq!(world.remove("h/a/b/c/d"), Ok(false));
        assert_eq!(world.files(), ["h/a/b"]);
        assert!(world.mirror.unsynced.lock().is_empty());
    }
}

#[test]
fn failed_folder_sync_fails_every_file_below_it_and_no_other() {
    let world = World::new();
    let batch = |names: &[&str]| -> Vec<(CompletedFile, MirrorPath)> {
        let staged = names.iter().map(|at| (world.completed(at), path(at)));
        staged.collect()
    };
    fail_syncs_of(&["h/a"]);
    let answers = world
        .mirror
        .publish(batch(&["h/a/1", "h/b/1", "h/a/c/1", "h/a/2"]));
    assert_eq!(codes(&answers), ["io", "ok", "io", "io"]);
    for answer in answers {
        assert!(answer.is_ok() || answer.is_err_and(|error| error.file.is_none()));
    }

    // The entry of h/a/c in h/a may not be on disk, although no folder is created now.
    let answers = world.mirror.publish(batch(&["h/a/c/1", "h/b/2"]));
    assert_eq!(codes(&answers), ["io", "ok"]);
    fail_syncs_of(&[]);
    let answers = world.mirror.publish(batch(&["h/a/c/1"]));
    assert_eq!(codes(&answers), ["ok"]);
    assert!(world.mirror.unsynced.lock().is_empty());
}

#[test]
fn unsynced_removal_is_not_reported_by_the_next_call_either() {
    let world = World::new();
    world.publish("h/a/1").unwrap();
    world.publish("h/b").unwrap();
    fail_syncs_of(&["h"]);
    assert_eq!(world.remove("h/a/1"), Err("io"));
    assert_eq!(world.remove("h/a/1"), Err("io"));
    fail_syncs_of(&[]);
    assert_eq!(world.remove("h/a/1"), Ok(false));
    assert_eq!(world.files(), ["h/b"]);
}

#[test]
fn entry_of_a_file_is_synced_after_its_sync_has_failed() {
    let world = World::new();
    fail_syncs_of(&["h/a"]);
    assert!(world.publish("h/a/1").is_err());
    let file = path("h/a/1");
    assert!(world.mirror.sync_entry(&file).is_err());
    fail_syncs_of(&[]);
    assert_eq!(world.mirror.sync_entry(&file), Ok(()));
    assert!(world.mirror.unsynced.lock().is_empty());
}

fn count(calls: &[Call], of: Call) -> usize {
    calls.iter().filter(|call| **call == of).count()
}

/// How often the file system, and files or folders, are synced: before files are renamed, and after.
fn syncs_around_renames(calls: &[Call]) -> [(usize, usize); 2] {
    let is_rename = |call: &Call| *call == Call::Rename;
    let first = calls.iter().position(is_rename).unwrap();
    let last = calls.iter().rposition(is_rename).unwrap();
    [&calls[..first], &calls[last + 1..]].map(|calls| {
        let syncs = (count(calls, Call::Syncfs), count(calls, Call::Fsync));
        assert_eq!(syncs.0 + syncs.1, calls.len(), "{calls:?}");
        syncs
    })
}

#[test]
fn one_sync_of_the_file_system_replaces_those_of_many_files_and_folders() {
    let few = SYNC_TOGETHER - 1;
    // The folder of the staged files, and one of the others, is synced by itself, too.
    let together = (1, 1);
    for (replaces, number, is_wide, contents, folders) in [
        (true, 1, false, (0, 1), (0, 1)),
        (true, few, false, (0, few), (0, 1)),
        (true, few, true, (0, few), (0, few)),
        (true, SYNC_TOGETHER, false, together, (0, 1)),
        (true, SYNC_TOGETHER, true, together, together),
        (true, 40, true, together, together),
        (false, 40, true, (0, 0), (0, 40)),
    ] {
        let mut world = World::new();
        world.let_sync_replace_fsync(replaces);
        // The folders are there.
        let batch = world.batch(number, is_wide);
        assert!(world.mirror.publish(batch).iter().all(Result::is_ok));
        let mut batch = Vec::new();
        let staged = record_calls(|| batch = world.batch(number, is_wide));
        let at_completion = count(&staged, Call::Fsync);
        assert_eq!(at_completion, if replaces { 0 } else { number });
        let calls = record_calls(|| {
            assert!(world.mirror.publish(batch).iter().all(Result::is_ok));
        });
        let context = format!("{number} files, in folders of their own: {is_wide}");
        assert_eq!(
            syncs_around_renames(&calls),
            [contents, folders],
            "{context}"
        );
        assert_eq!(count(&calls, Call::Rename), number, "{context}");
        assert!(world.mirror.unsynced.lock().is_empty());
    }
}

/// Has calls fail: one, or all; of these kinds, or of any.
fn fail(of: &'static [Call], lasting: bool) {
    FaultPlan {
        of,
        after: 0,
        errno: rustix::io::Errno::IO,
        lasting,
        injected: 0,
    }
    .begin();
}

/// Has some call fail later, after so many of its kind.
fn fail_later(call: Call, after: usize, of: &'static [Call], lasting: bool) {
    before_call(call, after, move || fail(of, lasting));
}

#[test]
fn none_of_a_batch_is_published_if_the_sync_of_its_contents_fails() {
    let world = World::new();
    let batch = world.batch(SYNC_TOGETHER, false);
    fail(&[Call::Syncfs, Call::Fsync], true);
    let answers = world.mirror.publish(batch);
    assert_eq!(FaultPlan::end(), 1 + SYNC_TOGETHER);
    assert_eq!(codes(&answers), ["io"; SYNC_TOGETHER]);
    // A second sync would not report what was lost.
    let is_lost = |answer: Result<(), PublishError>| answer.is_err_and(|it| it.file.is_none());
    assert!(answers.into_iter().all(is_lost));
    assert!(world.files().is_empty() && !world.at("h").exists());
    assert_eq!(world.staged_files(), 0);
    let answers = world.mirror.publish(world.batch(SYNC_TOGETHER, false));
    assert_eq!(codes(&answers), ["ok"; SYNC_TOGETHER]);
}

#[test]
fn files_that_were_synced_before_are_published_without_another_sync() {
    let world = World::new();
    // The folder is there.
    assert_eq!(codes(&world.mirror.publish(world.batch(1, false))), ["ok"]);
    let (files, paths): (Vec<_>, Vec<_>) = world.batch(SYNC_TOGETHER, false).into_iter().unzip();
    let mut synced = Vec::new();
    let calls = record_calls(|| {
        synced = world
            .mirror
            .sync(files, paths.iter().map(MirrorPath::as_str))
    });
    let syncs = (count(&calls, Call::Syncfs), count(&calls, Call::Fsync));
    assert_eq!((syncs, calls.len()), ((1, 1), 2));
    let synced = synced.into_iter().map(|file| file.unwrap());
    let batch = synced.zip(paths).collect();
    let calls = record_calls(|| {
        assert_eq!(codes(&world.mirror.publish(batch)), ["ok"; SYNC_TOGETHER]);
    });
    assert_eq!(syncs_around_renames(&calls), [(0, 0), (0, 1)]);
}

#[test]
fn file_whose_early_sync_fails_is_removed_and_no_other() {
    let world = World::new();
    let files: Vec<_> = ["a", "b"].map(|bytes| world.completed(bytes)).into();
    fail_later(Call::Fsync, 1, &[Call::Fsync], false);
    let synced = world.mirror.sync(files, ["h/a", "h/b"]);
    assert_eq!(FaultPlan::end(), 1);
    let failed = synced.iter().map(|file| file.as_ref().err());
    let failed: Vec<_> = failed.map(|error| error.map(ToString::to_string)).collect();
    assert!(
        matches!(&failed[..], [None, Some(error)] if error.contains("h/b")),
        "{failed:?}"
    );
    assert_eq!(world.staged_files(), 1);
}

/// A file of another program, on a sector that can't be written, may fail every sync of the file system.
#[test]
fn error_of_a_foreign_file_fails_none_of_a_batch() {
    const FILES: usize = 40;
    let world = World::new();
    assert_eq!(
        codes(&world.mirror.publish(world.batch(FILES, true))),
        ["ok"; FILES]
    );
    for _ in 0..2 {
        let batch = world.batch(FILES, true);
        fail(&[Call::Syncfs], true);
        let calls = record_calls(|| {
            assert_eq!(codes(&world.mirror.publish(batch)), ["ok"; FILES]);
        });
        assert_eq!(FaultPlan::end(), 2);
        assert_eq!(syncs_around_renames(&calls), [(1, FILES); 2]);
        assert!(world.mirror.unsynced.lock().is_empty());
    }
    // The error of a file of ours fails that file.
    let batch = world.batch(FILES, true);
    fail(&[Call::Syncfs], false);
    fail_later(Call::Fsync, 3, &[Call::Fsync], false);
    let answers = world.mirror.publish(batch);
    assert_eq!(FaultPlan::end(), 1);
    let mut expected = ["ok"; FILES];
    expected[3] = "io";
    assert_eq!(codes(&answers), expected);
}

/// The sync of a file system that was shut down may succeed.
#[test]
fn file_system_that_was_shut_down_is_noticed_before_and_after_the_renames() {
    const FILES: usize = 40;
    let world = World::new();
    let batch = world.batch(FILES, true);
    fail(&[Call::Fsync], true);
    assert_eq!(codes(&world.mirror.publish(batch)), ["io"; FILES]);
    FaultPlan::end();
    assert!(world.files().is_empty());

    let batch = world.batch(FILES, true);
    fail_later(Call::Syncfs, 1, &[Call::Fsync], true);
    assert_eq!(codes(&world.mirror.publish(batch)), ["io"; FILES]);
    FaultPlan::end();
    assert_eq!(world.files().len(), FILES);
    let answers = world.mirror.publish(world.batch(FILES, true));
    assert_eq!(codes(&answers), ["ok"; FILES]);
    assert!(world.mirror.unsynced.lock().is_empty());
}

/// XFS syncs folders without an error then.
#[test]
fn folders_are_not_trusted_if_the_file_system_was_shut_down_before_they_were_synced() {
    let mut world = World::new();
    world.publish("h/gone").unwrap();
    world.let_shutdown_be_hidden(true);
    // After the file and its folder.
    fail_later(Call::Fsync, 2, &[Call::Fsync], false);
    assert_eq!(codes(&[world.publish("h/a")]), ["io"]);
    assert_eq!(FaultPlan::end(), 1);
    // After the folder.
    fail_later(Call::Fsync, 1, &[Call::Fsync], false);
    assert_eq!(world.remove("h/gone"), Err("io"));
    assert_eq!(FaultPlan::end(), 1);
    fail(&[Call::Fsync], false);
    assert!(world.mirror.sync_entry(&path("h/a")).is_err());
    assert_eq!(FaultPlan::end(), 1);
    world.publish("h/a").unwrap();
    assert_eq!(world.remove("h/gone"), Ok(false));
    assert_eq!(world.mirror.sync_entry(&path("h/a")), Ok(()));
}

/// The kernel reports an error of write-back to one sync only, which need not be that of the file.
#[test]
fn failed_sync_also_concerns_files_that_are_published_later() {
    for which in 0..2 {
        let world = World::new();
        let mut begun = world.mirror.stage().unwrap();
        begun.write(b"begun before").unwrap();
        let completed = world.completed("completed before");
        fail(&[Call::Syncfs], false);
        assert!(world.mirror.staging.file_system.sync().is_err());
        FaultPlan::end();
        let mut batch = world.batch(SYNC_TOGETHER, false);
        batch.push((begun.finish(None).unwrap(), path("h/begun")));
        batch.push((completed, path("h/completed")));
        // After the folder of the staged files they are synced, and no others.
        fail_later(Call::Fsync, 1 + which, &[Call::Fsync], false);
        let mut answers = Vec::new();
        let calls = record_calls(|| answers = world.mirror.publish(batch));
        assert_eq!(FaultPlan::end(), 1);
        let before_changes = calls.iter().take_while(|call| **call != Call::CreateFolder);
        let fsyncs = before_changes.filter(|call| **call == Call::Fsync).count();
        assert_eq!(fsyncs, 3, "{calls:?}");
        let mut expected = ["ok"; SYNC_TOGETHER + 2];
        expected[SYNC_TOGETHER + which] = "io";
        assert_eq!(codes(&answers), expected);
        assert_eq!(world.staged_files(), 0);
    }
}

/// It may have reported the error of a folder that was altered before.
#[test]
fn failed_sync_also_concerns_folders_that_are_synced_later() {
    const FILES: usize = 40;
    let with_failed = |failed: Option<usize>| {
        let mut expected = ["ok"; FILES];
        failed.into_iter().for_each(|at| expected[at] = "io");
        expected
    };
    let fail_sync = |world: &World| {
        fail(&[Call::Syncfs], false);
        assert!(world.mirror.staging.file_system.sync().is_err());
        FaultPlan::end();
    };
    // None has failed: no folder is synced by itself, but for the last.
    let world = Arc::new(World::new());
    fail_syncs_of(&["h/7"]);
    let answers = world.mirror.publish(world.batch(FILES, true));
    assert_eq!(codes(&answers), with_failed(None));

    // The sync of another batch fails between the renames and the sync of the folders.
    let batch = world.batch(FILES, true);
    let other = Arc::clone(&world);
    before_call(Call::Syncfs, 1, move || fail_sync(&other));
    let answers = world.mirror.publish(batch);
    assert_eq!(codes(&answers), with_failed(Some(7)));
    fail_syncs_of(&[]);
    assert_eq!(codes(&[world.publish("h/7/more")]), ["ok"]);
    assert!(world.mirror.unsynced.lock().is_empty());

    // A folder that an earlier call has not synced.
    fail_syncs_of(&["h/8"]);
    assert!(world.publish("h/8/more").is_err());
    fail_sync(&world);
    let answers = world.mirror.publish(world.batch(FILES, true));
    assert_eq!(codes(&answers), with_failed(Some(8)));
}

/// That may take minutes.
#[test]
fn mirror_is_changed_while_its_file_system_is_synced() {
    let world = Arc::new(World::new());
    let batch = world.batch(SYNC_TOGETHER, true);
    let other = Arc::clone(&world);
    before_call(Call::Syncfs, 1, move || {
        assert!(other.mirror.unsynced.try_lock().is_some(), "others wait");
        other.publish("h/5/meanwhile").unwrap();
        fail_syncs_of(&["h/3"]);
        assert!(other.publish("h/3/meanwhile").is_err());
    });
    let answers = world.mirror.publish(batch);
    // What was altered meanwhile may not be on disk, and is not forgotten.
    let mut expected = ["ok"; SYNC_TOGETHER];
    expected[3] = "io";
    assert_eq!(codes(&answers), expected);
    fail_syncs_of(&[]);
    world.publish("h/3/again").unwrap();
    assert!(world.mirror.unsynced.lock().is_empty());
    assert!(world.at("h/3/meanwhile").exists() && world.at("h/5/meanwhile").exists());
}

#[test]
fn folder_that_another_process_removes_fails_its_files_and_no_others() {
    let world = World::new();
    fs::create_dir_all(world.at("i/blocked")).unwrap();
    let mut batch = world.batch(SYNC_TOGETHER, true);
    // The folder that is opened last is not the one that is altered last.
    batch.push((world.completed("i"), path("i/blocked")));
    let altered_last = world.at("h/9");
    before_call(Call::Syncfs, 1, move || {
        fs::remove_dir_all(altered_last).unwrap()
    });
    let answers = world.mirror.publish(batch);
    let mut expected = ["ok"; SYNC_TOGETHER + 1];
    expected[9] = "io";
    expected[SYNC_TOGETHER] = "path-blocked";
    assert_eq!(codes(&answers), expected);
    assert!(world.mirror.unsynced.lock().is_empty());
}

#[test]
fn completed_files_are_open_up_to_a_limit_and_synced_beyond() {
    const LIMIT: usize = 5;
    let mut world = World::new();
    world.limit_open_files(LIMIT);
    let open = || fs::read_dir("/proc/self/fd").unwrap().flatten();
    let folder = world.at(".resyncd/work");
    let staged = || {
        let targets = open().filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.filter(|target| target.starts_with(&folder)).count() - 1
    };
    let mut batch = Vec::new();
    let calls = record_calls(|| batch = world.batch(LIMIT + 3, false));
    assert_eq!((staged(), count(&calls, Call::Fsync)), (LIMIT, 3));
    // Others have used up the limit: a single file does not need the file system to be synced.
    let calls = record_calls(|| world.publish("h/one").unwrap());
    assert_eq!((count(&calls, Call::Syncfs), staged()), (0, LIMIT));
    drop(batch);
    assert_eq!(staged(), 0);
    let mut batch = Vec::new();
    let calls = record_calls(|| batch = world.batch(2, false));
    assert_eq!((staged(), count(&calls, Call::Fsync)), (2, 0));
    assert_eq!(codes(&world.mirror.publish(batch)), ["ok", "ok"]);
    assert_eq!(staged(), 0);
}

/// ext4 drops the bytes of a file for which it can't allocate blocks. The file looks like one that has a hole.
#[test]
fn file_whose_bytes_were_dropped_is_not_published() {
    for (length, replaces, number, is_synced_when_complete) in [
        (3, true, 1, false),
        (3, true, SYNC_TOGETHER, false),
        (SYNC_ALONE, true, 1, true),
        (3, false, 1, true),
    ] {
        let mut world = World::new();
        world.let_sync_replace_fsync(replaces);
        let staging = Arc::get_mut(&mut world.mirror.staging).unwrap();
        staging.file_system.drops_bytes = true;
        let mut staged = world.mirror.stage().unwrap();
        let bytes = vec![b'.'; usize::try_from(length).unwrap()];
        staged.write(&bytes).unwrap();
        staged.drop_bytes();
        match staged.finish(None) {
            Ok(file) => {
                assert!(!is_synced_when_complete, "{length} {replaces}");
                let mut batch = world.batch(number - 1, false);
                batch.push((file, path("h/dropped")));
                let answers = world.mirror.publish(batch);
                let (dropped, others) = answers.split_last().unwrap();
                assert!(others.iter().all(Result::is_ok));
                assert_eq!(dropped.as_ref().unwrap_err().error.code(), "io");
            }
            Err(error) => {
                assert!(is_synced_when_complete, "{length} {replaces}");
                assert_eq!(error.code(), "io");
            }
        }
        assert!(!world.at("h/dropped").exists());
        assert_eq!(world.staged_files(), 0);
    }
}

#[test]
fn concurrent_publishing_and_pruning_lose_nothing() {
    let world = World::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..25 {
                    let at = format!("h/a/b/{thread}-{round}");
                    world.publish(&at).unwrap();
                    assert_eq!(world.remove(&at), Ok(true));
                }
                world.publish(&format!("h/a/b/{thread}")).unwrap();
            });
        }
    });
    assert_eq!(world.files(), ["h/a/b/0", "h/a/b/1", "h/a/b/2", "h/a/b/3"]);
    assert_eq!(world.staged_files(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn mirror_has_exactly_what_was_published_and_not_removed(
        steps in prop::collection::vec(
            prop::collection::vec((any::<bool>(), "[gh](/[ab]){1,3}"), 1..6), 1..8)
    ) {
        let world = World::new();
        let mut expected = std::collections::BTreeSet::new();
        for step in steps {
            let (publish, remove): (Vec<_>, Vec<_>) = step.into_iter().partition(|(add, _)| *add);
            let batch = publish.iter().map(|(_, at)| (world.completed(at), path(at))).collect();
            for (answer, (_, at)) in world.mirror.publish(batch).iter().zip(publish) {
                match answer {
                    Ok(()) => { expected.insert(at); }
                    Err(failed) => prop_assert_eq!(failed.error.code(), "path-blocked"),
                }
            }
            let paths: Vec<MirrorPath> = remove.iter().map(|(_, at)| path(at)).collect();
            for (answer, (_, at)) in world.mirror.remove(&paths).iter().zip(remove) {
                prop_assert_eq!(answer.as_ref().ok(), Some(&expected.remove(&at)));
            }
            let expected: Vec<String> = expected.iter().cloned().collect();
            prop_assert_eq!(world.files(), expected);
        }
        prop_assert_eq!(world.staged_files(), 0);
    }
}

#[test]
fn unnamed_files_are_in_no_folder_until_they_are_published() {
    let world = World::new();
    world.publish("h/changed").unwrap();
    let dropped = world.unnamed("dropped");
    let batch = ["h/new", "h/changed"].map(|at| (world.unnamed("new"), path(at)));
    assert_eq!(world.staged_files(), 0);
    let calls = record_calls(|| {
        assert_eq!(codes(&world.mirror.publish(batch.into())), ["ok", "ok"]);
    });
    // The second link of the changed one is in the folder of staged files, and replaces the old file.
    assert_eq!(
        (count(&calls, Call::Link), count(&calls, Call::Rename)),
        (3, 1)
    );
    drop(dropped);
    assert_eq!(world.files(), ["h/changed", "h/new"]);
    for at in ["h/changed", "h/new"] {
        assert_eq!(fs::read_to_string(world.at(at)).unwrap(), "new");
    }
    assert_eq!(world.staged_files(), 0);
    let kept = vec![(world.unnamed("other"), path("h/new"))];
    assert_eq!(codes(&world.mirror.publish_new(kept)), ["version-conflict"]);
    assert_eq!(fs::read_to_string(world.at("h/new")).unwrap(), "new");
    assert_eq!(world.staged_files(), 0);
}

#[test]
fn unnamed_file_can_be_read_before_it_is_published() {
    let world = World::new();
    world.publish("h/a").unwrap();
    let file = world.unnamed("h/a");
    let other = world.mirror.open_file(&path("h/a")).unwrap();
    assert!(file.has_bytes_of(other).unwrap());
    let synced = world
        .mirror
        .sync(vec![file], ["h/b"])
        .pop()
        .unwrap()
        .unwrap();
    let mut bytes = String::new();
    synced.open().unwrap().read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "h/a");
}

/// Unlike that of a rename, the number of links is in the file: it must be on disk, too.
#[test]
fn linked_files_are_synced_with_the_file_system_or_each_by_itself() {
    const FILES: usize = 3;
    let world = World::new();
    let batch = |n: usize| {
        let at = |file: usize| format!("h/{n}/{file}");
        let files = (0..FILES).map(|file| (world.unnamed("new"), path(&at(file))));
        files.collect::<Vec<_>>()
    };
    let synced = |files: Vec<(CompletedFile, MirrorPath)>| {
        let (files, paths): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let files = world
            .mirror
            .sync(files, paths.iter().map(MirrorPath::as_str));
        let files = files.into_iter().map(Result::unwrap);
        files.zip(paths).collect::<Vec<_>>()
    };
    let first = synced(batch(0));
    let calls = record_calls(|| assert_eq!(codes(&world.mirror.publish(first)), ["ok"; FILES]));
    let together = (count(&calls, Call::Syncfs), count(&calls, Call::Fsync));
    assert_eq!(together, (1, 1), "the folder that was altered last");

    let second = synced(batch(1));
    FaultPlan {
        of: &[Call::Syncfs],
        after: 0,
        errno: Errno::IO,
        lasting: false,
        injected: 0,
    }
    .begin();
    let calls = record_calls(|| assert_eq!(codes(&world.mirror.publish(second)), ["ok"; FILES]));
    assert_eq!(FaultPlan::end(), 1);
    let folders = 2;
    assert_eq!(count(&calls, Call::Fsync), FILES + folders);
}

#[test]
fn files_have_names_where_too_many_are_open_or_none_can_be_unnamed() {
    let mut world = World::new();
    world.limit_open_files(4);
    let files: Vec<_> = (0..6).map(|_| world.unnamed("new")).collect();
    assert_eq!(world.staged_files(), 4);
    drop(files);
    assert_eq!(world.staged_files(), 0);
    Arc::get_mut(&mut world.mirror.staging)
        .unwrap()
        .links_unnamed = false;
    let file = world.unnamed("new");
    assert_eq!(world.staged_files(), 1);
    assert_eq!(
        codes(&world.mirror.publish(vec![(file, path("h/a"))])),
        ["ok"]
    );
    assert_eq!(world.staged_files(), 0);
}

#[test]
fn no_file_is_synced_alone_of_two_batches_of_as_many_as_are_synced_together() {
    let mut world = World::new();
    world.limit_open_files(2 * SYNC_TOGETHER + 1);
    let most = world.mirror.most_together();
    assert_eq!(most, SYNC_TOGETHER);
    let batch = |name: &str| -> Vec<_> {
        let paths = (0..most).map(|n| path(&format!("h/{name}/{n}")));
        paths.map(|path| (world.unnamed("new"), path)).collect()
    };
    let mut batches = Vec::new();
    let calls = record_calls(|| batches = ["a", "b"].map(batch).into());
    assert_eq!(count(&calls, Call::Fsync), 0);
    for batch in batches {
        assert_eq!(codes(&world.mirror.publish(batch)), vec!["ok"; most]);
    }
    world.let_sync_replace_fsync(false);
    assert_eq!(world.mirror.most_together(), usize::MAX);
}

/// The kernel reports an error to the first fsync, and the next one of the same handle succeeds.
#[test]
fn unnamed_file_whose_sync_after_that_of_the_file_system_fails_is_lost_and_no_other() {
    let world = World::new();
    let at = |file: usize| format!("h/{file}");
    let files = (0..SYNC_TOGETHER).map(|_| world.unnamed("new")).collect();
    let paths: Vec<String> = (0..SYNC_TOGETHER).map(at).collect();
    FaultPlan {
        of: &[Call::Fsync],
        // That of the folder of staged files.
        after: 1,
        errno: Errno::IO,
        lasting: false,
        injected: 0,
    }
    .begin();
    let synced = world.mirror.sync(files, paths.iter().map(String::as_str));
    assert_eq!(FaultPlan::end(), 1);
    let lost: Vec<usize> = (0..SYNC_TOGETHER).filter(|&n| synced[n].is_err()).collect();
    assert_eq!(lost, [SYNC_TOGETHER - 1]);
}
