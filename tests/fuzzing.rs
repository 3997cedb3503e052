//! Runs the bodies of the fuzz targets on their corpus and on random variations of it, other ones in each run.
//! `fuzz/README.md` describes how to fuzz for longer.

#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

/// The files of a target's corpus.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut files: Vec<_> = fs::read_dir(folder.join(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has a corpus");
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// A random edit of an example.
#[derive(Clone, Debug)]
enum Edit {
    Put(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    Repeat(Index, Index),
    /// Continues with the bytes of another example.
    Splice(Index, Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = any::<Index>;
    prop_oneof![
        (index(), any::<u8>()).prop_map(|(at, byte)| Edit::Put(at, byte)),
        (index(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (index(), index()).prop_map(|(from, until)| Edit::Remove(from, until)),
        (index(), index()).prop_map(|(from, until)| Edit::Repeat(from, until)),
        (index(), index(), index()).prop_map(|(at, other, from)| Edit::Splice(at, other, from)),
    ]
}

fn apply(edit: &Edit, data: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let place = |at: &Index, data: &[u8]| at.index(data.len() + 1);
    let range = |from: &Index, until: &Index, data: &[u8]| {
        let (one, other) = (place(from, data), place(until, data));
        one.min(other)..one.max(other)
    };
    match edit {
        Edit::Put(at, byte) => {
            let at = place(at, data);
            if let Some(found) = data.get_mut(at) {
                *found = *byte;
            }
        }
        Edit::Insert(at, bytes) => {
            let at = place(at, data);
            data.splice(at..at, bytes.iter().copied());
        }
        Edit::Remove(from, until) => drop(data.drain(range(from, until, data))),
        Edit::Repeat(from, until) => {
            let range = range(from, until, data);
            let (end, again) = (range.end, data[range].to_vec());
            data.splice(end..end, again);
        }
        Edit::Splice(at, other, from) => {
            let other = &corpus[other.index(corpus.len())];
            data.truncate(place(at, data));
            data.extend_from_slice(&other[place(from, other)..]);
        }
    }
}

fn check(target: &str, body: fn(&[u8])) {
    let corpus = corpus(target);
    corpus.iter().for_each(|example| body(example));
    let variation = (any::<Index>(), prop::collection::vec(edit(), 0..6));
    let any_bytes = prop::collection::vec(any::<u8>(), 0..300);
    let mut runner = TestRunner::default();
    runner
        .run(&(variation, any_bytes), |((example, edits), bytes)| {
            let mut data = corpus[example.index(corpus.len())].clone();
            for edit in &edits {
                apply(edit, &mut data, &corpus);
            }
            body(&data);
            body(&bytes);
            Ok(())
        })
        .unwrap();
}

macro_rules! targets {
    ($($target:ident),*) => {$(
        #[test]
        fn $target() {
            check(stringify!($target), bodies::$target);
        }
    )*};
}

targets!(
    document,
    datetime,
    link_header,
    path,
    callback,
    configuration,
    package,
    capability_list,
    notification,
    status,
    stored_uri
);
