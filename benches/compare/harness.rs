//! What the comparisons share: the machine and its peers, folders on the disk that `target` is on, programs that are run and
//! measured, and the configuration of a resyncd that is compared.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::{self, Display};
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use resyncd::clock;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) type BenchResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The name of the Source in the configurations of [`Home`].
pub(crate) const NAME: &str = "bench";

/// How often the memory of a program is read that is being measured.
const SAMPLING: Duration = Duration::from_millis(10);

/// What every comparison gets.
pub(crate) struct Bench {
    /// Small sizes, which show only that each comparison runs.
    pub(crate) short: bool,
    /// How long the longest measurements take.
    pub(crate) minutes: u64,
    /// The resyncd that is measured.
    pub(crate) program: PathBuf,
    pub(crate) peers: Peers,
    work: TempDir,
    /// Locked while this program runs.
    _lock: File,
}

impl Bench {
    /// Removes what an earlier run has left behind, if it was killed.
    ///
    /// # Errors
    /// If the work would be in memory instead of on a disk, or while another run uses the same folder.
    pub(crate) fn new(short: bool, minutes: u64) -> BenchResult<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(target)?;
        if FileSystem::of(target)?.is_in_memory() {
            return Err(format!("{} is in memory; set CARGO_TARGET_DIR", target.display()).into());
        }
        let lock = File::create(target.join("compare.lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => format!("another run uses {}", target.display()).into(),
            TryLockError::Error(error) => Box::<dyn Error + Send + Sync>::from(error),
        })?;
        let parent = target.join("compare");
        if parent.exists() {
            std::fs::remove_dir_all(&parent)?;
        }
        std::fs::create_dir(&parent)?;
        let program = std::env::var_os("RESYNCD_PROGRAM").map_or_else(
            || PathBuf::from(env!("CARGO_BIN_EXE_resyncd")),
            PathBuf::from,
        );
        Ok(Self {
            short,
            minutes,
            program: program.canonicalize()?,
            peers: Peers::of(target),
            work: tempfile::tempdir_in(parent)?,
            _lock: lock,
        })
    }

    /// The size of a measurement in this form.
    pub(crate) fn size(&self, full: usize, short: usize) -> usize {
        if self.short { short } else { full }
    }

    /// How often each program runs whose median is used.
    pub(crate) fn rounds(&self) -> usize {
        self.size(3, 1)
    }

    /// An empty folder on the disk that `target` is on.
    pub(crate) fn folder(&self) -> BenchResult<TempDir> {
        Ok(tempfile::tempdir_in(self.work.path())?)
    }

    /// What is free on that disk, in bytes.
    pub(crate) fn free_disk(&self) -> BenchResult<u64> {
        let disk = rustix::fs::statvfs(self.work.path())?;
        Ok(disk.f_bavail * disk.f_frsize)
    }

    /// Prints on standard error what is being done.
    #[allow(clippy::print_stderr, reason = "the table goes to standard output")]
    pub(crate) fn progress(&self, what: impl Display) {
        eprintln!("compare: {what}");
    }

    /// The command `resyncd COMMAND`, with the configuration of a home.
    pub(crate) fn resyncd(&self, home: &Home, command: &str) -> Command {
        let mut resyncd = Command::new(&self.program);
        resyncd.arg("--config").arg(&home.config).arg(command);
        resyncd.env("RUST_LOG", "warn").current_dir(home.path());
        without_proxies(&mut resyncd);
        resyncd
    }

    /// Runs `resyncd sync`; it must exit with 0.
    pub(crate) fn sync(&self, home: &Home) -> BenchResult<Timed> {
        timed(&mut self.resyncd(home, "sync"))
    }

    /// What the figures depend on.
    pub(crate) fn machine(&self) -> BenchResult<String> {
        let processor = std::fs::read_to_string("/proc/cpuinfo")?;
        let processor = processor.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        let kernel = rustix::system::uname();
        let resyncd = version_of(&self.program, "--version", "resyncd ");
        Ok(format!(
            "resyncd {resyncd}, {} cores of {}, Linux {}, {}",
            std::thread::available_parallelism()?,
            processor.as_deref().unwrap_or("an unknown processor"),
            kernel.release().to_string_lossy(),
            FileSystem::of(self.work.path())?,
        ))
    }
}

