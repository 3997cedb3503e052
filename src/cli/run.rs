//! `run`: the daemon in the foreground.

use sd_notify::NotifyState;

use super::daemon::Daemon;
use super::exit_status::{FAILED, NEWER_STATE, OK};
use super::stop_signals::StopSignals;
use super::watchdog;
use crate::config::Config;
use crate::protocol::hide_userinfo;

pub(super) async fn run(config: Config) -> u8 {
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(code = "signals", %error, "cannot listen for signals");
            return FAILED;
        }
    };
    let sources = config.sources.len();
    let proxies = config.http.proxies.clone();
    let daemon = match Daemon::start(config).await {
        Ok(daemon) => daemon,
        Err(error) => {
            tracing::error!(code = error.code(), "{error}");
            return match error.code() {
                "newer-schema" if is_supervised() => NEWER_STATE,
                _ => FAILED,
            };
        }
    };
    let callback = daemon
        .callback
        .map(|address| address.to_string())
        .unwrap_or_default();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), sources, status = %daemon.status, callback, "resyncd is running");
    for scheme in ["http", "https"] {
        if let Some(proxy) = proxies.of_scheme(scheme) {
            let proxy = hide_userinfo(proxy.as_str());
            tracing::info!(scheme, %proxy, "requests go through a proxy, which resolves the names");
        }
    }
    notify_systemd(&[NotifyState::Ready]);
    let watched = async {
        match sd_notify::watchdog_enabled() {
            Some(limit) => {
                let fed = || notify_systemd(&[NotifyState::Watchdog]);
                watchdog::feed(limit, || daemon.works(), fed).await;
            }
            None => std::future::pending().await,
        }
    };
    let status = tokio::select! {
        () = watched => FAILED,
        () = signals.wait() => OK,
        // The store has logged it. The next start sets the database aside.
        () = daemon.store.damaged() => FAILED,
    };
    tracing::info!("stopping");
    notify_systemd(&[NotifyState::Stopping]);
    daemon.stop().await;
    tracing::info!("stopped");
    status
}

/// Whether systemd started this process, which learns from the exit status that another start fails, too.
fn is_supervised() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Notifies systemd, if it started this process.
fn notify_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(code = "sd-notify", %error, "systemd notification failed");
    }
}
