//! A daemon that is killed at one step of its work, or finds that step to fail, and is started again if it has ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

use crate::process::{Home, Running, command, undisturbed};
use crate::support::{Files, eventually, files};

/// What the tracer exits with when the program was killed.
const KILLED: i32 = 137;
/// What it exits with where processes can't be traced.
const UNABLE: i32 = 77;

/// What happens at a step; step 0 never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The process is killed before it.
    Kill(usize),
    /// The system answers that it has failed (EIO).
    Fail(usize),
}

/// The program that does it: `steps.c`, compiled.
pub(crate) struct Tracer {
    _folder: TempDir,
    program: PathBuf,
}

impl Tracer {
    /// Compiles it; `Err` says why nothing can be traced here.
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
        let tried = tracer
            .command(Blow::Kill(0), Path::new("/"), &log)
            .arg("/bin/true")
            .status()
            .unwrap();
        match tried.code() {
            Some(0) => Ok(tracer),
            Some(UNABLE) => Err("the system lets no process trace another".to_owned()),
            other => panic!("the tracer ends with {other:?}"),
        }
    }

    fn command(&self, blow: Blow, folder: &Path, log: &Path) -> Command {
        let mut command = undisturbed(&self.program);
        let (what, at) = match blow {
            Blow::Kill(at) => ("kill", at),
            Blow::Fail(at) => ("fail", at),
        };
        command.args([what, &at.to_string()]).args([folder, log]);
        command
    }
}

/// A daemon that a blow meets, and that goes on afterwards as a process of its own if it has ended.
pub(crate) struct Traced {
    log: PathBuf,
    blow: Blow,
    tracer: u32,
    waiting: Option<JoinHandle<Fate>>,
}

enum Fate {
    Ended(Option<i32>),
    /// It could not even begin.
    Refused(Running),
    Killed(Scene, Running),
}

/// What a kill left.
pub(crate) struct Scene {
    /// The state, copied before the daemon was started again.
    pub(crate) state: PathBuf,
    /// The mirror's files.
    pub(crate) files: Files,
    /// How much had happened at the Source.
    pub(crate) happened: usize,
}

/// How a daemon's life went.
pub(crate) struct Life {
    /// The steps that it took before it was killed, or all; each is a call and its path.
    pub(crate) steps: Vec<String>,
    /// The step that the blow met, if it came.
    pub(crate) met: Option<String>,
    /// What a kill left.
    pub(crate) scene: Option<Scene>,
}

impl Traced {
    /// Starts it. `happened`: how much has happened at the Source so far.
    pub(crate) fn start(
        home: &Home,
        tracer: &Tracer,
        blow: Blow,
        happened: Arc<AtomicUsize>,
    ) -> Self {
        let (folder, config, mirror) = (home.folder(), home.config.clone(), home.mirror.clone());
        let log = folder.join("steps");
        let mut traced = tracer
            .command(blow, folder, &log)
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
            let again = || Running::start(command(&config).env("RUST_LOG", "error"));
            let begun = || !files(&mirror).is_empty();
            if code == Some(1) && matches!(blow, Blow::Fail(_)) && !begun() {
                // As systemd would.
                return Fate::Refused(again());
            }
            if code != Some(KILLED) {
                return Fate::Ended(code);
            }
            let happened = happened.load(Ordering::SeqCst);
            fs::create_dir(&copy).unwrap();
            // What is mapped into memory belongs to processes that live; the lock file is empty.
            for name in ["resyncd.db", "resyncd.db-wal"] {
                if state.join(name).exists() {
                    fs::copy(state.join(name), copy.join(name)).unwrap();
                }
            }
            let scene = Scene {
                state: copy,
                files: files(&mirror),
                happened,
            };
            Fate::Killed(scene, again())
        });
        Self {
            log,
            blow,
            tracer: id,
            waiting: Some(waiting),
        }
    }

    fn is_finished(&self) -> bool {
        self.waiting.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Stops it as systemd would. `settled` is awaited first when it is killed on its way out and has to be started again.
    pub(crate) async fn stop(mut self, settled: impl AsyncFn()) -> Life {
        if !self.is_finished() {
            let log = fs::read_to_string(&self.log).unwrap();
            let process = log.lines().next().unwrap();
            // It may be killed at this moment.
            let _ = Command::new("kill")
                .arg("-TERM")
                .arg(process)
                .stderr(Stdio::null())
                .status();
        }
        eventually("the process ends", None, async || {
            self.is_finished().then_some(()).ok_or("there".to_owned())
        })
        .await;
        let scene = match self.waiting.take().unwrap().join().unwrap() {
            Fate::Ended(code) => {
                assert_eq!(code, Some(0));
                None
            }
            Fate::Refused(again) => {
                settled().await;
                assert_eq!(again.stop().await.code(), Some(0));
                None
            }
            Fate::Killed(scene, again) => {
                settled().await;
                assert_eq!(again.stop().await.code(), Some(0));
                Some(scene)
            }
        };
        let log = fs::read_to_string(&self.log).unwrap();
        let steps: Vec<String> = log.lines().skip(1).map(str::to_owned).collect();
        let (Blow::Kill(at) | Blow::Fail(at)) = self.blow;
        let met = at.checked_sub(1).and_then(|at| steps.get(at)).cloned();
        Life { steps, met, scene }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            // The test has failed. What is traced goes with its tracer.
            let tracer = self.tracer.to_string();
            let _ = Command::new("kill")
                .args(["-KILL", &tracer])
                .stderr(Stdio::null())
                .status();
            let _ = waiting.join();
        }
    }
}
