//! SIGTERM and SIGINT: what stops a command.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handlers of the stop signals. Once installed, the signals no longer kill the process.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers. To be called before anything is started.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of the signals; those between two calls are not lost.
    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
