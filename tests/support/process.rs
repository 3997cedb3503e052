//! The daemon as a process, with a configuration file and fixed ports.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use resyncd::status::{SetStatus, Status};
use resyncd::{clock, config};
use resyncd_testkit::SampleSource;
use tempfile::TempDir;

use crate::support::{
    LIMIT, NAME, Operator, SET, difference, eventually, expected_files, files, free_address,
    has_no_poll_due, until_verified,
};

/// Configuration, state and mirror of one daemon.
pub(crate) struct Home {
    folder: TempDir,
    pub(crate) config: PathBuf,
    pub(crate) mirror: PathBuf,
    pub(crate) status: SocketAddr,
    pub(crate) operator: Operator,
}

impl Home {
    /// A daemon that follows the Source at `url`; `more` is added to its `[[source]]`.
    pub(crate) fn new(url: &str, more: &str) -> Self {
        Self::below(&std::env::temp_dir(), url, more)
    }

    /// The same in a new folder below `parent`.
    pub(crate) fn below(parent: &Path, url: &str, more: &str) -> Self {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let (callback, status) = (free_address(), free_address());
        let config = folder.path().join("config.toml");
        let mut text = String::new();
        write!(
            text,
            "state_dir = \"state\"\n\
             [callback]\nlisten = \"{callback}\"\npublic_url = \"http://{callback}/hooks/\"\n\
             [status]\nlisten = \"{status}\"\n\
             [http]\nallow_private_addresses = true\n\
             [[source]]\nname = \"{NAME}\"\nurl = \"{url}\"\nmirror = \"mirror\"\nreorder_window = \"300ms\"\n{more}\n"
        )
        .unwrap();
        std::fs::write(&config, text).unwrap();
        Self {
            mirror: folder.path().join("mirror"),
            folder,
            config,
            status,
            operator: Operator::new(status),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the daemon.
    pub(crate) fn run(&self) -> Running {
        self.run_with([])
    }

    /// Starts the daemon with additional environment variables.
    pub(crate) fn run_with<const N: usize>(&self, more: [(&str, &Path); N]) -> Running {
        Running::start(command(&self.config).envs(more))
    }

    /// Starts the daemon from a shell script: `$0` is the program, `$@` are its arguments.
    pub(crate) fn run_in_shell(&self, script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(program().get_program());
        command.arg("--config").arg(&self.config).arg("run");
        command.env_remove("NOTIFY_SOCKET").env("RUST_LOG", "warn");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        Running {
            child: command.spawn().unwrap(),
        }
    }

    /// Runs another command and returns its output.
    pub(crate) fn run_command(&self, arguments: &[&str]) -> Output {
        command(&self.config).args(arguments).output().unwrap()
    }

    /// Status of the first set; `None` if there is no daemon, or no set yet.
    pub(crate) async fn set(&self) -> Option<SetStatus> {
        let status = self.operator.try_status().await?;
        status.sources.into_iter().flat_map(|s| s.sets).next()
    }

    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
        eventually(what, None, async || match self.set().await {
            Some(set) if wanted(&set) => Ok(set),
            set => Err(format!("{set:#?}")),
        })
        .await
    }

    /// Waits until the daemon's status satisfies a condition.
    pub(crate) async fn until_status(
        &self,
        what: &str,
        wanted: impl Fn(&Status) -> bool,
    ) -> Status {
        eventually(what, None, async || {
            match self.operator.try_status().await {
                Some(status) if wanted(&status) => Ok(status),
                status => Err(format!("{status:#?}")),
            }
        })
        .await
    }

    /// Waits until mirror and Source are equal, the set is in sync, and every channel is active.
    pub(crate) async fn settled(&self, source: &SampleSource) {
        self.until("in sync", |set| {
            set.state == "in-sync" && set.channels.iter().all(|channel| channel.state == "active")
        })
        .await;
        until_verified(source).await;
        self.until_mirrored(source).await;
        // A file is in place before it is recorded.
        self.until("everything is recorded", |set| {
            set.state == "in-sync" && set.pending == 0
        })
        .await;
    }

    /// The same, and waits until no poll is due.
    pub(crate) async fn idle(&self, source: &SampleSource) {
        self.settled(source).await;
        let followed = config::Source::new(NAME, source.base(), self.mirror.clone());
        self.until("no poll is due", |set| has_no_poll_due(set, &followed))
            .await;
    }

    /// Asserts that mirror and Source are equal.
    #[track_caller]
    pub(crate) fn assert_mirrored(&self, source: &SampleSource, sets: &[&str]) {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let wrong = difference(&expected_files(source, &sets), &files(&self.mirror));
        assert_eq!(wrong, "");
    }

    pub(crate) async fn until_mirrored(&self, source: &SampleSource) {
        let sets = [SET.to_owned()];
        eventually("mirror and Source are equal", None, async || {
            let wrong = difference(&expected_files(source, &sets), &files(&self.mirror));
            if wrong.is_empty() { Ok(()) } else { Err(wrong) }
        })
        .await;
    }
}

/// A running daemon. It is killed on drop.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts the daemon with a command without its last argument, `run`.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self {
            child: command.arg("run").spawn().unwrap(),
        }
    }

    /// Kills the daemon (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits until the process has ended.
    pub(crate) async fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for_exit(&mut self.child).await
    }

    /// Stops the daemon with SIGTERM, and waits until it has ended.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait_for_exit().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program with a configuration file. It logs warnings and errors only.
pub(crate) fn command(config: &Path) -> Command {
    let mut command = program();
    command.arg("--config").arg(config);
    command
}

/// The program.
pub(crate) fn program() -> Command {
    isolated_command(env!("CARGO_BIN_EXE_resyncd"))
}

/// A program without the environment variables that could change its behaviour.
pub(crate) fn isolated_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
        .env_remove("CREDENTIALS_DIRECTORY")
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("RESYNCD_CONFIG")
        .env_remove("JOURNAL_STREAM")
        .env_remove("NOTIFY_SOCKET")
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null());
    command
}

/// A library for `LD_PRELOAD`, compiled from a C file of this repository into a folder; `Err` is the reason why it can't be.
pub(crate) fn preloadable(file: &str, folder: &Path) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let library = folder.join("preloaded.so");
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let compiled = Command::new(&compiler)
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .args(["-ldl", "-pthread"])
        .status();
    match compiled {
        Ok(status) if status.success() => Ok(library),
        other => Err(format!("{} {file}: {other:?}", compiler.display())),
    }
}

pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(child.id().to_string())
        .status();
    assert!(sent.unwrap().success());
}

pub(crate) async fn wait_for_exit(child: &mut Child) -> ExitStatus {
    let deadline = clock::now().mono + LIMIT;
    let mut pace = tokio::time::interval(std::time::Duration::from_millis(20));
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(clock::now().mono < deadline, "the process has not ended");
        pace.tick().await;
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
