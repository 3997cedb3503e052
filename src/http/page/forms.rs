//! What a request that changes something is answered with, if a form of a page has sent it: the way back to that page.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use url::form_urlencoded;

use super::answer::{operation_failed, unknown_source};
use super::display::{counted, source_page};
use crate::status::StatusError;

/// The way to `/` from where the forms are sent: `/sources/NAME/OPERATION`.
const ROOT: &str = "../../";

/// The parameter of a request that a form of a page has, and no program: where the answer leads to.
const BACK: &str = "back";

/// Who sends a request. A program may accept HTML, as some clients do by default: what decides is the parameter
/// that only the forms have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
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
        let query = parts.uri.query().unwrap_or_default();
        let mut stated = form_urlencoded::parse(query.as_bytes());
        let back = stated.find(|(name, _)| name == BACK);
        let back = back.map(|(_, value)| value);
        let pages = [Self::FrontPage, Self::SourcePage];
        let page = pages.into_iter().find(|it| it.name() == back.as_deref());
        Ok(page.unwrap_or(Self::Program))
    }
}

impl Caller {
    /// The value of the parameter; `None`: there is none.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Program => None,
            Self::FrontPage => Some("front"),
            Self::SourcePage => Some("source"),
        }
    }

    /// The query of the address that a form of this page is sent to.
    pub(super) fn query(self) -> String {
        self.name()
            .map_or_else(String::new, |name| format!("?{BACK}={name}"))
    }

    /// The answer to a form; `None`: it was none. `done`: what was done about how many changes of that Source; `None`: there is none of
    /// that name.
    pub(crate) fn answer(
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
    /// What a page of this site leads to. A link of another site may state anything.
    pub(super) fn unless_foreign(self, headers: &HeaderMap) -> Self {
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        match site {
            Some(b"cross-site" | b"same-site") => Self::default(),
            _ => self,
        }
    }

    /// What was done, in words. Whoever writes the query chooses among these words only.
    pub(super) fn message(&self, mut is_source: impl FnMut(&str) -> bool) -> Option<String> {
        let source = self.source.as_deref().filter(|name| is_source(name))?;
        let count = self.count.unwrap_or(0);
        let deletions = counted(count, "deletion", "deletions");
        Some(match self.done.as_deref()? {
            "polled" => format!("{source} is being polled."),
            "audited" => format!("{source} is being audited."),
            "paused" => format!("{source} is paused."),
            "resumed" => format!("{source} is resumed."),
            "approved" => format!("{deletions} of {source} approved."),
            "rejected" => format!("{deletions} of {source} rejected; the files stay."),
            "held" => format!("{deletions} of {source} held back again."),
            "retried" => {
                let changes = counted(count, "change of", "changes of");
                format!("{changes} {source} tried again.")
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
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
        let error = StatusError::new("more-deletions-held", "m", DateTime::UNIX_EPOCH);
        let refused = Caller::SourcePage.answer("approved", "x", &Err(error));
        assert_eq!(refused.unwrap().status(), StatusCode::CONFLICT);
    }

    #[tokio::test]
    async fn form_is_known_by_its_own_parameter() {
        for (query, expected) in [
            ("", Caller::Program),
            ("?held=7", Caller::Program),
            ("?back=elsewhere", Caller::Program),
            ("?back=front", Caller::FrontPage),
            ("?back=source", Caller::SourcePage),
            ("?held=7&back=source", Caller::SourcePage),
        ] {
            let request = Request::post(format!("/sources/a/approve{query}"));
            // As Java's URLConnection sends it.
            let request = request.header("accept", "text/html, image/gif, image/jpeg, */*; q=0.2");
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            let caller = Caller::from_request_parts(&mut parts, &()).await.unwrap();
            assert_eq!(caller, expected, "{query}");
            let own = caller.query();
            assert!(own.is_empty() || query.contains(&own[1..]), "{own}");
        }
    }

    #[test]
    fn link_of_another_site_claims_nothing() {
        for (site, is_shown) in [
            (None, true),
            (Some("none"), true),
            (Some("same-origin"), true),
            (Some("same-site"), false),
            (Some("cross-site"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(site) = site {
                headers.insert("sec-fetch-site", site.parse().unwrap());
            }
            let done = Done {
                done: Some("polled".to_owned()),
                source: Some("a".to_owned()),
                count: None,
            };
            let shown = done.unless_foreign(&headers).message(|_| true);
            assert_eq!(shown.is_some(), is_shown, "{site:?}");
        }
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
            ("held", "2 deletions of a held back again."),
            ("retried", "2 changes of a tried again."),
        ] {
            assert_eq!(message(done, "a", Some(2)).as_deref(), Some(expected));
        }
        assert_eq!(message("approved", "call 555-0100", Some(2)), None);
        assert_eq!(message("<b>", "a", None), None);
        assert_eq!(Done::default().message(|_| true), None);
    }
}