/// Waits until everything that was written is on the disk, so that one measurement does not pay for another.
pub(crate) fn settle() {
    rustix::fs::sync();
}

/// A runtime for the servers of a comparison. They end when it is dropped.
pub(crate) fn runtime() -> BenchResult<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    Ok(runtime.worker_threads(2).enable_all().build()?)
}

/// An address of loopback that nothing listens on.
pub(crate) fn free_address() -> BenchResult<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Peers whose versions are printed: the option that prints it, and the text before it.
const PEERS: [(&str, &str, &str); 6] = [
    ("nginx", "-v", "nginx/"),
    ("curl", "--version", "curl "),
    ("resync-sync", "--help", "(v"),
    ("wrk", "-v", "wrk "),
    ("unzip", "-v", "UnZip "),
    ("aria2c", "--version", "aria2 version "),
];

/// The programs that resyncd is compared with.
pub(crate) struct Peers {
    folders: Vec<PathBuf>,
    /// Those that were searched for.
    found: Mutex<HashMap<&'static str, Option<PathBuf>>>,
}

impl Peers {
    /// `$RESYNCD_PEERS` or `target/peers`, where `benches/peers.sh` installs them, and what the machine has.
    fn of(target_tmp: &Path) -> Self {
        let installed = std::env::var_os("RESYNCD_PEERS").map_or_else(
            || target_tmp.with_file_name("peers"),
            |folder| std::path::absolute(&folder).unwrap_or_else(|_| folder.into()),
        );
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(installed.join("bin"))
            .chain(std::env::split_paths(&path))
            .chain([PathBuf::from("/usr/sbin")]);
        Self {
            folders: folders.collect(),
            found: Mutex::default(),
        }
    }

    /// The path of a peer. One that is installed but does not run, such as without its libraries, is missing.
    pub(crate) fn find(&self, name: &'static str) -> Result<PathBuf, Missing> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let path = found.entry(name).or_insert_with(|| {
            let mut paths = self.folders.iter().map(|folder| folder.join(name));
            paths.find(|path| path.is_file() && runs(name, path))
        });
        path.clone().ok_or(Missing(name))
    }

    /// The versions of those that run.
    pub(crate) fn versions(&self) -> String {
        let versions = PEERS.map(|(name, option, before)| match self.find(name) {
            Ok(path) => format!("{name} {}", version_of(&path, option, before)),
            Err(missing) => missing.to_string(),
        });
        versions.join("; ")
    }
}

/// Whether a program prints its version; its exit status means nothing, as `wrk -v` exits with 1.
fn runs(name: &str, program: &Path) -> bool {
    let peer = PEERS.iter().find(|(peer, _, _)| *peer == name);
    // objcopy, which measures but is not compared with.
    let (_, option, before) = peer.copied().unwrap_or((name, "--version", " "));
    output_of(program, option).contains(before)
}

