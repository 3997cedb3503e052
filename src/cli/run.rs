//! `run`: the daemon, in the foreground.

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use super::daemon::Daemon;
use super::{FAILED, OK};
use crate::config::Config;

pub(super) async fn run(config: Config) -> u8 {
    // Before anything is started: a signal that comes early must not end the process in the middle.
    let (mut terminate, mut interrupt) = match (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) {
        (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(code = "signals", %error, "signals can't be listened to");
            return FAILED;
        }
    };
    let sources = config.sources.len();
    let daemon = match Daemon::start(config).await {
        Ok(daemon) => daemon,
        Err(error) => {
            tracing::error!(code = error.code(), "{error}");
            return FAILED;
        }
    };
    let callback = daemon
        .callback
        .map(|address| address.to_string())
        .unwrap_or_default();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), sources, status = %daemon.status, callback, "resyncd is running");
    tell_systemd(&[NotifyState::Ready]);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    tell_systemd(&[NotifyState::Stopping]);
    daemon.stop().await;
    tracing::info!("stopped");
    OK
}

/// Tells systemd, if that is who started us.
fn tell_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(code = "sd-notify", %error, "systemd can't be told");
    }
}
