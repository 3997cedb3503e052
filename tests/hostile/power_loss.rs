//! Loss of power at any step. A daemon's writes, syncs, renames and so on are recorded; after any of them the disk may have lost, or
//! torn, what was not synced (see [`crate::hostile::lossy_disk`]). Whatever is left must keep the promises: files are complete, the database is
//! whole and states nothing that the files are not, acknowledged deliveries are stored, and the next run completes the mirror, also
//! if the Source has reverted its changes meanwhile.
//!
//! Both are recorded: a daemon that syncs many files by one sync of the file system, and one that syncs each by itself, whatever file
//! system the tests run on. That the checks miss no sync is checked, too: with the syncs of one kind left out of the record, they
//! must fail.
//!
//! `RESYNCD_POWER_CUTS` is the number of steps after which the power is lost, or `all`; unset, a sample. Where processes can't be
//! traced, the tests print so and do nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use resyncd::clock;
use resyncd_core::ResourceUri;
use resyncd_mirror::plain_path;
use resyncd_testkit::{SampleOptions, SampleSource};
use rusqlite::Connection;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::hostile::PROCESSOR;
use crate::hostile::lossy_disk::{Dice, LOSSES, Loss, LossyDisk, Step, read_log};
use crate::hostile::traced::{Syncs, Tracer};
use crate::support::completeness::content_of_length;
use crate::support::process::{Home, Running, command};
use crate::support::{SET, difference, expected_files, files, resources};

/// After how many steps the power is lost by default; it is lost after each rename and each commit, too.
const SAMPLE: usize = 25;
/// The daemon continues after one loss in so many, and after at most so many in all.
const CONTINUES: (usize, usize) = (10, 100);
/// How many run at once.
const RUNS_AT_ONCE: usize = 4;
/// How many files of the baseline are in folders of their own: they are published many at once, while the first are.
const WIDE: usize = 64;
/// How often as many are published again at most, until they were synced together before they were renamed, and their folders after.
const TRIES: usize = 50;

/// A Source, and every version of every resource.
struct World {
    source: SampleSource,
    home: Home,
    /// By path in the mirror: the name, and its versions, all of the same length.
    versions: RefCell<BTreeMap<String, (String, Vec<String>)>>,
    number: Cell<usize>,
    /// The number of notifications that were acknowledged.
    published: Cell<u32>,
}

impl World {
    async fn new(digests: bool, syncs: Syncs) -> Self {
        let source = SampleSource::start(SampleOptions {
            digests,
            ..resources(0)
        })
        .await
        .unwrap();
        let world = Self {
            home: Home::new(&source.url(), ""),
            source,
            versions: RefCell::default(),
            number: Cell::new(0),
            published: Cell::new(0),
        };
        for name in [
            "r0", "r1", "r2", "r3", "long", "f/a", "f/b", "f/g/h/a", "f/g/h/b", "d/e", "f/gone",
        ] {
            world.write(name);
        }
        if syncs == Syncs::Together {
            (0..WIDE).for_each(|n| world.write(&format!("w/{n}/a")));
        }
        world.source.refresh_resource_list(SET);
        world
    }

    fn path(&self, name: &str) -> String {
        let uri = self.source.resource_uri(SET, name).to_string();
        uri.trim_start_matches("http://").to_owned()
    }

    /// Creates or updates a resource.
    fn write(&self, name: &str) {
        self.number.set(self.number.get() + 1);
        let length = if name == "long" {
            30_000
        } else {
            700 + 40 * name.len()
        };
        let bytes = content_of_length(self.number.get() + 1000, length);
        let path = self.path(name);
        if expected_files(&self.source, &[SET.to_owned()]).contains_key(&path) {
            self.source.update(SET, name, bytes.clone());
        } else {
            self.source.create(SET, name, bytes.clone());
        }
        let mut versions = self.versions.borrow_mut();
        let of_path = versions.entry(path);
        of_path
            .or_insert_with(|| (name.to_owned(), Vec::new()))
            .1
            .push(bytes);
    }

    async fn publish(&self) {
        let notification = self.source.notify(SET);
        let deliveries = self.source.publish(&notification).await.unwrap();
        assert!(
            deliveries.iter().all(|it| it.is_accepted()),
            "{deliveries:?}"
        );
        let delivered = u32::try_from(deliveries.len()).unwrap();
        self.published.set(self.published.get() + delivered);
        self.home.settled(&self.source).await;
    }

