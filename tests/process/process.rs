//! The daemon as a process of its own, with a configuration file and fixed ports.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use resyncd::clock;
use resyncd::demo::SampleSource;
use resyncd::status::{SetStatus, Status};
use tempfile::TempDir;

use crate::support::{LIMIT, NAME, Operator, SET, difference, eventually, expected_files, files};

/// Where one daemon lives: its configuration, state and mirror.
pub(crate) struct Home {
    folder: TempDir,
    pub(crate) config: PathBuf,
    pub(crate) mirror: PathBuf,
    pub(crate) status: SocketAddr,
    pub(crate) operator: Operator,
}

impl Home {
    /// A home of a daemon that follows the Source at `url`; `more` goes into its `[[source]]`.
    pub(crate) fn new(url: &str, more: &str) -> Self {
        Self::below(&std::env::temp_dir(), url, more)
    }

    /// The same, somewhere below a folder.
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

    /// Starts the daemon with more in its environment.
    pub(crate) fn run_with<const N: usize>(&self, more: [(&str, &Path); N]) -> Running {
        Running::start(command(&self.config).envs(more))
    }

    /// Starts the daemon by a shell's script, which finds the program as `$0` and its arguments as `$@`.
    pub(crate) fn run_by(&self, script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(program().get_program());
        command.arg("--config").arg(&self.config).arg("run");
        command.env_remove("NOTIFY_SOCKET").env("RUST_LOG", "warn");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        Running {
            child: command.spawn().unwrap(),
        }
    }

    /// Runs another command to its end.
    pub(crate) fn tell(&self, arguments: &[&str]) -> Output {
        command(&self.config).args(arguments).output().unwrap()
    }

    /// How the set stands; `None` if the daemon can't be asked, or knows of no set yet.
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

    /// Waits until the daemon's status is as it should be.
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

    /// Waits until the mirror is what the Source is, in step, with every channel active.
    pub(crate) async fn settled(&self, source: &SampleSource) {
        self.until("in step", |set| {
            set.state == "in-sync" && set.channels.iter().all(|channel| channel.state == "active")
        })
        .await;
        self.until_mirrored(source).await;
    }

    /// The mirror is what the Source is.
    #[track_caller]
    pub(crate) fn assert_mirrored(&self, source: &SampleSource, sets: &[&str]) {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let wrong = difference(&expected_files(source, &sets), &files(&self.mirror));
        assert_eq!(wrong, "");
    }

    pub(crate) async fn until_mirrored(&self, source: &SampleSource) {
        let sets = [SET.to_owned()];
        eventually("the mirror is what the Source is", None, async || {
            let wrong = difference(&expected_files(source, &sets), &files(&self.mirror));
            if wrong.is_empty() { Ok(()) } else { Err(wrong) }
        })
        .await;
    }
}

/// A daemon at work; it is killed when it is dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts the daemon by a command that lacks only its last word.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self {
            child: command.arg("run").spawn().unwrap(),
        }
    }

    /// Ends it at once, as a power cut would (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child).await
    }

    /// Stops it as systemd would, and waits for its end.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program with a configuration file, logging nothing but trouble.
pub(crate) fn command(config: &Path) -> Command {
    let mut command = program();
    command.arg("--config").arg(config);
    command
}

/// The program.
pub(crate) fn program() -> Command {
    undisturbed(env!("CARGO_BIN_EXE_resyncd"))
}

/// A program that gets nothing of what stands around the tests.
pub(crate) fn undisturbed(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("RESYNCD_CONFIG")
        .env_remove("JOURNAL_STREAM")
        .env_remove("NOTIFY_SOCKET")
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null());
    command
}

pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(child.id().to_string())
        .status();
    assert!(sent.unwrap().success());
}

pub(crate) async fn ended(child: &mut Child) -> ExitStatus {
    let deadline = clock::now().mono + LIMIT;
    let mut pace = tokio::time::interval(std::time::Duration::from_millis(20));
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(clock::now().mono < deadline, "the process does not end");
        pace.tick().await;
    }
}

/// An address that nobody listens on, and that no other test is given: below the ports that the system gives away by itself,
/// so that it stays free until a daemon binds it.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time begin at different places.
    let first = u16::try_from(std::process::id() % 1000).unwrap() * 12;
    let ports = || 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
    let mut addresses = std::iter::repeat_with(|| SocketAddr::from((Ipv4Addr::LOCALHOST, ports())));
    addresses
        .find(|address| TcpListener::bind(address).is_ok())
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
