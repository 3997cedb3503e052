//! A daemon that is killed before one step of its work, or for which that step fails, and that is started again if it has ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

use crate::support::process::{Home, Running, command, isolated_command};
use crate::support::{Files, eventually, files};

/// The exit status of the tracer when it has killed the program.
const KILLED: i32 = 137;
/// The exit status of the tracer where processes can't be traced.
const UNTRACEABLE: i32 = 77;

/// What happens at a step, by its number; there is no step 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process is killed before the step.
    Kill(usize),
    /// The step fails with EIO.
    Fail(usize),
}

/// How the mirror's files are synced, whatever file system it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syncs {
    /// Many by one sync of the file system.
    Together,
    /// Each by itself.
    Each,
}

/// The compiled `steps.c`, which carries out a fault.
pub(crate) struct Tracer {
    _folder: TempDir,
    program: PathBuf,
}

impl Tracer {
    /// Compiles it; `Err` is the reason why processes can't be traced here.
    pub(crate) fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("steps");
        let compiler = std::env::var_os("CC").unwrap_or("cc".into());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/steps.c");
        let compiled = Command::new(&compiler)
            .args(["-O1", "-o"])
            .args([&program, Path::new(source)])
            .status();
        match compiled {
            Ok(status) if status.success() => {}
            other => return Err(format!("{} {source}: {other:?}", compiler.display())),
        }
        let tracer = Self {
            program,
            _folder: folder,
        };
        let log = tracer.program.with_extension("log");
        let probe = tracer
            .command(Fault::Kill(0), Path::new("/"), &log)
            .arg("/bin/true")
            .status()
            .unwrap();
        match probe.code() {
            Some(0) => Ok(tracer),
            Some(UNTRACEABLE) => Err("processes can't be traced on this system".to_owned()),
            other => panic!("the tracer ends with {other:?}"),
        }
    }

    /// The command, without its last argument, that runs the daemon and records in `log` what it does to its files.
    pub(crate) fn recording(&self, home: &Home, log: &Path, syncs: Syncs) -> Command {
        let mut command = isolated_command(&self.program);
        let how = match syncs {
            Syncs::Together => "record-ext4",
            Syncs::Each => "record-unsynced",
        };
        command.args([how, "0"]).args([home.folder(), log]);
        command.arg(env!("CARGO_BIN_EXE_resyncd"));
        command.arg("--config").arg(&home.config);
        command
    }

    fn command(&self, fault: Fault, folder: &Path, log: &Path) -> Command {
        let mut command = isolated_command(&self.program);
        let (what, at) = match fault {
            Fault::Kill(at) => ("kill", at),
            Fault::Fail(at) => ("fail", at),
        };
        command.args([what, &at.to_string()]).args([folder, log]);
        command
    }
}

/// A daemon with a fault. If the fault ends it, it is started again without the tracer.
pub(crate) struct Traced {
    log: PathBuf,
    fault: Fault,
    tracer: u32,
    waiting: Option<JoinHandle<Exit>>,
}

enum Exit {
    Ended(Option<i32>),
    /// The fault failed the start.
    StartFailed(Running),
    Killed(Crash, Running),
}

/// State and mirror after a kill.
pub(crate) struct Crash {
    /// A copy of the state directory, made before the daemon was started again.
    pub(crate) state: PathBuf,
    /// The files of the mirror.
    pub(crate) files: Files,
    /// The number of changes at the Source before the kill.
    pub(crate) happened: usize,
}

/// What a daemon with a fault has done.
pub(crate) struct RunReport {
    /// The steps until the kill, or all; each is a call and its path.
    pub(crate) steps: Vec<String>,
    /// The step at which the fault happened, if it did.
    pub(crate) hit: Option<String>,
    /// State and mirror after a kill.
    pub(crate) crash: Option<Crash>,
}

