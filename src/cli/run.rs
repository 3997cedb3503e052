//! `run`: the daemon in the foreground.

use std::path::Path;
use std::time::Duration;

use resyncd_core::hide_userinfo;
use sd_notify::NotifyState;

use super::daemon::{Daemon, StartError};
use super::exit_status::{FAILED, OK, OTHER_STATE};
use super::failure::Failure;
use super::reload::{ReloadSignal, reload};
use super::service_status::report;
use super::stop_signals::StopSignals;
use super::watchdog;
use crate::config::Config;
use crate::store::StoreError;

/// How long the stop may take: less than the `TimeoutStopSec` of the unit, so that the log states what hangs.
const STOP: Duration = Duration::from_secs(50);

/// `path`: the file that the configuration was read from; `hangup`: installed before that.
pub(super) async fn run(config: Config, path: &Path, hangup: ReloadSignal) -> Result<u8, Failure> {
    let mut signals = StopSignals::listen()?;
    let sources = config.sources.len();
    let proxies = config.http.proxies.clone();
    notify_systemd(&[NotifyState::Status("opening the database")]);
    let is_on_server = config.store.url.is_some();
    let mut standby = Standby::default();
    let started = loop {
        match Daemon::start(config.clone()).await {
            Err(StartError::Store(error)) if is_on_server && error.passes() => {
                tokio::select! {
                    () = signals.wait() => return Ok(OK),
                    () = standby.wait(&error) => {}
                }
            }
            started => break started,
        }
    };
    let daemon = match started {
        Ok(daemon) => daemon,
        Err(error) => {
            tracing::error!(code = error.code(), "{error}");
            return Ok(match error.code() {
                "newer-schema" | "earlier-schema" if is_supervised() => OTHER_STATE,
                _ => FAILED,
            });
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
                let late = || {
                    let waits_for = daemon.unanswered();
                    tracing::error!(
                        code = "watchdog-not-fed",
                        waits_for,
                        "the daemon is stalled; systemd restarts it unless it goes on"
                    );
                };
                let fed = || notify_systemd(&[NotifyState::Watchdog]);
                watchdog::feed(limit, || daemon.works(), late, fed).await;
            }
            None => std::future::pending().await,
        }
    };
    let reported = async {
        // Nobody else reads it.
        if !is_supervised() {
            std::future::pending::<()>().await;
        }
        let read = || daemon.status_of_sources();
        report(read, |text| notify_systemd(&[NotifyState::Status(text)])).await;
    };
    let status = tokio::select! {
        () = watched => FAILED,
        () = reported => FAILED,
        () = reload_on(hangup, &daemon, path) => FAILED,
        () = signals.wait() => OK,
        // The store has logged it. The next start sets the database aside.
        () = daemon.store.damaged() => FAILED,
        () = daemon.store.replaced() => {
            tracing::error!(code = "database-held", "another node has taken the place of this one; ending at once");
            std::process::exit(FAILED.into());
        }
    };
    tracing::info!("stopping");
    notify_systemd(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    if !daemon.stop_within(STOP).await {
        return Ok(FAILED);
    }
    tracing::info!("stopped");
    Ok(status)
}

/// A daemon that waits until its database can be reached, and no other node works on it.
#[derive(Default)]
struct Standby {
    has_begun: bool,
}

impl Standby {
    /// The time between two looks at the database: it tells nobody that another node has ended.
    const PAUSE: Duration = Duration::from_secs(1);

    async fn wait(&mut self, error: &StoreError) {
        if !self.has_begun {
            self.has_begun = true;
            tracing::warn!(code = error.code(), "standby: {error}");
            let status = format!("standby: {error}");
            notify_systemd(&[NotifyState::Ready, NotifyState::Status(&status)]);
        }
        notify_systemd(&[NotifyState::Watchdog]);
        tokio::time::sleep(Self::PAUSE).await;
    }
}

/// Reloads the configuration whenever the signal is received. A signal while it is reloaded has it reloaded once more.
async fn reload_on(mut hangup: ReloadSignal, daemon: &Daemon, path: &Path) {
    loop {
        hangup.received().await;
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify_systemd(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(code = "sd-notify", %error, "systemd notification failed"),
        }
        reload(daemon, path).await;
        notify_systemd(&[NotifyState::Ready]);
    }
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
