//! Ends what a program has started and what has left its process group, as `setsid` and daemons do. Each run has an id in its
//! environment, which every process inherits that does not drop it on purpose.
//!
//! Invariant: only a process whose environment has the id is killed: it is held by a file descriptor before the environment is read, so
//! that no other one can have taken over its process id.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// The variable with the id of a run.
pub(super) const RUN: &str = "RESYNCD_RUN";
/// How often the processes are looked through: one may start another meanwhile.
const PASSES: u32 = 10;
/// The pause between two passes, in which those end that were killed.
const PAUSE: Duration = Duration::from_millis(20);
/// How much of an environment is read, in bytes.
const MOST_ENVIRONMENT: u64 = 4 << 20;

/// A new id; `None`: the system gives no random bytes.
pub(super) fn run_id() -> Option<String> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).ok()?;
    Some(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Kills every process with that id, as far as they can be found. It blocks for a short time.
pub(super) fn kill_strays(id: &str) {
    let entry = format!("{RUN}={id}");
    for pass in 0..PASSES {
        if pass > 0 {
            thread::sleep(PAUSE);
        }
        let strays = strays(entry.as_bytes());
        if strays.is_empty() {
            return;
        }
        for stray in strays {
            // An error: it has ended.
            let _ = pidfd_send_signal(stray, Signal::KILL);
        }
    }
}

fn strays(entry: &[u8]) -> Vec<OwnedFd> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = processes.filter_map(|process| process.ok()?.file_name().to_str()?.parse().ok());
    let others = numbers.filter(|&number| number != getpid().as_raw_pid());
    others
        .filter_map(|number| {
            let process = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
            has_entry(number, entry).then_some(process)
        })
        .collect()
}

/// Whether the environment of a process has that entry. That of other users can't be read.
fn has_entry(number: i32, entry: &[u8]) -> bool {
    let mut environment = Vec::new();
    let Ok(file) = File::open(format!("/proc/{number}/environ")) else {
        return false;
    };
    let read = file.take(MOST_ENVIRONMENT).read_to_end(&mut environment);
    read.is_ok() && environment.split(|&byte| byte == 0).any(|it| it == entry)
}
