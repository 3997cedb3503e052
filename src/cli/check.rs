//! `check`: checks the configuration and prints every fault, or `ok`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::exit_status::{FAULTS, OK};
use crate::config::Config;

pub(super) fn check(path: &Path) -> u8 {
    match Config::load(path) {
        Ok(config) => {
            if let Some(warning) = exposed_passwords(&config, path) {
                tracing::warn!(code = "configuration-readable", "{warning}");
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
    if sources.all(|source| source.credentials.is_empty()) {
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
