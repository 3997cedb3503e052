//! Runs the program of a hook: lines on its standard input, its exit status, the end of what it writes to standard error.
//!
//! Invariants: no shell interprets anything; the program gets few environment variables, and none that the daemon may have secrets in.
//! It has a process group of its own, which is ended when the time is over or the daemon stops, and with it what has left the group. Its
//! process id is not used after it was reaped: a thread waits for its end, and reaps it only then when nothing will be sent to it any more.
//! A stop is not delayed for long by a program that can't be killed: it waits for a disk, or for a file system.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, io, thread};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::leftover_processes::{RUN, kill_leftovers, run_id};

/// How long a program that is to end has for it.
const GRACE: Duration = Duration::from_secs(5);
/// How long the end of a program that was killed is waited for when its hook stops.
const KILLED: Duration = Duration::from_secs(5);
/// How long what has left its process group is searched for. To read the environment of a process that waits for a disk may take any
/// time.
const SEARCH: Duration = Duration::from_secs(5);
/// How long what a program has written is read after its end: what it has started may hold the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much of the end of standard error is kept, in bytes, and how many lines of it.
const MOST_ERRORS: usize = 600;
const MOST_LINES: usize = 8;
/// The environment variables of the daemon that a program gets.
const PASSED_ON: [&str; 9] = [
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
];

/// What is run.
#[derive(Debug)]
pub(in crate::engine) struct CommandRun<'a> {
    pub(in crate::engine) program: &'a Path,
    pub(in crate::engine) arguments: &'a [String],
    /// Environment variables besides the usual ones.
    pub(in crate::engine) variables: Vec<(&'static str, OsString)>,
    /// What it gets on its standard input.
    pub(in crate::engine) input: &'a [u8],
    pub(in crate::engine) timeout: Duration,
}

/// Why a program has not accepted its input.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum CommandError {
    /// It could not be started.
    #[error("{program} cannot be run: {error}")]
    NotStarted { program: String, error: io::Error },
    /// Its exit status is not 0.
    #[error("the program has ended with {status}{errors}")]
    Failed { status: ExitStatus, errors: String },
    /// It has taken too long, and was ended.
    #[error("the program has taken longer than {} s and was ended{errors}", .timeout.as_secs_f32())]
    Timeout { timeout: Duration, errors: String },
    /// It was ended because the daemon, or the hook, stops.
    #[error("the program was ended because its hook stops")]
    Stopped,
}

impl CommandError {
    /// The stable code of the error, in kebab-case.
    pub(in crate::engine) fn code(&self) -> &'static str {
        match self {
            Self::NotStarted { .. } => "command-not-started",
            Self::Failed { .. } => "command-failed",
            Self::Timeout { .. } => "command-timeout",
            Self::Stopped => "interrupted",
        }
    }
}