impl Traced {
    /// Starts it. `happened` counts the changes at the Source; `between` runs between a kill and the restart.
    pub(crate) fn start(
        home: &Home,
        tracer: &Tracer,
        fault: Fault,
        happened: Arc<AtomicUsize>,
        between: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (folder, config, mirror) = (home.folder(), home.config.clone(), home.mirror.clone());
        let log = folder.join("steps");
        let files_before = files(&mirror);
        let mut traced = tracer
            .command(fault, folder, &log)
            .env("RUST_LOG", "error")
            .arg(env!("CARGO_BIN_EXE_resyncd"))
            .arg("--config")
            .args([config.as_path(), Path::new("run")])
            .spawn()
            .unwrap();
        let id = traced.id();
        let (state, copy) = (folder.join("state"), folder.join("killed"));
        let waiting = thread::spawn(move || {
            let code = traced.wait().unwrap().code();
            let restarted = || Running::start(command(&config).env("RUST_LOG", "error"));
            let is_untouched = || files(&mirror) == files_before;
            if code == Some(1) && matches!(fault, Fault::Fail(_)) && is_untouched() {
                // Restart on failure, as systemd does.
                return Exit::StartFailed(restarted());
            }
            if code != Some(KILLED) {
                return Exit::Ended(code);
            }
            let happened = happened.load(Ordering::SeqCst);
            fs::create_dir(&copy).unwrap();
            // SQLite rebuilds the shared-memory file; the lock file is empty.
            for name in ["resyncd.db", "resyncd.db-wal"] {
                if state.join(name).exists() {
                    fs::copy(state.join(name), copy.join(name)).unwrap();
                }
            }
            let crash = Crash {
                state: copy,
                files: files(&mirror),
                happened,
            };
            between();
            Exit::Killed(crash, restarted())
        });
        Self {
            log,
            fault,
            tracer: id,
            waiting: Some(waiting),
        }
    }

    fn is_finished(&self) -> bool {
        self.waiting.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Whether the fault has come.
    pub(crate) fn has_hit(&self) -> bool {
        let (Fault::Kill(at) | Fault::Fail(at)) = self.fault;
        at > 0 && self.steps() >= at
    }

    /// The number of steps so far.
    pub(crate) fn steps(&self) -> usize {
        let log = fs::read_to_string(&self.log).unwrap();
        log.lines().count().saturating_sub(1)
    }

    /// Stops it by SIGTERM. If the fault has ended it, the restarted daemon is stopped after `settled`.
    pub(crate) async fn stop(mut self, settled: impl AsyncFn()) -> RunReport {
        if !self.is_finished() {
            let log = fs::read_to_string(&self.log).unwrap();
            let process = log.lines().next().unwrap();
            // Fails if the fault has killed it meanwhile.
            let _ = Command::new("kill")
                .arg("-TERM")
                .arg(process)
                .stderr(Stdio::null())
                .status();
        }
        eventually("the process ends", None, async || {
            self.is_finished().then_some(()).ok_or("running".to_owned())
        })
        .await;
        let crash = match self.waiting.take().unwrap().join().unwrap() {
            Exit::Ended(code) => {
                assert_eq!(code, Some(0));
                None
            }
            Exit::StartFailed(restarted) => {
                settled().await;
                assert_eq!(restarted.stop().await.code(), Some(0));
                None
            }
            Exit::Killed(crash, restarted) => {
                settled().await;
                assert_eq!(restarted.stop().await.code(), Some(0));
                Some(crash)
            }
        };
        let log = fs::read_to_string(&self.log).unwrap();
        let steps: Vec<String> = log.lines().skip(1).map(str::to_owned).collect();
        let (Fault::Kill(at) | Fault::Fail(at)) = self.fault;
        let hit = at.checked_sub(1).and_then(|at| steps.get(at)).cloned();
        RunReport { steps, hit, crash }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            // The test has failed. The traced process is killed with its tracer.
            let tracer = self.tracer.to_string();
            let _ = Command::new("kill")
                .args(["-KILL", &tracer])
                .stderr(Stdio::null())
                .status();
            let _ = waiting.join();
        }
    }
}
