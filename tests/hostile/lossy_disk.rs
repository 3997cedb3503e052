//! A model of a disk that loses power: from the record of what a process did to its files, what may be left of them.
//!
//! The model promises less than ext4, XFS and btrfs do:
//! - What a file holds is safe once the file was synced. A later write may be there, be lost, or be there in some of its sectors; and
//!   each write has that choice of its own, whatever happened to earlier ones. A file may have got its length, or its time, without
//!   its bytes.
//! - That a folder has an entry, or has it no longer, is safe once the folder was synced. Until then each of its names may stand for
//!   what it stood for at the last sync, or at any moment since. A rename is two such changes: one may be lost without the other.
//! - A folder that is synced is lost nevertheless if its own entry is.
//! - A file that was created without a name is lost, whatever its folder has, unless it was synced after it got a link: until then it
//!   may be one that nothing refers to, which a check of the file system removes.
//! - A sync of a file system syncs what is below the folder through which it is called, and nothing beside it: that may be on another
//!   file system.
//! - A write changes no byte but those that it writes, and no sector is half written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The sizes of the sectors that a torn write consists of.
const SECTORS: [usize; 2] = [512, 4096];
/// What the system shows behind the path of a file that was removed while it was open.
const REMOVED: &str = " (deleted)";

/// A step of a recorded process. Paths are relative to the recorded folder.
#[derive(Debug)]
pub(crate) enum Step {
    Write {
        path: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    /// The file has this length now.
    Truncate {
        path: String,
        length: usize,
    },
    /// The file has this time now, in nanoseconds since 1970.
    Date {
        path: String,
        nanos: u64,
    },
    Sync {
        path: String,
    },
    /// The file system that the folder is on.
    SyncAll {
        path: String,
    },
    Create {
        path: String,
    },
    /// The path is the one that the system shows, also when the file has got a name.
    CreateUnnamed {
        path: String,
    },
    CreateFolder {
        path: String,
    },
    Remove {
        path: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    /// The beginning of an HTTP answer that reports success.
    Answer {
        head: String,
    },
}

/// Reads the log of `steps record`.
pub(crate) fn read_log(log: &[u8], folder: &Path) -> Vec<Step> {
    let mut rest = split_line(log).1;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (head, behind) = split_line(rest);
        let fields: Vec<&str> = std::str::from_utf8(head).unwrap().split(' ').collect();
        let [name, number, lengths @ ..] = &fields[..] else {
            panic!("no record: {fields:?}");
        };
        let lengths: Vec<usize> = lengths.iter().map(|it| it.parse().unwrap()).collect();
        let (path, behind) = behind.split_at(lengths[0]);
        let (second, behind) = behind.split_at(lengths[1]);
        let (data, behind) = behind.split_at(lengths[2]);
        rest = behind.strip_prefix(b"\n").unwrap();
        let number: i64 = number.parse().unwrap();
        let path = || relative(path, folder);
        let size = || usize::try_from(number).unwrap();
        steps.push(match *name {
            "write" => Step::Write {
                path: path(),
                offset: size(),
                bytes: data.to_vec(),
            },
            "truncate" => Step::Truncate {
                path: path(),
                length: size(),
            },
            "date" => Step::Date {
                path: path(),
                nanos: u64::try_from(number).unwrap(),
            },
            "fsync" => Step::Sync { path: path() },
            "syncfs" => Step::SyncAll { path: path() },
            "create" => Step::Create { path: path() },
            "create-unnamed" => Step::CreateUnnamed { path: path() },
            "mkdir" => Step::CreateFolder { path: path() },
            "unlink" => Step::Remove { path: path() },
            "rename" => Step::Rename {
                from: path(),
                to: relative(second, folder),
            },
            "link" => Step::Link {
                from: path(),
                to: relative(second, folder),
            },
            "answer" => Step::Answer {
                head: String::from_utf8_lossy(data).to_lowercase(),
            },
            other => panic!("{other} is not modelled"),
        });
    }
    steps
}

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
    (&bytes[..end], &bytes[end + 1..])
}

fn relative(path: &[u8], folder: &Path) -> String {
    let path = std::str::from_utf8(path).unwrap();
    let below = path.strip_prefix(folder.to_str().unwrap()).unwrap();
    let names: Vec<&str> = names(below).collect();
    names.join("/")
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !matches!(*name, "" | "."))
}

/// What is lost of the steps that were not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// All of them.
    Everything,
    /// Written bytes: names, lengths and times are on disk.
    Bytes,
    /// Changes of folders: what was written is on disk.
    Entries,
    /// Some of them.
    Some,
}

