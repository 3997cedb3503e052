//! The daemon as a process of its own, as it is installed: its configuration, its status endpoint, and what the system counts of it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use resyncd::clock;
use resyncd::status::{SetStatus, Status};
use rustix::process::{Pid, Signal, kill_process};

use super::harness::{Bench, BenchResult, Home, cpu_of, memory_of};

/// How long a daemon may take to start or to stop, or to answer a request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take to stop after a comparison has failed.
const SHORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a condition is checked that no event announces.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A running daemon. It is stopped when it is dropped.
pub(crate) struct Daemon {
    child: Child,
    status: SocketAddr,
    log: PathBuf,
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

/// The wake-ups of the threads that exist, by their ids.
pub(crate) struct WakeUps(HashMap<u32, u64>);

impl WakeUps {
    /// How many there were after `before`, of the threads that still exist. Those of a thread that has ended are not known.
    pub(crate) fn since(&self, before: &Self) -> u64 {
        let of_threads = self.0.iter().map(|(id, count)| {
            let earlier = before.0.get(id).copied().unwrap_or(0);
            count.saturating_sub(earlier)
        });
        of_threads.sum()
    }
}

impl Daemon {
    /// Starts the daemon of a home, and waits until its listeners are bound and its database is open.
    pub(crate) fn start(bench: &Bench, home: &Home) -> BenchResult<Self> {
        let log = home.path().join("daemon.log");
        let started = clock::now().mono;
        let child = bench
            .resyncd(home, "run")
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET")
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        let mut daemon = Self {
            child,
            status: home.status,
            log,
            ready_after: Duration::ZERO,
        };
        daemon.until("ready", TIMEOUT, |daemon| {
            Ok(daemon.get("/readyz").is_ok_and(|answer| answer.code == 200))
        })?;
        daemon.ready_after = clock::now().mono - started;
        Ok(daemon)
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
                return Err(
                    format!("the daemon has ended with {status}: {}", self.log_end()).into(),
                );
            }
            if clock::now().mono - begun > timeout {
                return Err(format!(
                    "{what}: not within {timeout:?}; the log ends with {}",
                    self.log_end()
                )
                .into());
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
        memory_of(self.child.id(), "VmRSS")
    }

    /// The peak of the resident memory, in bytes.
    pub(crate) fn peak_memory(&self) -> BenchResult<u64> {
        memory_of(self.child.id(), "VmHWM")
    }

    /// The CPU time that the process has used.
    pub(crate) fn cpu(&self) -> BenchResult<Duration> {
        cpu_of(self.child.id())
    }

    /// How often each thread of the process has begun to wait, each time for one wake-up.
    pub(crate) fn wake_ups(&self) -> BenchResult<WakeUps> {
        let mut of_threads = HashMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let thread = thread?;
            // A thread may end meanwhile.
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let switches = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            if let Some(count) = switches {
                let id = thread.file_name().to_string_lossy().parse()?;
                of_threads.insert(id, count.trim().parse()?);
            }
        }
        if of_threads.is_empty() {
            return Err("the system counts no context switches".into());
        }
        Ok(WakeUps(of_threads))
    }

    /// Stops the daemon with SIGTERM; fails if it does not end, or not with status 0.
    pub(crate) fn stop(mut self) -> BenchResult<()> {
        match self.terminate(TIMEOUT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                Err(format!("the daemon has ended with {status}: {}", self.log_end()).into())
            }
            None => Err("the daemon does not stop".into()),
        }
    }

    /// Sends SIGTERM, and waits for the end.
    fn terminate(&mut self, timeout: Duration) -> BenchResult<Option<ExitStatus>> {
        let begun = clock::now().mono;
        // Fails if the process has ended.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        while clock::now().mono - begun < timeout {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(None)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing is left to do if [`Self::stop`] was called, or if this fails.
        if let Ok(None) = self.child.try_wait()
            && !matches!(self.terminate(SHORT_TIMEOUT), Ok(Some(_)))
        {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether a line of the log is a warning or an error.
fn is_warning(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.any(|word| matches!(word, "WARN" | "ERROR"))
}
