//! What answers a request in place of a connection.

use futures_util::future::BoxFuture;
use reqwest::{Request, Response};

use super::FetchError;

/// Answers requests. Redirects, conditional requests, retries and limits remain the client's.
pub trait HttpNetwork: Send + Sync {
    /// Answers one request.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>>;
}
