//! `GET /` for programs that do not ask for HTML, and for people with `curl`.

use askama::Template;

use crate::status::Status;

/// The summary as text, what needs attention first.
#[derive(Template)]
#[template(path = "front.txt")]
pub(super) struct FrontText<'a> {
    pub(super) status: &'a Status,
}

/// A time of our own clock without the fraction of its second. Times of a Source are shown as they are.
fn whole_seconds(time: &str) -> String {
    let whole = time.split_once('.').map(|(whole, _)| format!("{whole}Z"));
    whole.unwrap_or_else(|| time.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_seconds_are_not_shown() {
        let cases = [
            ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ];
        for (time, shown) in cases {
            assert_eq!(whole_seconds(time), shown);
        }
    }
}
