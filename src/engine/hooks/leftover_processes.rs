//! Ends what a program has started and what has left its process group, as `setsid` and daemons do. Each run has an id in its
//! environment, which every process inherits that does not drop it on purpose.
//!
//! Invariant: only a process whose environment has the id is killed: it is held by a file descriptor before the environment is read, so
//! that no other one can have taken over its process id.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use tokio::sync::oneshot;

use crate::random::hex_name;

/// The variable with the id of a run.
pub(super) const RUN: &str = "RESYNCD_RUN";
/// How often the processes are looked through: one may start another meanwhile.
const PASSES: u32 = 10;
/// The pause between two passes, in which those end that were killed.
const PAUSE: Duration = Duration::from_millis(20);
/// How many searches there are at most. More only are where some hang.
const MOST_SEARCHES: usize = 16;
/// How much of an environment is read, in bytes.
const MOST_ENVIRONMENT: u64 = 4 << 20;

/// A new id; `None`: the system gives no random bytes.
pub(super) fn run_id() -> Option<String> {
    hex_name(16).ok()
}

/// Kills every process with that id, as far as they can be found in that time. `processes`: the folder `/proc`.
pub(super) async fn kill_leftovers(processes: &Path, id: &str, limit: Duration) {
    let Some(searching) = Searching::begin() else {
        return;
    };
    let (processes, id) = (processes.to_owned(), id.to_owned());
    let (done, is_done) = oneshot::channel::<()>();
    // A thread of its own: one that hangs takes none from the others, and the end of the daemon does not wait for it.
    let started = thread::Builder::new()
        .name("strays".to_owned())
        .spawn(move || {
            let _searching = searching;
            search(&processes, &id);
            drop(done);
        });
    if started.is_ok() && tokio::time::timeout(limit, is_done).await.is_err() {
        tracing::info!(
            "search for leftover processes of a hook timed out: the environment of a process can't be read; they may keep running"
        );
    }
}

/// A search, as long as it takes. Those that hang are limited.
struct Searching;

static SEARCHING: AtomicUsize = AtomicUsize::new(0);

impl Searching {
    /// `None`: too many hang.
    fn begin() -> Option<Self> {
        let more = |running: usize| (running < MOST_SEARCHES).then_some(running + 1);
        let begun = SEARCHING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.is_ok().then_some(Self)
    }
}

impl Drop for Searching {
    fn drop(&mut self) {
        SEARCHING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn search(processes: &Path, id: &str) {
    let entry = format!("{RUN}={id}");
    for pass in 0..PASSES {
        if pass > 0 {
            thread::sleep(PAUSE);
        }
        let leftovers = leftovers(processes, entry.as_bytes());
        if leftovers.is_empty() {
            return;
        }
        for leftover in leftovers {
            // An error: it has ended.
            let _ = pidfd_send_signal(leftover, Signal::KILL);
        }
    }
}

fn leftovers(processes: &Path, entry: &[u8]) -> Vec<OwnedFd> {
    let Ok(found) = fs::read_dir(processes) else {
        return Vec::new();
    };
    let numbers = found.filter_map(|process| process.ok()?.file_name().to_str()?.parse().ok());
    let others = numbers.filter(|&number| number != getpid().as_raw_pid());
    others
        .filter_map(|number| {
            let process = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
            has_entry(processes, number, entry).then_some(process)
        })
        .collect()
}

/// Whether the environment of a process has that entry. That of other users can't be read.
fn has_entry(processes: &Path, number: i32, entry: &[u8]) -> bool {
    let mut environment = Vec::new();
    let Ok(file) = File::open(processes.join(number.to_string()).join("environ")) else {
        return false;
    };
    let read = file.take(MOST_ENVIRONMENT).read_to_end(&mut environment);
    read.is_ok() && environment.split(|&byte| byte == 0).any(|it| it == entry)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// Ends a test that would hang.
    const LONG: Duration = Duration::from_secs(180);

    /// To open a pipe without a writer waits, as reading the environment of a process does that waits for a disk.
    #[tokio::test]
    async fn process_whose_environment_cannot_be_read_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command
            .arg("1000")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut process = command.stderr(Stdio::null()).spawn().unwrap();
        let its_folder = folder.path().join(process.id().to_string());
        fs::create_dir(&its_folder).unwrap();
        let environment = its_folder.join("environ");
        mknodat(
            CWD,
            &environment,
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let killing = kill_leftovers(folder.path(), "id", Duration::from_millis(100));
        tokio::time::timeout(LONG, killing).await.unwrap();
        assert!(process.try_wait().unwrap().is_none());
        // The search goes on when it can.
        let writing =
            tokio::task::spawn_blocking(move || fs::write(environment, format!("{RUN}=id\0")));
        tokio::time::timeout(LONG, writing)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let ending = tokio::task::spawn_blocking(move || process.wait());
        let ended = tokio::time::timeout(LONG, ending).await.unwrap();
        assert!(!ended.unwrap().unwrap().success());
    }
}
