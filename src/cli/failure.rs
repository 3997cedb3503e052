//! Why a command ends early.

use std::fmt::Display;

use resyncd_fetch::FetchError;

use super::daemon::StartError;
use super::daemon_client::DaemonError;
use super::exit_status::{FAILED, FAULTS, UNREACHABLE};
use crate::config::ConfigFaults;
use crate::status::StatusError;
use crate::store::StoreError;

/// What is printed on standard error, and the exit status.
#[derive(Debug)]
pub(super) struct Failure {
    status: u8,
    text: String,
}

impl Failure {
    /// `message`: with its code, if it has one.
    pub(super) fn new(status: u8, message: impl Display) -> Self {
        let text = format!("resyncd: {message}");
        Self { status, text }
    }

    /// A failure with the exit status 1.
    pub(super) fn coded(code: &str, message: impl Display) -> Self {
        Self::new(FAILED, format!("{message} [{code}]"))
    }

    /// The same with another exit status.
    pub(super) fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// Prints it; returns the exit status.
    pub(super) fn print(self) -> u8 {
        eprintln!("{}", self.text);
        self.status
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        let status = if error.is_unreachable() {
            UNREACHABLE
        } else {
            FAILED
        };
        Self::new(status, error)
    }
}

impl From<ConfigFaults> for Failure {
    fn from(faults: ConfigFaults) -> Self {
        Self {
            status: FAULTS,
            text: faults.to_string(),
        }
    }
}

impl From<StatusError> for Failure {
    fn from(error: StatusError) -> Self {
        Self::coded(&error.code, error.message)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::coded(error.code(), error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        StartError::from(error).into()
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        StartError::from(error).into()
    }
}