    /// Runs the daemon while `work` is done, and returns what it did to its files.
    async fn record(
        &self,
        tracer: &Tracer,
        syncs: Syncs,
        work: impl Future<Output = ()>,
    ) -> Vec<Step> {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut daemon = Running::start(&mut tracer.recording(&self.home, &log, syncs));
        self.home.settled(&self.source).await;
        work.await;
        let recorded = fs::read(&log).unwrap();
        let process = recorded.split(|&byte| byte == b'\n').next().unwrap();
        let process = std::str::from_utf8(process).unwrap();
        let stopped = Command::new("kill").args(["-TERM", process]).status();
        assert!(stopped.unwrap().success());
        let ended = daemon.wait_for_exit().await;
        assert_eq!(ended.code(), Some(0));
        read_log(&fs::read(&log).unwrap(), self.home.folder())
    }

    /// A baseline, notifications of changes, and a second process with more of them.
    async fn record_everything(&self, tracer: &Tracer, syncs: Syncs) -> Vec<Step> {
        let mut steps = self
            .record(tracer, syncs, async {
                for name in ["r0", "long", "f/a", "new", "n/e/w"] {
                    self.write(name);
                }
                self.source.delete(SET, "d/e");
                self.publish().await;
                for name in ["r0", "r1", "f/a", "d/e", "n/e/w"] {
                    self.write(name);
                }
                self.source.delete(SET, "f/gone");
                self.source.delete(SET, "new");
                self.publish().await;
            })
            .await;
        let more = self.record(tracer, syncs, async {
            for name in ["r0", "r2", "f/g/h/a", "n/e/x/t", "long"] {
                self.write(name);
            }
            self.source.delete(SET, "n/e/w");
            self.publish().await;
            self.write("f/b");
            self.write("new");
            self.publish().await;
        });
        steps.extend(more.await);
        // How many are published at once depends on how long the first of them take.
        let is_of_each_kind = |steps: &[Step]| {
            [true, false].map(|is_of_contents| syncs_together(steps, is_of_contents)) == [true; 2]
                && steps.iter().any(is_link)
        };
        for _ in 0..TRIES {
            if syncs == Syncs::Each || is_of_each_kind(&steps) {
                break;
            }
            let again = self.record(tracer, syncs, async {
                (0..WIDE).for_each(|n| self.write(&format!("w/{n}/a")));
                self.publish().await;
            });
            steps.extend(again.await);
        }
        steps
    }

    /// Checks what is left after a loss of power, before anything runs.
    fn check(&self, folder: &Path, acknowledged: u32) -> Result<(), String> {
        let mirrored = files(&folder.join("mirror"));
        let versions = self.versions.borrow();
        for (path, bytes) in &mirrored {
            let is_version = versions
                .get(path)
                .is_some_and(|(_, versions)| versions.iter().any(|it| it.as_bytes() == bytes));
            if !is_version {
                return Err(format!("{path} is no version: {} bytes", bytes.len()));
            }
        }
        let database = folder.join("state/resyncd.db");
        let claims = if database.exists() {
            Claims::read(&database).map_err(|error| format!("the database: {error}"))?
        } else {
            Claims::default()
        };
        if claims.received < acknowledged {
            let received = claims.received;
            return Err(format!(
                "{received} of {acknowledged} deliveries are stored"
            ));
        }
        for claim in &claims.files {
            let file = mirrored.get(&claim.path);
            let is_true = match file {
                Some(bytes) => !claim.deleted && states_sha256(&claim.hashes, bytes),
                None => claim.deleted,
            };
            if !is_true {
                return Err(format!("{claim:?}, the file is {file:?}"));
            }
        }
        Ok(())
    }

    /// Runs resyncd on what is left after a loss of power, and checks that the mirror is complete again.
    async fn complete(&self, folder: &Path) -> Result<(), String> {
        let mut sync = command(&folder.join("config.toml"));
        sync.arg("sync");
        let output = tokio::task::spawn_blocking(move || sync.output()).await;
        let output = output.unwrap().unwrap();
        let mut wrong = difference(
            &expected_files(&self.source, &[SET.to_owned()]),
            &files(&folder.join("mirror")),
        );
        let state = fs::read_dir(folder.join("state")).unwrap();
        for entry in state.map(|entry| entry.unwrap().file_name()) {
            if entry.to_string_lossy().contains("damaged") {
                write!(wrong, "{entry:?}").unwrap();
            }
        }
        if output.status.success() && wrong.is_empty() {
            return Ok(());
        }
        Err(format!("{wrong}\n{output:?}"))
    }