/// A peer is not installed, or does not run: what needs it is skipped.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no {0}")]
pub(crate) struct Missing(&'static str);

/// The version of a program: the word that follows a text in what it prints.
fn version_of(program: &Path, option: &str, before: &str) -> String {
    let text = output_of(program, option);
    let version = text.split_once(before).map(|(_, after)| after);
    let word = version.and_then(|it| it.split_whitespace().next());
    word.unwrap_or("of an unknown version")
        .trim_end_matches(')')
        .to_owned()
}

/// What a program prints on standard output and standard error; nothing if it can't be started.
fn output_of(program: &Path, option: &str) -> String {
    let output = Command::new(program)
        .arg(option)
        .stdin(Stdio::null())
        .output();
    let output = output.map_or_else(|_| Vec::new(), |it| [it.stdout, it.stderr].concat());
    String::from_utf8_lossy(&output).into_owned()
}

/// Removes the proxies of the environment: everything is on loopback.
fn without_proxies(command: &mut Command) {
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command.env("no_proxy", "*").env("NO_PROXY", "*");
}

/// The file system of a folder.
struct FileSystem {
    device: String,
    /// Such as `ext4`.
    kind: String,
}

impl FileSystem {
    fn of(folder: &Path) -> BenchResult<Self> {
        let folder = folder.canonicalize()?;
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let mounts = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        });
        let around = mounts.filter(|(_, point, _)| folder.starts_with(point));
        // The last of the longest: a later mount hides an earlier one.
        let innermost = around.max_by_key(|(_, point, _)| point.len());
        let (device, _, kind) = innermost.unwrap_or(("unknown", "", "unknown"));
        Ok(Self {
            device: device.to_owned(),
            kind: kind.to_owned(),
        })
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs")
    }

    /// Whether it is ext4 without a journal, where a new file costs many times as much for minutes after others were deleted:
    /// the allocator of inodes passes over each one that was deleted recently.
    fn lacks_journal(&self) -> bool {
        // `/dev/mapper/NAME` is a symlink. Of `/dev/root` nothing is found.
        let device = Path::new(&self.device).canonicalize();
        let device = device.as_deref().unwrap_or(Path::new(&self.device));
        let options = Path::new("/proc/fs/ext4").join(device.file_name().unwrap_or_default());
        let options = options.join("options");
        // A journal has a mode, such as `data=ordered`.
        self.kind == "ext4"
            && std::fs::read_to_string(options)
                .is_ok_and(|options| !options.lines().any(|line| line.starts_with("data=")))
    }
}

impl Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.lacks_journal() {
            f.write_str(" without a journal (creating files is slow after others were deleted)")?;
        }
        Ok(())
    }
}

/// What a program needed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timed {
    pub(crate) wall: Duration,
    /// User and system time, with that of the processes it has waited for.
    pub(crate) cpu: Duration,
    /// The peak of its resident memory, in bytes.
    pub(crate) max_rss: u64,
}

impl Timed {
    pub(crate) fn seconds(&self) -> f64 {
        self.wall.as_secs_f64()
    }
}

impl Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} s (CPU {:.2} s, {:.0} MiB)",
            self.seconds(),
            self.cpu.as_secs_f64(),
            mebibytes(self.max_rss)
        )
    }
}

/// One after the other.
impl Add for Timed {
    type Output = Self;

    fn add(self, next: Self) -> Self {
        Self {
            wall: self.wall + next.wall,
            cpu: self.cpu + next.cpu,
            max_rss: self.max_rss.max(next.max_rss),
        }
    }
}

/// Runs a program, without proxies, and measures it. Its output is dropped.
///
/// # Errors
/// If it does not exit with 0; with the end of its standard error.
pub(crate) fn timed(command: &mut Command) -> BenchResult<Timed> {
    let mut errors = tempfile::tempfile()?;
    without_proxies(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.try_clone()?);
    let started = clock::now().mono;
    let mut child = command.spawn()?;
    let ended = AtomicBool::new(false);
    let measured = std::thread::scope(|scope| -> BenchResult<Timed> {
        let sampler = scope.spawn(|| peak_until(&child, &ended));
        // The process is not reaped yet, so that its times can still be read.
        let waited = waitid(
            WaitId::Pid(Pid::from_child(&child)),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        );
        let wall = clock::now().mono - started;
        ended.store(true, Ordering::Relaxed);
        let max_rss = sampler.join().unwrap_or_default();
        waited?;
        Ok(Timed {
            wall,
            cpu: cpu_of(child.id())?,
            max_rss,
        })
    });
    let status = child.wait()?;
    if status.success() {
        return measured;
    }
    let mut text = Vec::new();
    errors.seek(SeekFrom::Start(0))?;
    errors.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let end = text.len().saturating_sub(2000);
    let end = text.get(end..).unwrap_or(&text);
    Err(format!(
        "{} failed, {status}: {end}",
        command.get_program().display()
    )
    .into())
}

