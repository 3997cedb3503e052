//! The query of a request; one that can't be read is answered with JSON, as every other error.

use axum::extract::{FromRequestParts, Query as ParsedQuery};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;

use super::error_response::error_response;

/// The parameters of a request's query.
pub(super) struct Query<T>(pub(super) T);

impl<S, T> FromRequestParts<S> for Query<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        match ParsedQuery::<T>::from_request_parts(parts, state).await {
            Ok(ParsedQuery(query)) => Ok(Self(query)),
            Err(rejection) => {
                let message = rejection.body_text();
                Err(error_response(
                    StatusCode::BAD_REQUEST,
                    "bad-query",
                    &message,
                ))
            }
        }
    }
}
