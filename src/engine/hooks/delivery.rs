//! What becomes of what is sent to a program or a receiver that the configuration names.

use std::io;
use std::time::Duration;

use resyncd_fetch::{FetchError, WebhookAnswer};

use super::command::CommandError;

/// Why something was not accepted.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum DeliveryError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("the files of the changes can't be copied: {0}")]
    Files(io::Error),
    #[error("the request has no answer: {0}")]
    Request(#[from] FetchError),
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    #[error("the receiver answers {status}")]
    Refused {
        status: u16,
        retry_after: Option<Duration>,
    },
    #[error("the receiver answers 410: it wants no further requests")]
    Gone,
    /// The error of a mail server.
    #[error("the mail is not accepted: {0}")]
    Mail(String),
}

impl DeliveryError {
    /// The stable code of the error, in kebab-case.
    pub(in crate::engine) fn code(&self) -> &'static str {
        match self {
            Self::Command(error) => error.code(),
            Self::Files(_) => "hook-files",
            Self::Request(error) => error.code(),
            Self::Timeout(_) => "timeout",
            Self::Refused { .. } => "http-status",
            Self::Gone => "gone",
            Self::Mail(_) => "mail-refused",
        }
    }

    pub(in crate::engine) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Request(error) => error.retry_after(),
            _ => None,
        }
    }
}

/// Waits for the answer to a request, for that time at most.
pub(in crate::engine) async fn accepted(
    timeout: Duration,
    sending: impl Future<Output = Result<WebhookAnswer, FetchError>>,
) -> Result<(), DeliveryError> {
    let answer = tokio::time::timeout(timeout, sending).await;
    match answer.unwrap_or(Err(FetchError::Timeout)) {
        Ok(WebhookAnswer::Accepted) => Ok(()),
        Ok(WebhookAnswer::Gone) => Err(DeliveryError::Gone),
        Ok(WebhookAnswer::Refused {
            status,
            retry_after,
        }) => Err(DeliveryError::Refused {
            status,
            retry_after,
        }),
        // The client may notice it first.
        Err(FetchError::Timeout) => Err(DeliveryError::Timeout(timeout)),
        Err(error) => Err(error.into()),
    }
}