    /// Reverts every resource to the version before its newest one, which has the same length.
    fn revert(&self) {
        let state = expected_files(&self.source, &[SET.to_owned()]);
        for (path, (name, versions)) in self.versions.borrow().iter() {
            if let [.., former, _] = &versions[..]
                && state.contains_key(path)
            {
                self.source.update(SET, name, former.clone());
            }
        }
    }
}

/// What the database states.
#[derive(Default)]
struct Claims {
    received: u32,
    files: Vec<Claim>,
}

/// What it states of a file without a pending change.
#[derive(Debug)]
struct Claim {
    path: String,
    /// As they are stored.
    hashes: Vec<u8>,
    deleted: bool,
}

impl Claims {
    fn read(database: &Path) -> rusqlite::Result<Self> {
        let sql = Connection::open(database)?;
        // What the check itself writes need not be on disk.
        sql.pragma_update(None, "synchronous", "OFF")?;
        let check: String = sql.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        assert_eq!(check, "ok");
        let begun =
            "SELECT COUNT(*) FROM sqlite_schema WHERE name IN ('session', 'resource', 'channel')";
        if sql.query_row(begun, [], |row| row.get::<_, u32>(0))? < 3 {
            return Ok(Self::default());
        }
        let received = "SELECT COALESCE(SUM(received), 0) FROM channel";
        let received = sql.query_row(received, [], |row| row.get(0))?;
        let mut files = sql.prepare(
            "SELECT uri, path, CAST(hashes AS BLOB), deleted FROM resource WHERE applied_at IS NOT NULL AND doubted = 0
             AND NOT EXISTS (SELECT 1 FROM task WHERE resource_id = resource.id)",
        )?;
        let files = files.query_map([], |row| {
            // A plain path is not stored.
            let uri = ResourceUri::parse(&row.get::<_, String>(0)?).unwrap();
            let path = row.get::<_, Option<String>>(1)?;
            Ok(Claim {
                path: path.unwrap_or_else(|| plain_path(&uri).unwrap().to_string()),
                hashes: row.get(2)?,
                deleted: row.get(3)?,
            })
        })?;
        Ok(Self {
            received,
            files: files.collect::<rusqlite::Result<_>>()?,
        })
    }
}

/// Whether the digests of a row have the SHA-256 of these bytes.
fn states_sha256(hashes: &[u8], bytes: &[u8]) -> bool {
    let packed = [&[3], &Sha256::digest(bytes)[..]].concat();
    hashes.windows(packed.len()).any(|part| part == packed)
}

/// A loss of power after some of the steps.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "they are printed")]
struct Cut {
    steps: usize,
    loss: Loss,
    seed: u64,
}

/// After how many steps the power is lost, ascending.
fn cuts(steps: usize) -> Vec<usize> {
    let number = match std::env::var("RESYNCD_POWER_CUTS").as_deref() {
        Ok("all") => steps,
        Ok(number) => number.parse::<usize>().unwrap().min(steps),
        Err(_) => SAMPLE.min(steps),
    };
    (1..=number).map(|cut| cut * steps / number).collect()
}

fn is_acknowledgement(step: &Step) -> bool {
    match step {
        Step::Answer { head } => {
            head.starts_with("http/1.1 200") && head.contains("\r\ncontent-length: 0\r\n")
        }
        _ => false,
    }
}

/// A folder for what is left after a loss: there are many, and most of the time would go into creating files on a disk.
fn folder_in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// How often power was lost, and some of what was left then.
struct Losses {
    losses: u64,
    continued: Vec<(Cut, TempDir)>,
}

