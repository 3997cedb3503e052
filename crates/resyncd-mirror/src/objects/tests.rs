#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use resourcesync::{Algorithm, Digest, SourceTime};
use tempfile::TempDir;

use super::ObjectFiles;
use super::runtime::block_on;
use super::store::Objects;
use crate::{
    CompletedFile, FileDescription, Mirror, MirrorError, MirrorFile, MirrorId, MirrorPath,
    file_time,
};

/// A mirror below `mirrors/a` in a store in memory.
struct World {
    store: Arc<InMemory>,
    objects: Objects,
    folder: TempDir,
    /// Stages the files.
    staging: Mirror,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(InMemory::new());
        let client = (Arc::clone(&store) as Arc<_>, Arc::clone(&store) as Arc<_>);
        let objects = Objects::of(client, Key::from("mirrors/a"), folder.path().to_owned());
        let staging = Mirror::open(folder.path().join("staging")).unwrap();
        Self {
            store,
            objects,
            folder,
            staging,
        }
    }

    fn file(&self, bytes: &[u8], at: i64) -> CompletedFile {
        let mut staged = self.staging.stage().unwrap();
        staged.write(bytes).unwrap();
        let file = staged.finish(Some(SourceTime::from_micros(at))).unwrap();
        file.described(FileDescription {
            media_type: Some("text/plain; charset=utf-8".to_owned()),
            digest: Some(Digest::of(Algorithm::Sha256, bytes)),
        })
    }

    fn publish(&self, name: &str, bytes: &[u8], is_new: bool) -> Result<(), MirrorError> {
        let batch = vec![(self.file(bytes, -1_500_000), path(name))];
        let mut published = self.objects.publish(batch, is_new);
        published.remove(0).map_err(|failed| failed.error)
    }

    fn files(&self) -> Vec<String> {
        let files = self.objects.files();
        let mut files: Vec<_> = files.map(|file| file.unwrap().to_string()).collect();
        files.sort();
        files
    }
}

fn path(text: &str) -> MirrorPath {
    MirrorPath::parse(text).unwrap()
}

fn text(mut file: MirrorFile) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn file_is_stored_with_its_time_type_and_digest_until_it_is_removed() {
    let world = World::new();
    // What is a folder to a file system is none here.
    world.publish("h/a", b"first", false).unwrap();
    world.publish("h/a/b%3Fc", b"other", false).unwrap();
    world.publish("h/empty", b"", false).unwrap();
    assert_eq!(world.files(), ["h/a", "h/a/b%3Fc", "h/empty"]);
    let names = world.objects.names_in(&path("h/a")).unwrap();
    assert_eq!(names, [("b%3Fc".to_owned(), 5)]);

    let open = |name: &str| world.objects.open_file(&path(name));
    let file = open("h/a").unwrap();
    let time = SourceTime::from_micros(-1_500_000);
    assert_eq!(file.metadata().unwrap().length, 5);
    assert_eq!(file.metadata().unwrap().modified, file_time(time));
    let digest = Digest::of(Algorithm::Sha256, b"first");
    assert!(file.is_stored_with(std::slice::from_ref(&digest)));
    assert!(!file.is_stored_with(&[]));
    assert!(!file.is_stored_with(&[digest, Digest::of(Algorithm::Md5, b"first")]));
    let later = SourceTime::from_micros(2_000_000);
    file.set_modified(file_time(later)).unwrap();
    let again = open("h/a").unwrap();
    assert_eq!(again.metadata().unwrap().modified, file_time(later));
    let [before, after] = [&file, &again].map(|file| file.metadata().unwrap().version());
    assert_ne!(before, after);
    let mut part = [0; 3];
    again.read_exact_at(&mut part, 2).unwrap();
    assert_eq!(&part, b"rst");
    assert!(again.read_exact_at(&mut part, 3).is_err());
    assert_eq!(text(again), "first");
    assert_eq!(text(open("h/empty").unwrap()), "");

    // A file that was opened is not mixed with the one that takes its place.
    let mut opened = open("h/a").unwrap();
    world.publish("h/a", b"newer", false).unwrap();
    assert!(opened.read(&mut part).is_err());
    assert_eq!(text(open("h/a").unwrap()), "newer");

    let removed = world.objects.remove(&[path("h/a"), path("h/b")]);
    assert!(removed.iter().all(Result::is_ok), "{removed:?}");
    assert!(matches!(open("h/a"), Err(MirrorError::Missing { .. })));
    assert_eq!(world.files(), ["h/a/b%3Fc", "h/empty"]);
}

