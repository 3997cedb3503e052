//! The files of the demo's Source, and their changes at random.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{MissedTickBehavior, interval};

/// How many files there are at most.
pub(super) const FILES: usize = 300;
/// How long a file is, in bytes: its first line, again and again, states that.
const LENGTHS: std::ops::Range<usize> = 32..4096;
/// How often something is changed at most, in a second: more changes are made at once.
const MOST_OFTEN: f64 = 20.0;

/// A folder whose files are changed.
pub(super) struct ChangingFolder {
    folder: PathBuf,
    random: Rng,
}

impl ChangingFolder {
    /// A new folder with all its files.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir(folder)?;
        let mut changing = Self {
            folder: folder.to_owned(),
            random: Rng::with_seed(1),
        };
        for number in 0..FILES {
            changing.write(&name(number))?;
        }
        Ok(changing)
    }

    /// Changes so many files a second, on average, until there is an error.
    pub(super) async fn change(&mut self, each_second: f64) -> io::Error {
        let batches = each_second.min(MOST_OFTEN);
        let mut pace = interval(Duration::from_secs_f64(1.0 / batches));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut due = 0.0;
        loop {
            pace.tick().await;
            due += each_second / batches;
            while due >= 1.0 {
                due -= 1.0;
                if let Err(error) = self.change_one() {
                    return error;
                }
            }
        }
    }

    fn change_one(&mut self) -> io::Result<()> {
        let name = name(self.random.usize(..FILES));
        let path = self.folder.join(&name);
        if path.exists() && self.random.u8(..5) == 0 {
            return fs::remove_file(path);
        }
        self.write(&name)
    }

    /// Writes a file whole: what is in the folder is never a part of one.
    fn write(&mut self, name: &str) -> io::Result<()> {
        let length = self.random.usize(LENGTHS);
        let line = format!("{length} {:016x}\n", self.random.u64(..));
        let text: Vec<u8> = line.bytes().cycle().take(length).collect();
        let written = self.folder.join(format!(".{name}"));
        fs::write(&written, text)?;
        fs::rename(written, self.folder.join(name))
    }
}

fn name(number: usize) -> String {
    format!("r{number:04}.txt")
}
