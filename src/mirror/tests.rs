//! The mirror on a real file system.

mod disk_faults;

use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::error_class::ErrorClass;
use crate::protocol::SourceTime;

/// A mirror in a temporary folder, and a folder outside of it.
struct World {
    mirror: Mirror,
    base: TempDir,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("outside")).unwrap();
        let mirror = Mirror::open(&base.path().join("mirror")).unwrap();
        Self { mirror, base }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.base.path().join("mirror").join(path)
    }

    fn outside(&self) -> PathBuf {
        self.base.path().join("outside")
    }

    fn completed(&self, bytes: &str) -> CompletedFile {
        let mut staged = self.mirror.stage().unwrap();
        staged.write(bytes.as_bytes()).unwrap();
        staged.finish(None).unwrap()
    }

    fn publish(&self, at: &str) -> Result<(), PublishError> {
        let batch = vec![(self.completed(at), path(at))];
        self.mirror.publish(batch).pop().unwrap()
    }

    fn remove(&self, at: &str) -> Result<bool, &'static str> {
        let result = self.mirror.remove(&[path(at)]).pop().unwrap();
        result.map_err(|error| error.code())
    }

    fn fail_syncs_of(&self, folders: &[&str]) {
        *self.mirror.unsyncable.lock() = folders.iter().map(|&f| f.to_owned()).collect();
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
    let metadata = file.metadata().unwrap();
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
    let world = World::new();
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
fn symlinks_are_neither_followed_nor_replaced() {
    let world = World::new();
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
    let world = World::new();
    world.publish("h/a/b").unwrap();
    assert_eq!(world.remove("h/a"), Ok(false));
    assert_eq!(world.remove("h/a/b/c"), Ok(false));
    assert_eq!(world.remove("h/a/b/c/d"), Ok(false));
    assert_eq!(world.files(), ["h/a/b"]);
    assert!(world.mirror.unsynced.lock().is_empty());
}

#[test]
fn failed_folder_sync_fails_every_file_below_it_and_no_other() {
    let world = World::new();
    let batch = |names: &[&str]| -> Vec<(CompletedFile, MirrorPath)> {
        let staged = names.iter().map(|at| (world.completed(at), path(at)));
        staged.collect()
    };
    world.fail_syncs_of(&["h/a"]);
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
    world.fail_syncs_of(&[]);
    let answers = world.mirror.publish(batch(&["h/a/c/1"]));
    assert_eq!(codes(&answers), ["ok"]);
    assert!(world.mirror.unsynced.lock().is_empty());
}

#[test]
fn unsynced_removal_is_not_reported_by_the_next_call_either() {
    let world = World::new();
    world.publish("h/a/1").unwrap();
    world.publish("h/b").unwrap();
    world.fail_syncs_of(&["h"]);
    assert_eq!(world.remove("h/a/1"), Err("io"));
    assert_eq!(world.remove("h/a/1"), Err("io"));
    world.fail_syncs_of(&[]);
    assert_eq!(world.remove("h/a/1"), Ok(false));
    assert_eq!(world.files(), ["h/b"]);
}

#[test]
fn entry_of_a_file_is_synced_after_its_sync_has_failed() {
    let world = World::new();
    world.fail_syncs_of(&["h/a"]);
    assert!(world.publish("h/a/1").is_err());
    let file = path("h/a/1");
    assert!(world.mirror.sync_entry(&file).is_err());
    world.fail_syncs_of(&[]);
    assert_eq!(world.mirror.sync_entry(&file), Ok(()));
    assert!(world.mirror.unsynced.lock().is_empty());
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
