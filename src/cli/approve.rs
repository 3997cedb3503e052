//! `approve`: held-back deletions go on.

use std::time::Duration;

use super::ask::{AskError, Asking};
use super::{FAILED, OK, UNREACHABLE, chosen};
use crate::config::Config;

/// What `approve` must be told.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The Source, by its name in the configuration
    source: String,
}

pub(super) async fn approve(config: &Config, arguments: &Arguments) -> u8 {
    if let Err(status) = chosen(config, std::slice::from_ref(&arguments.source)) {
        return status;
    }
    let asked = match Asking::of(config, Duration::from_secs(30)) {
        Ok(asking) => {
            asking
                .post(&format!("/sources/{}/approve", arguments.source))
                .await
        }
        Err(error) => Err(error),
    };
    match asked {
        Ok(body) => {
            println!("{body}");
            OK
        }
        Err(error) => {
            eprintln!("resyncd: {error}");
            if matches!(error, AskError::Unreachable { .. }) {
                UNREACHABLE
            } else {
                FAILED
            }
        }
    }
}