/// Loses power after some of the steps, after each rename and after each commit, and checks what is left; `Err` is the first promise
/// that is broken.
fn lose_power_after(world: &World, mut disk: LossyDisk, steps: &[&Step]) -> Result<Losses, String> {
    let cuts = cuts(steps.len());
    let mut continued: Vec<(Cut, TempDir)> = Vec::new();
    // A file that was published, and is not recorded yet: there most can go wrong.
    let is_rename = |step: &Step| matches!(step, Step::Rename { .. });
    let renames = steps.iter().filter(|step| is_rename(step)).count();
    let all = (cuts.len() / CONTINUES.0).clamp(1, CONTINUES.1) * 2;
    let every = (renames * LOSSES.len() / all).max(1);
    let (mut acknowledged, mut losses, mut published) = (0, 0, 0);
    let mut next = cuts.iter().peekable();
    for (index, step) in steps.iter().enumerate() {
        disk.apply(step);
        acknowledged += u32::from(is_acknowledgement(step));
        let is_cut = next.next_if(|cut| **cut == index + 1).is_some();
        let is_rename = is_rename(step);
        // After a commit the database states more than before.
        if !is_cut && !is_rename && !is_commit(step) {
            continue;
        }
        for loss in LOSSES {
            losses += 1;
            let cut = Cut {
                steps: index + 1,
                loss,
                seed: losses,
            };
            let survivor = folder_in_memory();
            disk.survive(loss, &mut Dice::new(cut.seed), survivor.path());
            if let Err(wrong) = world.check(survivor.path(), acknowledged) {
                return Err(format!("{cut:?}, after {step:?}: {wrong}"));
            }
            published += usize::from(is_rename);
            if is_rename && published % every == 0 {
                // Reading the database has changed its files.
                let survivor = folder_in_memory();
                disk.survive(loss, &mut Dice::new(cut.seed), survivor.path());
                continued.push((cut, survivor));
            }
        }
    }
    Ok(Losses { losses, continued })
}

/// Whether the sync at an index is one of a kind.
type IsOfKind = fn(&[Step], usize) -> bool;

/// Whether a path is synced.
fn syncs(step: &Step, is_meant: fn(&str) -> bool) -> bool {
    matches!(step, Step::Sync { path } if is_meant(path))
}

fn is_link(step: &Step) -> bool {
    matches!(step, Step::Link { .. })
}

fn is_commit(step: &Step) -> bool {
    syncs(step, |path| path == "state/resyncd.db-wal")
}

/// Whether the file system is synced for the contents of a batch, or for its folders: the sync of the folder of staged files follows,
/// or that of another one.
fn syncs_all(steps: &[Step], index: usize, is_of_contents: bool) -> bool {
    let is_staging = |path: &str| path == "mirror/.resyncd/work";
    let mut later = steps[index + 1..].iter();
    matches!(steps[index], Step::SyncAll { .. })
        && later.find_map(|step| match step {
            Step::Sync { path } if is_staging(path) => Some(true),
            Step::Sync { path } if is_folder_of_mirror(path) => Some(false),
            _ => None,
        }) == Some(is_of_contents)
}

fn is_folder_of_mirror(path: &str) -> bool {
    path.starts_with("mirror") && !path.contains("/.resyncd/")
}

fn syncs_together(steps: &[Step], is_of_contents: bool) -> bool {
    (0..steps.len()).any(|index| syncs_all(steps, index, is_of_contents))
}

/// Leaves out the syncs of one kind: each of them is needed, and the checks find that.
#[allow(clippy::print_stdout, reason = "the test reports its progress")]
fn check_that_missing_syncs_are_found(
    world: &World,
    disk: &LossyDisk,
    steps: &[Step],
    syncs_of: Syncs,
) {
    let together: [(&str, IsOfKind); 2] = [
        ("the contents of batches", |steps, at| {
            syncs_all(steps, at, true)
        }),
        ("the folders of batches", |steps, at| {
            syncs_all(steps, at, false)
        }),
    ];
    let each: [(&str, IsOfKind); 3] = [
        ("staged files", |steps, at| {
            syncs(&steps[at], |path| path.contains("/.resyncd/work/"))
        }),
        ("folders", |steps, at| {
            syncs(&steps[at], is_folder_of_mirror)
        }),
        ("the log of the database", |steps, at| is_commit(&steps[at])),
    ];
    let together = match syncs_of {
        Syncs::Together => &together[..],
        Syncs::Each => {
            let is_sync = |step: &Step| matches!(step, Step::SyncAll { .. });
            assert!(!steps.iter().any(is_sync), "it is denied");
            &[]
        }
    };
    assert_eq!(steps.iter().any(is_link), syncs_of == Syncs::Together);
    for (kind, is_of_kind) in each.iter().chain(together) {
        let rest = steps.iter().enumerate();
        let rest: Vec<&Step> = rest
            .filter_map(|(at, step)| (!is_of_kind(steps, at)).then_some(step))
            .collect();
        assert!(rest.len() < steps.len(), "{kind} are never synced");
        match lose_power_after(world, disk.clone(), &rest) {
            Err(wrong) => println!("without the syncs of {kind}: {wrong:.300}"),
            Ok(_) => panic!("the syncs of {kind} are not missed"),
        }
    }
}

