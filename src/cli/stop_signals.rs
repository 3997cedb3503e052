//! SIGTERM and SIGINT: what stops a command.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;

/// Handlers of the stop signals. Once installed, the signals no longer kill the process.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers. To be called before anything is started.
    pub(super) fn listen() -> Result<Self, Failure> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
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

/// Installs the handler of a signal. Once installed, the signal no longer kills the process.
pub(super) fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    let installed = signal(kind);
    installed
        .map_err(|error| Failure::coded("signals", format!("cannot listen for signals: {error}")))
}
