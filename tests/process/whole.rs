//! Files that are known to be whole by what is in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::process::Home;

/// Looks at the mirror's files over and over, from a thread of its own: each is whole at every moment.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    watching: std::thread::JoinHandle<u64>,
}

impl Watch {
    /// `pause`: how long it rests between two looks; `is_whole`: whether a file has one of the contents that its resource ever had.
    pub(crate) fn start(
        home: &Home,
        pause: Duration,
        is_whole: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> Self {
        let (mirror, stop) = (home.mirror.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let watching = std::thread::spawn(move || {
            let mut looked = 0;
            while !stopped.load(Ordering::Relaxed) {
                for (path, bytes) in crate::support::files(&mirror) {
                    looked += 1;
                    assert!(
                        is_whole(&bytes),
                        "{path} is not whole: {} bytes",
                        bytes.len()
                    );
                }
                std::thread::park_timeout(pause);
            }
            looked
        });
        Self { stop, watching }
    }

    pub(crate) fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.watching.thread().unpark();
        self.watching.join().unwrap()
    }
}

/// A content that tells its own length, so that half a file is known for what it is.
pub(crate) fn content(number: usize) -> String {
    content_of_length(number, 2000 + number % 7 * 9000)
}

/// The same, of a length that is asked for: its first line over and over.
pub(crate) fn content_of_length(number: usize, length: usize) -> String {
    let line = format!("{length} {number}\n");
    line.chars().cycle().take(length).collect()
}

/// Whether a file is one of those, or of the demo's, from its first byte to its last.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let Some(first) = bytes.split_inclusive(|&byte| byte == b'\n').next() else {
        return false;
    };
    let length = first.split(|&byte| byte == b' ').next();
    let length = length.and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
    length == Some(bytes.len()) && bytes.iter().eq(first.iter().cycle().take(bytes.len()))
}