/// Runs a program until it has ended. If this is dropped, what it runs is killed.
pub(in crate::engine) async fn run_command(
    run: &CommandRun<'_>,
    stop: &CancellationToken,
) -> Result<(), CommandError> {
    let not_started = |error| CommandError::NotStarted {
        program: run.program.display().to_string(),
        error,
    };
    let id = run_id();
    let started = Process::start(command(run, id.as_deref()), id).await;
    let (process, [stdin, stderr]) = started.map_err(not_started)?;
    let stdin = pipe::Sender::from_owned_fd(stdin).map_err(not_started)?;
    let stderr = pipe::Receiver::from_owned_fd(stderr).map_err(not_started)?;
    let errors = Mutex::new(Tail::default());
    let has_ended = process.ended.clone();
    let serving = async {
        tokio::join!(write(stdin, run.input), read(stderr, &errors));
        has_ended.cancelled().await;
    };
    let last_words = async {
        has_ended.cancelled().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let ended = async {
        tokio::select! {
            () = serving => {}
            () = last_words => {}
        }
    };
    let in_time = tokio::select! {
        biased;
        // Of one that has ended the result counts: what it has written since is not waited for.
        () = stop.cancelled() => if process.has_exited() {
            true
        } else {
            if process.end(stop).await {
                // It is reaped then.
                let _ = process.status().await;
            }
            return Err(CommandError::Stopped);
        },
        in_time = tokio::time::timeout(run.timeout, ended) => in_time.is_ok(),
    };
    if !in_time && !process.has_exited() {
        if !process.end(stop).await {
            return Err(CommandError::Stopped);
        }
        let _ = process.status().await;
        let (timeout, errors) = (run.timeout, errors.lock().text());
        return Err(CommandError::Timeout { timeout, errors });
    }
    let status = process.status().await.map_err(not_started)?;
    let errors = errors.lock().text();
    if status.success() {
        Ok(())
    } else {
        Err(CommandError::Failed { status, errors })
    }
}

fn command(run: &CommandRun<'_>, id: Option<&str>) -> Command {
    let mut command = Command::new(run.program);
    let passed = PASSED_ON.iter();
    let passed = passed.filter_map(|name| Some((*name, env::var_os(name)?)));
    command
        .args(run.arguments)
        .env_clear()
        .envs(passed)
        .envs(run.variables.iter().map(|(name, value)| (*name, value)))
        .envs(id.map(|id| (RUN, id)))
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Writes everything, and closes the pipe. A program need not read it all.
async fn write(mut stdin: pipe::Sender, input: &[u8]) {
    let _ = stdin.write_all(input).await;
}

async fn read(mut stderr: pipe::Receiver, tail: &Mutex<Tail>) {
    let mut bytes = vec![0; 4096];
    while let Ok(length) = stderr.read(&mut bytes).await
        && length > 0
    {
        tail.lock().add(&bytes[..length]);
    }
}

/// The end of what a program writes.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let excess = self.0.len().saturating_sub(MOST_ERRORS);
        self.0.drain(..excess);
    }

    /// The last lines in one, after a colon; empty: there are none.
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.collect();
        let lines = &lines[lines.len().saturating_sub(MOST_LINES)..];
        match lines {
            [] => String::new(),
            lines => format!(": {}", lines.join(" | ")),
        }
    }
}

/// A program that was started. Dropping it kills its process group, and has it reaped.
struct Process {
    pid: Pid,
    /// What the environment of its processes has; `None`: only its group is known.
    id: Option<String>,
    /// Cancelled when it has ended. It is not reaped then.
    ended: CancellationToken,
    /// Has it reaped by being dropped.
    reap: Option<mpsc::Sender<()>>,
    status: Option<oneshot::Receiver<io::Result<ExitStatus>>>,
}

/// The id of a process, and the other ends of its standard input and standard error.
type Started = (Pid, [OwnedFd; 2]);

