//! Validators in the headers of responses and requests (RFC 9110, sections 8.8 and 13.1).

use chrono::TimeDelta;
use reqwest::RequestBuilder;
use reqwest::header::{DATE, ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use resourcesync::SourceTime;
use resyncd_core::Validators;

use crate::parse_http_date;

/// The validators of a response. A `Last-Modified` that does not yet distinguish versions is left out.
pub(super) fn validators_of(headers: &HeaderMap) -> Validators {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
    Validators {
        etag: text(ETAG),
        last_modified: text(LAST_MODIFIED).filter(|_| is_past(headers)),
    }
}

/// Makes a request conditional on the known version.
pub(super) fn make_conditional(
    known: Option<&Validators>,
    mut request: RequestBuilder,
) -> RequestBuilder {
    let Some(known) = known else { return request };
    if let Some(etag) = &known.etag {
        request = request.header(IF_NONE_MATCH, etag);
    }
    if let Some(time) = &known.last_modified {
        request = request.header(IF_MODIFIED_SINCE, time);
    }
    request
}

/// Whether the second of the last modification was over when the server answered. Within it there may be another version with
/// the same date (RFC 9110, section 8.8.2.2).
fn is_past(headers: &HeaderMap) -> bool {
    let date = |name| parse_http_date(headers.get(name)?.to_str().ok()?);
    matches!((date(LAST_MODIFIED), date(DATE)),
        (Some(modified), Some(answered)) if answered - modified >= TimeDelta::seconds(1))
}

/// The time of the `Last-Modified` header.
pub(super) fn last_modified(headers: &HeaderMap) -> Option<SourceTime> {
    parse_http_date(headers.get(LAST_MODIFIED)?.to_str().ok()?).map(SourceTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_modified_is_a_validator_once_its_second_is_over() {
        let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (answered, expected) in [
            (Some("Sun, 06 Nov 1994 08:49:37 GMT"), None),
            (Some("Sun, 06 Nov 1994 08:49:36 GMT"), None),
            (Some("yesterday"), None),
            (None, None),
            (Some("Sun, 06 Nov 1994 08:49:38 GMT"), Some(modified)),
            (Some("Mon, 07 Nov 1994 00:00:00 GMT"), Some(modified)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LAST_MODIFIED, modified.parse().unwrap());
            headers.insert(ETAG, "\"1\"".parse().unwrap());
            if let Some(answered) = answered {
                headers.insert(DATE, answered.parse().unwrap());
            }
            let validators = validators_of(&headers);
            assert_eq!(
                validators.last_modified.as_deref(),
                expected,
                "{answered:?}"
            );
            assert_eq!(validators.etag.as_deref(), Some("\"1\""));
        }
    }
}
