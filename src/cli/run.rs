//! `run`: the daemon, in the foreground.

use sd_notify::NotifyState;

use super::daemon::Daemon;
use super::stop_signals::StopSignals;
use super::{FAILED, OK};
use crate::config::Config;

pub(super) async fn run(config: Config) -> u8 {
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(error) => {
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
    let status = tokio::select! {
        () = signals.wait() => OK,
        // It has told so. Whoever starts this again has the database set aside.
        () = daemon.store.damaged() => FAILED,
    };
    tracing::info!("stopping");
    tell_systemd(&[NotifyState::Stopping]);
    daemon.stop().await;
    tracing::info!("stopped");
    status
}

/// Tells systemd, if that is who started us.
fn tell_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(code = "sd-notify", %error, "systemd can't be told");
    }
}
