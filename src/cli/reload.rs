//! Reloads the configuration of a running daemon on SIGHUP.
//!
//! A file with faults is refused: what is in use stays.

use std::future;
use std::path::Path;

use tokio::signal::unix::{Signal, SignalKind};

use super::daemon::Daemon;
use super::failure::Failure;
use super::stop_signals::listen;
use crate::clock;
use crate::config::{Config, ConfigFaults};
use crate::status::{ConfigurationStatus, StatusError};

/// The handler of SIGHUP. Once installed, the signal no longer kills the process.
pub(super) struct ReloadSignal(Signal);

impl ReloadSignal {
    /// Installs the handler. To be called before the configuration is read for the first time, so that what is changed after
    /// that is not missed.
    pub(super) fn listen() -> Result<Self, Failure> {
        Ok(Self(listen(SignalKind::hangup())?))
    }

    /// Waits for the signal; those between two calls are one.
    pub(super) async fn received(&mut self) {
        if self.0.recv().await.is_none() {
            // The runtime ends.
            future::pending().await
        }
    }
}

/// Reads the configuration file again and applies it, or reports why not.
pub(super) async fn reload(daemon: &Daemon, path: &Path) {
    match read(path).await {
        Ok(config) => match daemon.reload(config).await {
            Ok(changes) => {
                let restart_required = &changes.restart_required;
                tracing::info!(added = ?changes.added, changed = ?changes.changed, removed = ?changes.removed,
                    ?restart_required, "configuration reloaded");
                if !restart_required.is_empty() {
                    tracing::warn!(
                        code = "restart-required",
                        keys = ?restart_required,
                        "keys changed that need a restart; their old values stay in use"
                    );
                }
            }
            Err(error) => {
                tracing::error!(
                    code = error.code(),
                    "the configuration is not reloaded, the former one stays in use: {error}"
                );
                let message = format!("{error} [{}]", error.code());
                refuse(daemon, message);
            }
        },
        Err(faults) => {
            for fault in &faults {
                let (file, line, key) = (fault.file.display(), fault.line, &fault.key);
                tracing::error!(code = fault.code, %file, line, key, error = fault.message,
                    "the configuration is not reloaded, the former one stays in use");
            }
            let first = faults.iter().next();
            let first = first.map_or_else(|| "it can't be read".to_owned(), ToString::to_string);
            let more = match faults.len() {
                0 | 1 => String::new(),
                all => format!("; {} more", all - 1),
            };
            refuse(daemon, format!("{first}{more}"));
        }
    }
}

fn refuse(daemon: &Daemon, message: String) {
    let error = StatusError::new(ConfigurationStatus::REFUSED, message, clock::now().wall);
    daemon.refuse_configuration(error);
}

/// Reads the file on a thread that may block: it may be on a file system that does not answer.
async fn read(path: &Path) -> Result<Config, ConfigFaults> {
    let path = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let config = Config::load(&path)?;
        for warning in &Config::warnings(&path) {
            tracing::warn!(code = warning.code, "{warning}");
        }
        Ok(config)
    });
    // A panic was logged by its hook.
    reading
        .await
        .unwrap_or_else(|_| Err(ConfigFaults::default()))
}