pub(crate) const LOSSES: [Loss; 4] = [Loss::Everything, Loss::Bytes, Loss::Entries, Loss::Some];

/// Numbers that look random and are always the same.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// A change of a file.
#[derive(Clone, Debug)]
enum FileChange {
    Write(usize, Vec<u8>),
    Length(usize),
    Time(u64),
    /// Its first name.
    Name,
}

/// The state of a file.
#[derive(Clone, Debug)]
struct Content {
    bytes: Vec<u8>,
    nanos: Option<u64>,
    has_name: bool,
}

impl Content {
    fn empty(has_name: bool) -> Self {
        Self {
            bytes: Vec::new(),
            nanos: None,
            has_name,
        }
    }

    fn apply(&mut self, change: &FileChange) {
        match change {
            FileChange::Write(offset, bytes) => {
                self.extend(offset + bytes.len());
                self.bytes[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            FileChange::Length(length) => self.bytes.resize(*length, 0),
            FileChange::Time(nanos) => self.nanos = Some(*nanos),
            FileChange::Name => self.has_name = true,
        }
    }

    fn extend(&mut self, end: usize) {
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
    }

    /// Applies a change as far as it is not lost.
    fn apply_lossy(&mut self, change: &FileChange, loss: Loss, dice: &mut Dice) {
        let FileChange::Write(offset, bytes) = change else {
            let is_kept = match loss {
                Loss::Everything => false,
                Loss::Bytes | Loss::Entries => true,
                Loss::Some => dice.below(2) == 0,
            };
            if is_kept {
                self.apply(change);
            }
            return;
        };
        match loss {
            Loss::Everything => {}
            Loss::Bytes => self.extend(offset + bytes.len()),
            Loss::Entries => self.apply(change),
            Loss::Some => match dice.below(4) {
                0 => {}
                1 => self.extend(offset + bytes.len()),
                2 => self.apply(change),
                _ => self.tear(*offset, bytes, dice),
            },
        }
    }

    /// Writes some of the sectors of a write.
    fn tear(&mut self, offset: usize, bytes: &[u8], dice: &mut Dice) {
        let sector = SECTORS[dice.below(SECTORS.len())];
        let mut at = 0;
        while at < bytes.len() {
            let end = (at + sector - (offset + at) % sector).min(bytes.len());
            if dice.below(2) == 0 {
                self.apply(&FileChange::Write(offset + at, bytes[at..end].to_vec()));
            }
            at = end;
        }
    }
}

#[derive(Clone, Debug)]
enum Node {
    File {
        synced: Content,
        unsynced: Vec<FileChange>,
    },
    /// What each name stood for: at the last sync of the folder, and after each change since.
    Folder(BTreeMap<String, Vec<Option<usize>>>),
}

impl Node {
    fn empty_file(has_name: bool) -> Self {
        Self::File {
            synced: Content::empty(has_name),
            unsynced: Vec::new(),
        }
    }
}

/// The files below a folder, with what is not synced of them.
#[derive(Clone)]
pub(crate) struct LossyDisk {
    /// The first is the folder itself.
    nodes: Vec<Node>,
    /// The files that were created without a name.
    unnamed: BTreeMap<String, usize>,
}

impl LossyDisk {
    /// The files of a folder, all of them synced.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut disk = Self {
            nodes: vec![Node::Folder(BTreeMap::new())],
            unnamed: BTreeMap::new(),
        };
        disk.read_into(0, folder);
        disk
    }

