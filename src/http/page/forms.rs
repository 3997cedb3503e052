//! What a request that changes something is answered with, if a form of a page has sent it: the way back to that page.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::answer::{operation_failed, unknown_source, wants_page};
use super::display::{counted, source_page};
use crate::status::StatusError;

/// The way to `/` from where the forms are sent: `/sources/NAME/OPERATION`.
const ROOT: &str = "../../";

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Caller {
    /// A program.
    Program,
    /// A form of the first page.
    FrontPage,
    /// A form of the page of the Source.
    SourcePage,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let leads_to_source = parts.uri.query() == Some("back=source");
        Ok(match (wants_page(&parts.headers), leads_to_source) {
            (false, _) => Self::Program,
            (true, false) => Self::FrontPage,
            (true, true) => Self::SourcePage,
        })
    }
}

impl Caller {
    /// The answer to a form; `None`: it was none. `done`: what was done about how many changes of that Source; `None`: there is none of
    /// that name.
    pub(in crate::http) fn answer(
        self,
        what: &str,
        name: &str,
        done: &Result<Option<u64>, StatusError>,
    ) -> Option<Response> {
        let page = match self {
            Self::Program => return None,
            Self::FrontPage => ROOT.to_owned(),
            Self::SourcePage => source_page(ROOT, name),
        };
        let count = match done {
            Ok(Some(count)) => count,
            Ok(None) => return Some(unknown_source(ROOT, name)),
            Err(error) => return Some(operation_failed(ROOT, error)),
        };
        let location = format!("{page}?done={what}&source={name}&count={count}");
        let location = HeaderValue::from_str(&location);
        let location = location.unwrap_or_else(|_| HeaderValue::from_static(ROOT));
        Some((StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response())
    }
}

/// What the last form has done, as the query of the page states it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Done {
    done: Option<String>,
    source: Option<String>,
    count: Option<u64>,
}

impl Done {
    /// What was done, in words. Whoever writes the query chooses among these words only.
    pub(super) fn message(&self, mut is_source: impl FnMut(&str) -> bool) -> Option<String> {
        let source = self.source.as_deref().filter(|name| is_source(name))?;
        let count = self.count.unwrap_or(0);
        match self.done.as_deref()? {
            "polled" => Some(format!("{source} is being polled.")),
            "approved" => {
                let deletions = counted(count, "deletion", "deletions");
                Some(format!("{deletions} of {source} approved."))
            }
            "rejected" => {
                let deletions = counted(count, "deletion", "deletions");
                Some(format!("{deletions} of {source} rejected; the files stay."))
            }
            "retried" => {
                let changes = counted(count, "change of", "changes of");
                Some(format!("{changes} {source} tried again."))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn form_is_answered_with_the_way_back() {
        let location = |caller: Caller| {
            let answer = caller.answer("approved", "a-b", &Ok(Some(7)))?;
            assert_eq!(answer.status(), StatusCode::SEE_OTHER);
            Some(
                answer.headers()[header::LOCATION]
                    .to_str()
                    .unwrap()
                    .to_owned(),
            )
        };
        assert_eq!(location(Caller::Program), None);
        let query = "done=approved&source=a-b&count=7";
        let front = format!("../../?{query}");
        assert_eq!(location(Caller::FrontPage), Some(front));
        let source = format!("../../page/sources/a-b?{query}");
        assert_eq!(location(Caller::SourcePage), Some(source));
        let unknown = Caller::FrontPage
            .answer("approved", "x", &Ok(None))
            .unwrap();
        assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
        let error = StatusError::new("any", "m", DateTime::UNIX_EPOCH);
        let failed = Caller::FrontPage
            .answer("approved", "x", &Err(error))
            .unwrap();
        assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn what_was_done_is_said_in_words_of_a_fixed_list() {
        let message = |done: &str, source: &str, count| {
            let done = Done {
                done: Some(done.to_owned()),
                source: Some(source.to_owned()),
                count,
            };
            done.message(|name| name == "a")
        };
        for (done, expected) in [
            ("polled", "a is being polled."),
            ("approved", "2 deletions of a approved."),
            ("rejected", "2 deletions of a rejected; the files stay."),
            ("retried", "2 changes of a tried again."),
        ] {
            assert_eq!(message(done, "a", Some(2)).as_deref(), Some(expected));
        }
        assert_eq!(message("approved", "call 555-0100", Some(2)), None);
        assert_eq!(message("<b>", "a", None), None);
        assert_eq!(Done::default().message(|_| true), None);
    }
}
