//! Files whose content shows whether they are complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::process::Home;

/// A thread that repeatedly reads all files of the mirror. Each must be complete at every moment.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Watch {
    /// `pause`: the time between two rounds; `is_complete`: whether a file has one of the contents that its resource ever had.
    pub(crate) fn start(
        home: &Home,
        pause: Duration,
        is_complete: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> Self {
        let (mirror, stop) = (home.mirror.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut files_read = 0;
            while !stopped.load(Ordering::Relaxed) {
                for (path, bytes) in crate::support::files(&mirror) {
                    files_read += 1;
                    assert!(
                        is_complete(&bytes),
                        "{path} is incomplete: {} bytes",
                        bytes.len()
                    );
                }
                std::thread::park_timeout(pause);
            }
            files_read
        });
        Self { stop, thread }
    }

    pub(crate) fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap()
    }
}

/// A content that begins with its own length, so that an incomplete file is detected.
pub(crate) fn content(number: usize) -> String {
    content_of_length(number, 2000 + number % 7 * 9000)
}

/// A content of this length: its first line repeated.
pub(crate) fn content_of_length(number: usize, length: usize) -> String {
    let line = format!("{length} {number}\n");
    line.chars().cycle().take(length).collect()
}

/// Whether a file has such a content, or one of the demo's, completely.
pub(crate) fn is_complete(bytes: &[u8]) -> bool {
    let Some(first) = bytes.split_inclusive(|&byte| byte == b'\n').next() else {
        return false;
    };
    let length = first.split(|&byte| byte == b' ').next();
    let length = length.and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
    length == Some(bytes.len()) && bytes.iter().eq(first.iter().cycle().take(bytes.len()))
}
