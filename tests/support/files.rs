//! Compares the files of a mirror with the resources of the Source.

use std::collections::BTreeMap;
use std::path::Path;

use resyncd_testkit::SampleSource;
use url::Url;

/// File contents by path, relative to the mirror.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The path in the mirror of a resource whose URI needs no escaping.
pub(crate) fn path_of(uri: &Url) -> String {
    uri.as_str().trim_start_matches("http://").to_owned()
}

/// The files that a mirror of these sets must contain.
pub(crate) fn expected_files(source: &SampleSource, sets: &[String]) -> Files {
    let states = sets.iter().flat_map(|set| source.state(set));
    states
        .map(|(uri, bytes)| (uri.trim_start_matches("http://").to_owned(), bytes.to_vec()))
        .collect()
}

/// The files of a mirror, without `.resyncd/`.
pub(crate) fn files(mirror: &Path) -> Files {
    let mut found = Files::new();
    collect(mirror, mirror, &mut found);
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Files) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let relative = path.strip_prefix(root).unwrap().display().to_string();
        if relative == ".resyncd" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            collect(root, &path, found);
        } else if let Ok(bytes) = std::fs::read(&path) {
            // A file that was removed since the folder was listed is skipped.
            found.insert(relative, bytes);
        }
    }
}

/// The differences between two mirrors, one per line; empty if they are equal.
pub(crate) fn difference(expected: &Files, found: &Files) -> String {
    let mut lines = String::new();
    for (path, bytes) in expected {
        match found.get(path) {
            None => lines.push_str(&format!("missing: {path}\n")),
            Some(other) if other != bytes => lines.push_str(&format!("altered: {path}\n")),
            Some(_) => {}
        }
    }
    for path in found.keys().filter(|path| !expected.contains_key(*path)) {
        lines.push_str(&format!("unexpected: {path}\n"));
    }
    lines
}
