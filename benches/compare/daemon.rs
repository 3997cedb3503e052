//! The daemon as a process of its own, as it is installed: its configuration, its status endpoint, and what the system counts of it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use resyncd::clock;
use resyncd::status::{SetStatus, Status};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::harness::{Bench, BenchResult, free_address};

/// How long a daemon may take to start or to stop, or to answer a request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often a condition is checked that no event announces.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The label of the only Source of [`Home::follow`].
const NAME: &str = "bench";

/// The folder of one daemon: configuration, database, mirror and log.
pub(crate) struct Home {
    folder: TempDir,
    program: PathBuf,
    config: PathBuf,
    status: SocketAddr,
}

impl Home {
    /// A daemon that follows a Source at `url`, with the mirror in [`Home::mirror`]. `keys` are added to its `[[source]]`.
    pub(crate) fn follow(bench: &Bench, url: &str, keys: &str) -> BenchResult<Self> {
        let source =
            format!("[[source]]\nname = \"{NAME}\"\nurl = \"{url}\"\nmirror = \"mirror\"\n{keys}");
        Self::with_sources(bench, &source)
    }

    /// A daemon with these `[[source]]` tables.
    pub(crate) fn with_sources(bench: &Bench, sources: &str) -> BenchResult<Self> {
        let folder = tempfile::tempdir_in(bench.work.path())?;
        let (callback, status) = (free_address()?, free_address()?);
        let mut text = String::new();
        write!(
            text,
            "state_dir = \"state\"\n\
             [callback]\nlisten = \"{callback}\"\npublic_url = \"http://{callback}/\"\n\
             [status]\nlisten = \"{status}\"\n\
             [http]\nallow_private_addresses = true\n{sources}\n"
        )?;
        let config = folder.path().join("config.toml");
        fs::write(&config, text)?;
        Ok(Self {
            folder,
            program: bench.program.clone(),
            config,
            status,
        })
    }

    /// The folder of all the others.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of the database.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The mirror of the only Source.
    pub(crate) fn mirror(&self) -> PathBuf {
        self.folder.path().join("mirror")
    }

    /// The folder in the mirror of the resources below a path of a host.
    pub(crate) fn mirrored(&self, authority: &str, path: &str) -> PathBuf {
        self.mirror().join(authority).join(path)
    }

    /// Starts the daemon, and waits until its listeners are bound and its database is open.
    pub(crate) fn run(&self) -> BenchResult<Daemon> {
        let log = self.folder.path().join("daemon.log");
        let started = clock::now().mono;
        let child = Command::new(&self.program)
            .arg("--config")
            .arg(&self.config)
            .arg("run")
            .env_remove("RESYNCD_CONFIG")
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET")
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        let mut daemon = Daemon {
            child,
            status: self.status,
            log,
            started,
            ready_after: Duration::ZERO,
        };
        daemon.until("ready", TIMEOUT, |daemon| {
            Ok(daemon.get("/readyz").is_ok_and(|answer| answer.code == 200))
        })?;
        daemon.ready_after = clock::now().mono - started;
        Ok(daemon)
    }
}

/// A running daemon. It is stopped when it is dropped.
pub(crate) struct Daemon {
    child: Child,
    status: SocketAddr,
    log: PathBuf,
    started: Instant,
    /// The time from the start of the process until `/readyz` answered 200.
    pub(crate) ready_after: Duration,
}

/// An answer of the status endpoint.
pub(crate) struct Answer {
    /// The status code.
    pub(crate) code: u16,
    /// The body.
    pub(crate) body: String,
}

impl Daemon {
    /// The time since the process was started.
    pub(crate) fn age(&self) -> Duration {
        clock::now().mono - self.started
    }

    /// Requests a path of the status endpoint.
    pub(crate) fn get(&self, path: &str) -> BenchResult<Answer> {
        self.request("GET", path)
    }

    /// Requests a poll of a Source.
    pub(crate) fn poll(&self, source: &str) -> BenchResult<()> {
        let answer = self.request("POST", &format!("/sources/{source}/poll"))?;
        if answer.code == 202 {
            return Ok(());
        }
        Err(format!("a poll was answered {}: {}", answer.code, answer.body).into())
    }

    /// HTTP/1.0: the answer ends with the connection.
    fn request(&self, method: &str, path: &str) -> BenchResult<Answer> {
        let mut connection = TcpStream::connect(self.status)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_nodelay(true)?;
        let head =
            format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        connection.write_all(head.as_bytes())?;
        let mut text = String::new();
        connection.read_to_string(&mut text)?;
        let (head, body) = text
            .split_once("\r\n\r\n")
            .ok_or("an answer without a head")?;
        let code = head
            .split(' ')
            .nth(1)
            .ok_or("an answer without a status code")?;
        Ok(Answer {
            code: code.parse()?,
            body: body.to_owned(),
        })
    }