/// Whether the kernel is one on which resyncd syncs file systems as a whole: Linux 5.17 or newer.
fn kernel_reports_errors() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release
        .split(['.', '-'])
        .map_while(|number| number.parse().ok())
        .collect();
    numbers[..2] >= [5, 17][..]
}

/// Loses power and checks what is left, and that resyncd completes it.
#[allow(clippy::print_stdout, reason = "the test reports its progress")]
async fn lose_power(digests: bool, syncs: Syncs) {
    if syncs == Syncs::Together && !kernel_reports_errors() {
        return println!("SKIPPED, on this kernel no file system is synced as a whole");
    }
    let tracer = match Tracer::new() {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIPPED, no power was lost: {why}"),
    };
    // Not beside the tests that open thousands of connections.
    let _permit = PROCESSOR.read().await;
    let started = clock::now().mono;
    let world = World::new(digests, syncs).await;
    let disk = LossyDisk::read(world.home.folder());
    let steps = world.record_everything(&tracer, syncs).await;
    println!(
        "recorded {} steps in {:?}",
        steps.len(),
        clock::now().mono - started
    );
    let answers = steps.iter().filter(|step| is_acknowledgement(step));
    assert_eq!(
        answers.map(|_| 1).sum::<u32>(),
        world.published.get(),
        "every answer is recorded"
    );
    if digests {
        check_that_missing_syncs_are_found(&world, &disk, &steps, syncs);
    }
    let all: Vec<&Step> = steps.iter().collect();
    let Losses { losses, continued } = lose_power_after(&world, disk, &all).unwrap();
    println!("{losses} losses in {:?}", clock::now().mono - started);
    let half = continued.len() / 2;
    complete_all(&world, &continued[..half]).await;
    world.revert();
    complete_all(&world, &continued[half..]).await;
    println!(
        "continued {} times, {:?} in all",
        continued.len(),
        clock::now().mono - started
    );
}

async fn complete_all(world: &World, survivors: &[(Cut, TempDir)]) {
    for some in survivors.chunks(RUNS_AT_ONCE) {
        let runs = some
            .iter()
            .map(|(_, survivor)| world.complete(survivor.path()));
        for ((cut, _), completed) in some.iter().zip(futures_util::future::join_all(runs).await) {
            if let Err(wrong) = completed {
                panic!("{cut:?}: {wrong}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn power_loss_at_any_step_breaks_no_promise() {
    lose_power(true, Syncs::Together).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn power_loss_where_the_source_states_no_digests_breaks_no_promise() {
    lose_power(false, Syncs::Together).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn power_loss_where_each_file_is_synced_by_itself_breaks_no_promise() {
    lose_power(true, Syncs::Each).await;
}

/// Somebody may have copied the files into the mirror a moment ago.
#[allow(clippy::print_stdout, reason = "the test reports that it does nothing")]
#[tokio::test(flavor = "multi_thread")]
async fn repair_syncs_the_files_that_it_adopts() {
    let tracer = match Tracer::new() {
        Ok(tracer) => tracer,
        Err(why) => return println!("SKIPPED, nothing was recorded: {why}"),
    };
    let _permit = PROCESSOR.read().await;
    let world = World::new(true, Syncs::Each).await;
    let home = &world.home;
    let output = home.run_command(&["sync"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::remove_dir_all(home.folder().join("state")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = tracer.recording(home, &log, Syncs::Each);
    let output = command.args(["audit", "--repair"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let steps = read_log(&fs::read(&log).unwrap(), home.folder());
    let last_commit = steps.iter().rposition(is_commit).unwrap();
    for path in world.versions.borrow().keys() {
        let file = format!("mirror/{path}");
        let mut before = steps[..last_commit].iter();
        let is_synced = |step: &Step| matches!(step, Step::Sync { path } if *path == file);
        assert!(before.any(is_synced), "{file} is not synced");
    }
}