    fn read_into(&mut self, at: usize, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let is_folder = entry.file_type().unwrap().is_dir();
            let id = self.nodes.len();
            self.nodes.push(if is_folder {
                Node::Folder(BTreeMap::new())
            } else {
                Node::File {
                    synced: Content {
                        bytes: fs::read(entry.path()).unwrap(),
                        nanos: None,
                        has_name: true,
                    },
                    unsynced: Vec::new(),
                }
            });
            let name = entry.file_name().into_string().unwrap();
            self.entries(at).insert(name, vec![Some(id)]);
            if is_folder {
                self.read_into(id, &entry.path());
            }
        }
    }

    fn entries(&mut self, folder: usize) -> &mut BTreeMap<String, Vec<Option<usize>>> {
        match &mut self.nodes[folder] {
            Node::Folder(entries) => entries,
            Node::File { .. } => panic!("not a folder"),
        }
    }

    fn find(&self, path: &str) -> Option<usize> {
        if let Some(&id) = self.unnamed.get(path) {
            return Some(id);
        }
        names(path).try_fold(0, |at, name| match &self.nodes[at] {
            Node::Folder(entries) => *entries.get(name)?.last()?,
            Node::File { .. } => None,
        })
    }

    #[track_caller]
    fn existing(&self, path: &str) -> usize {
        self.find(path)
            .unwrap_or_else(|| panic!("{path} is not there"))
    }

    fn set_entry(&mut self, path: &str, node: Option<usize>) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = self.existing(folder);
        let history = self.entries(folder).entry(name.to_owned());
        history.or_insert_with(|| vec![None]).push(node);
    }

    fn add(&mut self, path: &str, node: Node) {
        self.nodes.push(node);
        self.set_entry(path, Some(self.nodes.len() - 1));
    }

    fn change(&mut self, path: &str, change: FileChange) {
        if path.ends_with(REMOVED) && self.find(path).is_none() {
            return;
        }
        let id = self.existing(path);
        match &mut self.nodes[id] {
            Node::File { unsynced, .. } => unsynced.push(change),
            // Nothing reads the time of a folder.
            Node::Folder(_) => {}
        }
    }

    fn sync(&mut self, id: usize) {
        match &mut self.nodes[id] {
            Node::File { synced, unsynced } => {
                for change in unsynced.drain(..) {
                    synced.apply(&change);
                }
            }
            Node::Folder(entries) => entries.retain(|_, history| {
                history.drain(..history.len() - 1);
                history[0].is_some()
            }),
        }
    }

    /// Syncs what is at or below a node.
    fn sync_all(&mut self, id: usize) {
        self.sync(id);
        if let Node::Folder(entries) = &self.nodes[id] {
            // Each name stands for one node now.
            let below: Vec<usize> = entries.values().flatten().copied().flatten().collect();
            below.into_iter().for_each(|id| self.sync_all(id));
        }
    }

    /// Carries out a step.
    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::Write {
                path,
                offset,
                bytes,
            } => self.change(path, FileChange::Write(*offset, bytes.clone())),
            Step::Truncate { path, length } => self.change(path, FileChange::Length(*length)),
            Step::Date { path, nanos } => self.change(path, FileChange::Time(*nanos)),
            Step::Sync { path } => {
                if let Some(id) = self.find(path) {
                    self.sync(id);
                }
            }
            Step::SyncAll { path } => {
                self.sync_all(self.existing(path));
                let unnamed = self.unnamed.iter();
                let below = unnamed.filter(|(it, _)| Path::new(it).starts_with(path));
                let below: Vec<usize> = below.map(|(_, &id)| id).collect();
                below.into_iter().for_each(|id| self.sync(id));
            }
            Step::Create { path } => self.add(path, Node::empty_file(true)),
            Step::CreateUnnamed { path } => {
                self.nodes.push(Node::empty_file(false));
                self.unnamed.insert(path.clone(), self.nodes.len() - 1);
            }
            Step::CreateFolder { path } => self.add(path, Node::Folder(BTreeMap::new())),
            Step::Remove { path } => self.set_entry(path, None),
            Step::Rename { from, to } => {
                let node = self.existing(from);
                self.set_entry(from, None);
                self.set_entry(to, Some(node));
            }
            Step::Link { from, to } => {
                self.change(from, FileChange::Name);
                self.set_entry(to, Some(self.existing(from)));
            }
            Step::Answer { .. } => {}
        }
    }

    /// Writes what is left after a loss of power into an empty folder.
    pub(crate) fn survive(&self, loss: Loss, dice: &mut Dice, to: &Path) {
        self.write_folder(0, loss, dice, to);
    }

    fn write_folder(&self, id: usize, loss: Loss, dice: &mut Dice, to: &Path) {
        let Node::Folder(entries) = &self.nodes[id] else {
            panic!("not a folder");
        };
        for (name, history) in entries {
            let chosen = match loss {
                Loss::Everything | Loss::Entries => 0,
                Loss::Bytes => history.len() - 1,
                Loss::Some => dice.below(history.len()),
            };
            let Some(id) = history[chosen] else { continue };
            let path = to.join(name);
            match &self.nodes[id] {
                Node::Folder(_) => {
                    fs::create_dir(&path).unwrap();
                    self.write_folder(id, loss, dice, &path);
                }
                Node::File { synced, unsynced } => {
                    let mut content = synced.clone();
                    for change in unsynced {
                        content.apply_lossy(change, loss, dice);
                    }
                    if !content.has_name {
                        continue;
                    }
                    fs::write(&path, &content.bytes).unwrap();
                    if let Some(nanos) = content.nanos {
                        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
                        let file = fs::File::options().write(true).open(&path).unwrap();
                        file.set_modified(time).unwrap();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(log: &str) -> Vec<Step> {
        read_log(format!("1\n{log}").as_bytes(), Path::new("/x"))
    }

    fn survivors(log: &str) -> std::collections::BTreeSet<Vec<(String, String)>> {
        let empty = tempfile::tempdir().unwrap();
        let mut disk = LossyDisk::read(empty.path());
        for step in step(log) {
            disk.apply(&step);
        }
        let survivor = |seed: u64| {
            let folder = tempfile::tempdir().unwrap();
            disk.survive(Loss::Some, &mut Dice::new(seed), folder.path());
            let files = crate::support::files(folder.path());
            let text = |bytes| String::from_utf8(bytes).unwrap();
            files
                .into_iter()
                .map(|(path, bytes)| (path, text(bytes)))
                .collect()
        };
        (1..40).map(survivor).collect()
    }

    #[test]
    fn only_what_is_synced_is_certain() {
        let file = |name: &str, text: &str| vec![(name.to_owned(), text.to_owned())];
        let write = "create 0 4 0 0\n/x/a\nwrite 0 4 0 2\n/x/aab\n";
        let lost = survivors(write);
        assert_eq!(lost.len(), 4, "{lost:?}");
        let with_bytes = format!("{write}fsync 0 4 0 0\n/x/a\n");
        assert_eq!(
            survivors(&with_bytes),
            [Vec::new(), file("a", "ab")].into(),
            "its name may be lost"
        );
        let with_name = format!("{with_bytes}fsync 0 2 0 0\n/x\n");
        assert_eq!(survivors(&with_name), [file("a", "ab")].into());
        let renamed = format!("{with_name}rename 0 4 4 0\n/x/a/x/b\n");
        assert_eq!(survivors(&renamed).len(), 4);
        let synced = format!("{renamed}fsync 0 2 0 0\n/x\n");
        assert_eq!(survivors(&synced), [file("b", "ab")].into());
    }

    #[test]
    fn file_without_a_name_is_lost_unless_it_was_synced_with_its_link() {
        let ab = [("b".to_owned(), "ab".to_owned())];
        let unnamed = "create-unnamed 0 15 0 0\n/x/#1 (deleted)\n\
             write 0 15 0 2\n/x/#1 (deleted)ab\nfsync 0 15 0 0\n/x/#1 (deleted)\n";
        assert_eq!(survivors(unnamed), [Vec::new()].into());
        let linked = format!("{unnamed}link 0 15 4 0\n/x/#1 (deleted)/x/b\n");
        let folder = format!("{linked}fsync 0 2 0 0\n/x\n");
        assert_eq!(survivors(&folder), [Vec::new(), ab.to_vec()].into());
        let both = format!("{folder}fsync 0 15 0 0\n/x/#1 (deleted)\n");
        assert_eq!(survivors(&both), [ab.to_vec()].into());
        let together = format!("{linked}syncfs 0 2 0 0\n/x\n");
        assert_eq!(survivors(&together), [ab.to_vec()].into());
    }

    #[test]
    fn sync_of_a_file_system_syncs_what_is_below_its_folder() {
        let write = "mkdir 0 4 0 0\n/x/m\nmkdir 0 4 0 0\n/x/s\nfsync 0 2 0 0\n/x\n\
             mkdir 0 6 0 0\n/x/m/f\ncreate 0 8 0 0\n/x/m/f/a\nwrite 0 8 0 2\n/x/m/f/aab\n\
             rename 0 8 6 0\n/x/m/f/a/x/m/b\ncreate 0 6 0 0\n/x/s/c\nwrite 0 6 0 2\n/x/s/ccd\n";
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let synced = survivors(&format!("{write}syncfs 0 4 0 0\n/x/m\n"));
        let survives = |wanted| synced.iter().all(|files| files.contains(&wanted));
        assert!(survives(file("m/b", "ab")), "{synced:?}");
        assert!(!survives(file("s/c", "cd")), "it is beside it");
        let renamed = |files: &Vec<(String, String)>| files.iter().all(|(at, _)| at != "m/f/a");
        assert!(synced.iter().all(renamed), "{synced:?}");
        assert!(!survivors(write).iter().all(renamed));
    }
}