    /// What `/status` states.
    pub(crate) fn status(&self) -> BenchResult<Status> {
        let answer = self.get("/status")?;
        if answer.code != 200 {
            return Err(format!("/status answered {}: {}", answer.code, answer.body).into());
        }
        Ok(serde_json::from_str(&answer.body)?)
    }

    /// The status of all sets of all Sources.
    pub(crate) fn sets(&self) -> BenchResult<Vec<SetStatus>> {
        let sources = self.status()?.sources;
        Ok(sources.into_iter().flat_map(|source| source.sets).collect())
    }

    /// Waits until a condition holds; fails if the process has ended, or after `timeout`.
    pub(crate) fn until(
        &mut self,
        what: &str,
        timeout: Duration,
        mut holds: impl FnMut(&Self) -> BenchResult<bool>,
    ) -> BenchResult<()> {
        let begun = clock::now().mono;
        while !holds(self)? {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("the daemon has ended with {status}: {}", self.log_end()).into());
            }
            if clock::now().mono - begun > timeout {
                return Err(
                    format!("{what}: not within {timeout:?}; the log ends with {}", self.log_end()).into(),
                );
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    /// Waits until there are so many sets, all in sync with nothing pending, and with active channels.
    pub(crate) fn until_settled(&mut self, sets: usize, timeout: Duration) -> BenchResult<()> {
        self.until("in sync", timeout, |daemon| {
            let found = daemon.sets()?;
            let is_settled = |set: &SetStatus| {
                set.state == "in-sync"
                    && set.pending == 0
                    && set.channels.iter().all(|channel| channel.state == "active")
            };
            Ok(found.len() == sets && found.iter().all(is_settled))
        })
    }

    /// Waits until the log has so many lines that contain a text; fails if one is a warning or an error.
    pub(crate) fn until_logged(
        &mut self,
        text: &str,
        times: usize,
        timeout: Duration,
    ) -> BenchResult<()> {
        self.until(text, timeout, |daemon| {
            let log = fs::read_to_string(&daemon.log)?;
            match log.lines().find(|line| is_warning(line)) {
                Some(line) => Err(line.to_owned().into()),
                None => Ok(log.lines().filter(|line| line.contains(text)).count() >= times),
            }
        })
    }

    /// Fails if the log has a warning or an error.
    pub(crate) fn expect_no_warnings(&self) -> BenchResult<()> {
        let log = fs::read_to_string(&self.log)?;
        match log.lines().find(|line| is_warning(line)) {
            Some(line) => Err(line.to_owned().into()),
            None => Ok(()),
        }
    }

    /// The last lines of the log.
    fn log_end(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// The resident memory now, in bytes.
    pub(crate) fn memory(&self) -> BenchResult<u64> {
        self.memory_field("VmRSS:")
    }

    /// The peak of the resident memory, in bytes.
    pub(crate) fn peak_memory(&self) -> BenchResult<u64> {
        self.memory_field("VmHWM:")
    }

    fn memory_field(&self, name: &str) -> BenchResult<u64> {
        let status = fs::read_to_string(self.proc("status"))?;
        let kibibytes = field(&status, name).ok_or_else(|| format!("no {name}"))?;
        Ok(kibibytes << 10)
    }

    /// The CPU time that the process has used.
    pub(crate) fn cpu(&self) -> BenchResult<Duration> {
        let stat = fs::read_to_string(self.proc("stat"))?;
        // The name of the program, in parentheses, may contain spaces.
        let (_, fields) = stat.rsplit_once(')').ok_or("no stat")?;
        let mut ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
        let (user, system) = (
            ticks.next().ok_or("no utime")??,
            ticks.next().ok_or("no stime")??,
        );
        let hertz = u32::try_from(rustix::param::clock_ticks_per_second())?;
        Ok(Duration::from_secs(1) * (user + system) / hertz)
    }

    /// How often the threads of the process have begun to wait, each once for a wake-up.
    pub(crate) fn wake_ups(&self) -> BenchResult<u64> {
        let mut sum = 0;
        for thread in fs::read_dir(self.proc("task"))? {
            // A thread may end meanwhile.
            let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
            sum += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        }
        Ok(sum)
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.child.id()))
    }

    /// Stops the daemon with SIGTERM; fails if it does not end, or not with status 0.
    pub(crate) fn stop(mut self) -> BenchResult<()> {
        self.terminate();
        let begun = clock::now().mono;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(format!("the daemon has ended with {status}: {}", self.log_end()).into());
                }
                None if clock::now().mono - begun > TIMEOUT => {
                    return Err("the daemon does not stop".into());
                }
                None => std::thread::sleep(CHECK_INTERVAL),
            }
        }
    }

    fn terminate(&self) {
        // Fails if the process has ended.
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = id.map(|id| kill_process(id, Signal::TERM));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What goes wrong here has no effect on what was measured.
        self.terminate();
        let begun = clock::now().mono;
        while clock::now().mono - begun < Duration::from_secs(10) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a line of the log is a warning or an error.
fn is_warning(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.any(|word| matches!(word, "WARN" | "ERROR"))
}

/// The number in a field of a file of `/proc`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