#[test]
fn path_that_is_too_long_for_a_key_is_blocked() {
    let world = World::new();
    let long = format!("h/{}", vec!["x".repeat(200); 6].join("/"));
    let refused = world.publish(&long, b"a", false).unwrap_err();
    assert_eq!(refused.code(), "path-blocked");
}

#[test]
fn file_that_is_there_is_kept_where_a_new_one_is_published() {
    let world = World::new();
    world.publish("h/a", b"first", true).unwrap();
    let refused = world.publish("h/a", b"second", true).unwrap_err();
    assert_eq!(refused.code(), "version-conflict");
    let long = vec![7; (64 << 20) + 1];
    let refused = world.publish("h/a", &long, true).unwrap_err();
    assert_eq!(refused.code(), "version-conflict");
    assert_eq!(
        text(world.objects.open_file(&path("h/a")).unwrap()),
        "first"
    );
    // Of two files of one path the later one counts.
    let files = [&b"one"[..], b"two"].map(|bytes| (world.file(bytes, 0), path("h/b")));
    let published = world.objects.publish(files.into(), false);
    assert!(published.iter().all(Result::is_ok));
    assert_eq!(text(world.objects.open_file(&path("h/b")).unwrap()), "two");
}

#[test]
fn long_file_is_uploaded_in_parts_and_one_without_an_end_is_removed_later() {
    let world = World::new();
    let mut long = vec![7; (64 << 20) + 1];
    long[40 << 20] = 8;
    world.publish("h/a", &long, false).unwrap();
    let mut file = world.objects.open_file(&path("h/a")).unwrap();
    assert_eq!(file.metadata().unwrap().length, long.len() as u64);
    file.seek(SeekFrom::Start(40 << 20)).unwrap();
    let mut found = Vec::new();
    file.read_to_end(&mut found).unwrap();
    assert!(found == long[40 << 20..]);
    let notes = || fs::read_dir(world.folder.path().join(".resyncd/uploads"));
    assert_eq!(notes().unwrap().count(), 0);

    // As a process leaves it that ends meanwhile; one was not written to its end.
    let (uploads, key) = (&*world.store, Key::from("mirrors/a/h/b"));
    let id = {
        use object_store::multipart::MultipartStore;
        let begun = block_on(uploads.create_multipart(&key)).unwrap();
        block_on(uploads.put_part(&key, &begun, 0, vec![1].into())).unwrap();
        begun
    };
    let folder = world.folder.path().join(".resyncd/uploads");
    fs::write(folder.join("0"), format!("{id}\n{key}")).unwrap();
    fs::write(folder.join("1"), "").unwrap();
    world.objects.remove_unfinished();
    assert_eq!(notes().unwrap().count(), 0);
    let completed = {
        use object_store::multipart::MultipartStore;
        block_on(uploads.complete_multipart(&key, &id, Vec::new()))
    };
    assert!(completed.is_err(), "it was aborted");
}

#[test]
fn mirror_is_known_by_its_id_and_what_is_beside_it_is_not_listed() {
    let world = World::new();
    assert_eq!(world.objects.id().unwrap(), None);
    let id = MirrorId::random().unwrap();
    world.objects.set_id(&id).unwrap();
    assert_eq!(world.objects.id().unwrap(), Some(id));
    for key in ["mirrors/ab/h/c", "mirrors/a/c", "other"] {
        let key = Key::from(key);
        block_on(world.store.put(&key, "x".into())).unwrap();
    }
    world.publish("h/a", b"a", false).unwrap();
    assert_eq!(world.files(), ["h/a"]);
}