impl Process {
    /// Starts a process, and a thread that waits for its end: starting one may wait for a file system.
    async fn start(mut command: Command, id: Option<String>) -> io::Result<(Self, [OwnedFd; 2])> {
        let (started, starts) = oneshot::channel::<io::Result<Started>>();
        let (reap, reaps) = mpsc::channel::<()>();
        let (result, status) = oneshot::channel();
        let ended = CancellationToken::new();
        let ends = ended.clone();
        let attending = move || {
            let spawned = command.spawn().and_then(|mut child| {
                let pipes = pipes(&mut child)?;
                Ok((child, pipes))
            });
            let (mut child, pipes) = match spawned {
                Ok(spawned) => spawned,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let pid = Pid::from_child(&child);
            if started.send(Ok((pid, pipes))).is_err() {
                signal(pid, Signal::KILL);
            }
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), options));
            ends.cancel();
            // An error: it was dropped, which is what is waited for.
            let _ = reaps.recv();
            let _ = result.send(child.wait());
        };
        thread::Builder::new()
            .name("hook".to_owned())
            .spawn(attending)?;
        let (pid, pipes) = starts
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        let process = Self {
            pid,
            id,
            ended,
            reap: Some(reap),
            status: Some(status),
        };
        Ok((process, pipes))
    }

    /// Whether the process has ended, also if its thread has not noticed it yet. It is not reaped by this.
    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let found = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(self.pid), options));
        found.is_ok_and(|found| found.is_some())
    }

    /// Has the process end, and kills what is left of its group and what has left the group. Returns whether it has ended: if not, the
    /// hook stops, and it can't be killed for now.
    async fn end(&self, stop: &CancellationToken) -> bool {
        signal(self.pid, Signal::TERM);
        // Whether it has ended or not.
        let _ = tokio::time::timeout(GRACE, self.ended.cancelled()).await;
        signal(self.pid, Signal::KILL);
        let ended = async {
            if let Some(id) = self.id.clone() {
                kill_leftovers(Path::new("/proc"), &id, SEARCH).await;
            }
            self.ended.cancelled().await;
        };
        let given_up = async {
            stop.cancelled().await;
            tokio::time::sleep(KILLED).await;
        };
        tokio::select! {
            biased;
            () = ended => true,
            () = given_up => false,
        }
    }

    /// The exit status of a process that has ended. What it has started goes on.
    async fn status(mut self) -> io::Result<ExitStatus> {
        drop(self.reap.take());
        let status = self.status.take();
        match status {
            Some(status) => status
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
            None => Err(io::ErrorKind::Other.into()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.reap.is_some() {
            signal(self.pid, Signal::KILL);
        }
    }
}

/// Sends a signal to a process group of which the first process was not reaped: its id is still that of this group.
fn signal(pid: Pid, signal: Signal) {
    // An error: all of them have ended.
    let _ = kill_process_group(pid, signal);
}

fn pipes(child: &mut Child) -> io::Result<[OwnedFd; 2]> {
    match (child.stdin.take(), child.stderr.take()) {
        (Some(stdin), Some(stderr)) => Ok([stdin.into(), stderr.into()]),
        // They were asked for.
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Ends a test that would hang.
    const LONG: Duration = Duration::from_secs(180);
    const SHELL: &str = "/bin/sh";

    async fn run(
        script: &str,
        input: &[u8],
        timeout: Duration,
        stop: &CancellationToken,
    ) -> Result<(), CommandError> {
        let arguments = ["-c".to_owned(), script.to_owned()];
        let run = CommandRun {
            program: Path::new(SHELL),
            arguments: &arguments,
            variables: vec![("RESYNCD_SOURCE", "example".into())],
            input,
            timeout,
        };
        tokio::time::timeout(LONG, run_command(&run, stop))
            .await
            .unwrap()
    }

    async fn outcome(script: &str, input: &[u8]) -> Result<(), String> {
        let stop = CancellationToken::new();
        let ended = run(script, input, LONG, &stop).await;
        ended.map_err(|error| format!("{}: {error}", error.code()))
    }

    #[tokio::test]
    async fn program_accepts_its_input_by_exit_status_0() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let script = format!("cat > {}", file.display());
        // More than a pipe holds.
        let input = "a line\n".repeat(100_000);
        outcome(&script, input.as_bytes()).await.unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), input);
        // What is not read is accepted, too.
        outcome("exit 0", input.as_bytes()).await.unwrap();
        let variables = "test \"$RESYNCD_SOURCE\" = example && test -z \"$CARGO_MANIFEST_DIR\" && test \"$PWD\" = /";
        outcome(variables, b"").await.unwrap();
    }

    #[tokio::test]
    async fn failure_has_the_last_lines_of_standard_error() {
        let script = "seq 1 10000 >&2; echo ' the disk is full ' >&2; exit 3";
        let error = outcome(script, b"").await.unwrap_err();
        assert!(error.starts_with("command-failed: "), "{error}");
        assert!(error.contains("status: 3"), "{error}");
        assert!(
            error.ends_with("9999 | 10000 | the disk is full"),
            "{error}"
        );
        assert!(error.len() < 1000, "{error}");
        let killed = outcome("kill -9 $$", b"").await.unwrap_err();
        assert!(killed.contains("signal: 9"), "{killed}");
    }

    #[tokio::test]
    async fn program_that_is_not_there_is_an_error() {
        let run = CommandRun {
            program: Path::new("/nowhere/to/be/found"),
            arguments: &[],
            variables: Vec::new(),
            input: b"",
            timeout: LONG,
        };
        let error = run_command(&run, &CancellationToken::new())
            .await
            .unwrap_err();
        assert_eq!(error.code(), "command-not-started");
        assert!(
            error.to_string().contains("/nowhere/to/be/found"),
            "{error}"
        );
    }

    /// The processes of a script: itself, and one that it has started, which has written its id to a file.
    #[tokio::test]
    async fn time_limit_and_stop_end_the_process_group() {
        for is_stopped in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (file, began) = (folder.path().join("pid"), folder.path().join("began"));
            let script = format!(
                "trap '' TERM; sleep 1000 & echo $! > {}; mv {0} {}; wait; sleep 1000",
                file.display(),
                began.display()
            );
            let stop = CancellationToken::new();
            let stopping = stop.clone();
            let waiting = async {
                while !began.exists() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                stopping.cancel();
            };
            let expected = if is_stopped {
                "interrupted"
            } else {
                "command-timeout"
            };
            let mut timeout = Duration::from_secs(1);
            if is_stopped {
                let (ended, ()) = tokio::join!(run(&script, b"", LONG, &stop), waiting);
                assert_eq!(ended.unwrap_err().code(), expected);
            }
            // On a busy machine the script may not have begun by then.
            while !began.exists() {
                let ended = run(&script, b"", timeout, &stop).await;
                assert_eq!(ended.unwrap_err().code(), expected);
                timeout *= 2;
            }
            let pid = fs::read_to_string(&began).unwrap();
            let process = Path::new("/proc").join(pid.trim());
            let gone = async {
                while is_running(&process) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(LONG, gone).await.unwrap();
        }
    }

    /// As a program does that makes itself, or something else, a daemon.
    #[tokio::test]
    async fn time_limit_ends_what_has_left_the_process_group() {
        let folder = tempfile::tempdir().unwrap();
        let (file, began) = (folder.path().join("pid"), folder.path().join("began"));
        let script = format!(
            "setsid -f /bin/sh -c 'echo $$ > {}; mv {0} {}; exec sleep 1000' </dev/null >/dev/null 2>&1; sleep 1000",
            file.display(),
            began.display()
        );
        let stop = CancellationToken::new();
        let mut timeout = Duration::from_secs(1);
        // On a busy machine it may not have begun by then.
        while !began.exists() {
            let ended = run(&script, b"", timeout, &stop).await;
            assert_eq!(ended.unwrap_err().code(), "command-timeout");
            timeout *= 2;
        }
        let pid = fs::read_to_string(&began).unwrap();
        let process = Path::new("/proc").join(pid.trim());
        let gone = async {
            while is_running(&process) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, gone).await.unwrap();
    }

    /// Whether a process, by its folder, has not ended. What was killed may wait to be reaped by its new parent.
    fn is_running(process: &Path) -> bool {
        let state = fs::read_to_string(process.join("stat"));
        state.is_ok_and(|state| !state.contains(") Z "))
    }

    /// Its standard error is held open by what it has started, and is read still when its hook stops.
    #[tokio::test]
    async fn result_of_a_program_that_has_ended_counts_also_if_its_hook_stops_then() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script = format!("sleep 1000 & echo $$ $! > {}; exit 0", pids.display());
        let stop = CancellationToken::new();
        let stopping = async {
            loop {
                let pids = fs::read_to_string(&pids).unwrap_or_default();
                let own = pids
                    .strip_suffix('\n')
                    .and_then(|pids| pids.split_once(' '));
                if own.is_some_and(|(own, _)| !is_running(&Path::new("/proc").join(own))) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(run(&script, b"", LONG, &stop), stopping);
        ended.unwrap();
        let pids = fs::read_to_string(&pids).unwrap();
        let other: i32 = pids.trim().split_once(' ').unwrap().1.parse().unwrap();
        // What it has left behind goes on, as if its hook had not stopped.
        rustix::process::kill_process(Pid::from_raw(other).unwrap(), Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn process_that_stays_behind_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; exit 0", pid.display());
        outcome(&script, b"").await.unwrap();
        let pid: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
}
