//! `approve`: approves held-back deletions through the running daemon.

use std::time::Duration;

use super::daemon_client::{DaemonClient, DaemonError};
use super::exit_status::{FAILED, OK, UNREACHABLE};
use super::selection::select_sources;
use crate::config::Config;

/// Arguments of `approve`.
#[derive(Debug, clap::Args)]
pub(super) struct ApproveArguments {
    /// Name of the Source in the configuration
    source: String,
}

pub(super) async fn approve(config: &Config, arguments: &ApproveArguments) -> u8 {
    if let Err(status) = select_sources(config, std::slice::from_ref(&arguments.source)) {
        return status;
    }
    let response = match DaemonClient::new(config, Duration::from_secs(30)) {
        Ok(client) => {
            client
                .post(&format!("/sources/{}/approve", arguments.source))
                .await
        }
        Err(error) => Err(error),
    };
    match response {
        Ok(body) => {
            println!("{body}");
            OK
        }
        Err(error) => {
            eprintln!("resyncd: {error}");
            if matches!(error, DaemonError::Unreachable { .. }) {
                UNREACHABLE
            } else {
                FAILED
            }
        }
    }
}