/// The peak of a process's memory until it has ended.
fn peak_until(child: &Child, ended: &AtomicBool) -> u64 {
    let mut peak = 0;
    while !ended.load(Ordering::Relaxed) {
        // Once the process has ended there is nothing to read.
        peak = peak.max(memory_of(child.id(), "VmHWM").unwrap_or_default());
        std::thread::sleep(SAMPLING);
    }
    peak
}

/// A figure of a process's memory in bytes: `VmRSS` (now) or `VmHWM` (its peak).
pub(crate) fn memory_of(process: u32, figure: &str) -> BenchResult<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(figure));
    let value = value.ok_or("the process has no memory")?;
    let kibibytes: u64 = value.trim_matches([':', ' ', '\t', 'k', 'B']).parse()?;
    Ok(kibibytes << 10)
}

/// The user and system time of a process and of those that it has waited for.
pub(crate) fn cpu_of(process: u32) -> BenchResult<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name may have spaces and parentheses. After it, the times are the fields 12 to 15 (proc(5): 14 to 17).
    let (_, fields) = stat.rsplit_once(')').ok_or("not the stat of a process")?;
    let mut ticks = 0;
    for field in fields.split_whitespace().skip(11).take(4) {
        ticks += field.parse::<u64>()?;
    }
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(ticks * 1000 / per_second))
}

/// Runs several measurements by turns, and returns the median of each.
pub(crate) fn by_turns<const N: usize>(
    rounds: usize,
    mut runs: [&mut dyn FnMut() -> BenchResult<Timed>; N],
) -> BenchResult<[Timed; N]> {
    let mut results: [Vec<Timed>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..rounds {
        for (run, results) in runs.iter_mut().zip(&mut results) {
            settle();
            results.push(run()?);
        }
    }
    Ok(results.map(|mut of_one| {
        of_one.sort_unstable_by_key(|timed| timed.wall);
        of_one[of_one.len() / 2]
    }))
}

/// The folders of a resyncd: its configuration, state and mirrors. They are removed at the end.
pub(crate) struct Home {
    folder: TempDir,
    pub(crate) config: PathBuf,
    /// The status listener.
    pub(crate) status: SocketAddr,
}

impl Home {
    /// A resyncd that follows one Source. `keys`: further ones of its table.
    pub(crate) fn of_source(bench: &Bench, url: &str, keys: &str) -> BenchResult<Self> {
        Self::create(bench, "", &source_table(NAME, url, keys))
    }

    /// `http`: further keys of the table `[http]`; `tables`: all that follows.
    pub(crate) fn create(bench: &Bench, http: &str, tables: &str) -> BenchResult<Self> {
        let folder = bench.folder()?;
        let (status, callback) = (free_address()?, free_address()?);
        let config = folder.path().join("config.toml");
        let text = format!(
            "state_dir = \"state\"\n\
             [callback]\nlisten = \"{callback}\"\npublic_url = \"http://{callback}/\"\n\
             [status]\nlisten = \"{status}\"\n\
             [http]\nallow_private_addresses = true\n{http}\n{tables}"
        );
        std::fs::write(&config, text)?;
        Ok(Self {
            folder,
            config,
            status,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// The mirror of [`of_source`](Self::of_source)'s only Source.
    pub(crate) fn mirror(&self) -> PathBuf {
        self.path().join("mirrors").join(NAME)
    }
}

/// The table of a Source in a configuration; its mirror is `mirrors/NAME`.
pub(crate) fn source_table(name: &str, url: &str, keys: &str) -> String {
    format!("[[source]]\nname = \"{name}\"\nurl = \"{url}\"\nmirror = \"mirrors/{name}\"\n{keys}\n")
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
