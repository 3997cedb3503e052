//! `check`: checks the configuration and prints every fault, or `ok`; warns of what can hardly be meant.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::environment::{Probe, probes};
use super::exit_status::{FAILED, FAULTS, OK};
use crate::config::Config;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// Also check what the configuration needs: folders, their owner and free space, ports
    #[arg(long)]
    environment: bool,
}

pub(super) async fn check(path: &Path, arguments: &CheckArguments) -> u8 {
    match Config::check(path) {
        Ok(config) => {
            if let Some(warning) = exposed_passwords(&config, path) {
                tracing::warn!(code = "configuration-readable", "{warning}");
            }
            for warning in &Config::warnings(path) {
                eprintln!("warning: {warning}");
            }
            if arguments.environment {
                let probes = probes(&config).await;
                for probe in &probes {
                    println!("{}", probe.line());
                }
                if !probes.iter().all(Probe::is_right) {
                    return FAILED;
                }
            }
            println!("ok");
            OK
        }
        // The faults are the result of this command: they go to standard output.
        Err(faults) => {
            println!("{faults}");
            FAULTS
        }
    }
}

/// A warning if other users can read the passwords of the configuration.
fn exposed_passwords(config: &Config, path: &Path) -> Option<String> {
    let mut sources = config.sources.iter();
    let has_passwords = sources.any(|source| source.credentials.has_passwords());
    if !has_passwords && !config.http.proxies.has_password_in_file() {
        return None;
    }
    let mode = fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| {
        format!(
            "{} holds passwords and can be read by every user (mode {:03o}): make it readable by the daemon's user only",
            path.display(),
            mode & 0o777
        )
    })
}
