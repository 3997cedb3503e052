//! The moments at which files are put in place, as the system reports them: a rename into a watched folder.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use resyncd::clock;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::harness::BenchResult;

/// A file that is in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The number that its name contains.
    pub(crate) number: usize,
    /// When it was renamed.
    pub(crate) at: Instant,
}

/// The files that are renamed into some folders, while it exists.
pub(crate) struct Arrivals {
    received: UnboundedReceiver<Arrival>,
    inotify: Arc<OwnedFd>,
    /// The watch that is removed at the end, to wake the thread.
    last: i32,
}

impl Arrivals {
    /// Watches folders in a thread of its own.
    pub(crate) fn watch<'a>(folders: impl IntoIterator<Item = &'a Path>) -> BenchResult<Self> {
        let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
        let mut last = None;
        for folder in folders {
            last = Some(inotify::add_watch(&*inotify, folder, WatchFlags::MOVED_TO)?);
        }
        let last = last.ok_or("no folder to watch")?;
        let (sender, received) = unbounded_channel();
        let read_from = Arc::clone(&inotify);
        std::thread::spawn(move || read(&read_from, &sender));
        Ok(Self {
            received,
            inotify,
            last,
        })
    }

    /// The next file that is in place.
    pub(crate) async fn next(&mut self) -> BenchResult<Arrival> {
        let next = self.received.recv().await;
        next.ok_or_else(|| "the watch has ended: too many files at once".into())
    }

    /// The next file, if one was put in place already.
    pub(crate) fn try_next(&mut self) -> Option<Arrival> {
        self.received.try_recv().ok()
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.received.close();
        // The event of the removal ends the thread; without it the thread ends with the program.
        let _ = inotify::remove_watch(&*self.inotify, self.last);
    }
}

/// Reads until the receiver is closed, or events were lost.
fn read(inotify: &OwnedFd, sender: &UnboundedSender<Arrival>) {
    let mut buffer = [MaybeUninit::uninit(); 64 << 10];
    let mut events = Reader::new(inotify, &mut buffer);
    while let Ok(event) = events.next() {
        let at = clock::now().mono;
        let is_lost = event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
        if is_lost || sender.is_closed() {
            return;
        }
        let Some(number) = event
            .file_name()
            .and_then(|name| number_in(name.to_bytes()))
        else {
            continue;
        };
        if sender.send(Arrival { number, at }).is_err() {
            return;
        }
    }
}

/// The number in the name of a file, as 17 in `r0017.txt`.
fn number_in(name: &[u8]) -> Option<usize> {
    let name = std::str::from_utf8(name).ok()?;
    let begin = name.find(|c: char| c.is_ascii_digit())?;
    let digits = &name[begin..];
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}
