//! A message to people: its title, its text, and its forms for receivers.

use chrono::{DateTime, Utc};
use resourcesync::{Algorithm, Digest};
use resyncd_fetch::WebhookRequest;
use serde_json::{Value, json};

use super::subjects::Subject;
use super::told::{Ended, News};
use crate::config::{NotifyFormat, WebhookSecret};
use crate::status::Attention;

/// The `type` of the JSON.
const TYPE: &str = "resyncd.notification";
/// How many things of each kind one message describes; the others are counted.
const MOST: usize = 50;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// One line of ASCII.
    pub(super) title: String,
    /// Lines.
    pub(super) text: String,
    /// Whether something begins or lasts.
    pub(super) is_bad: bool,
    data: Value,
}

impl Message {
    /// A message of the `[[notify]]` of that name, from that host.
    pub(super) fn new(news: &News, name: &str, host: &str) -> Self {
        let News {
            began,
            lasting,
            ended,
        } = news;
        let groups = [
            ("attention needed", began.len()),
            ("attention still needed", lasting.len()),
            ("over", ended.len()),
        ];
        let counted = groups.iter().filter(|(_, number)| *number > 0);
        let counted = counted.map(|(what, number)| format!("{what} ({number})"));
        let subjects = began.iter().chain(lasting).map(|(subject, _)| subject);
        let mut subjects = subjects.chain(ended.iter().map(|ended| &ended.subject));
        let what = match (subjects.next(), subjects.next()) {
            (Some(Subject { source, code, .. }), None) => match source {
                Some(source) => format!("{code} ({source})"),
                None => code.clone(),
            },
            _ => String::new(),
        };
        let title = match (what.as_str(), ended.is_empty()) {
            ("", _) => counted.collect::<Vec<_>>().join(", "),
            (what, true) => what.to_owned(),
            (what, false) => format!("over: {what}"),
        };
        let mut text = String::new();
        for (heading, things) in [
            ("Attention needed", began),
            ("Attention still needed", lasting),
        ] {
            let lines = things.iter().map(|(subject, attention)| {
                let Attention {
                    message,
                    since,
                    next_step,
                    ..
                } = attention;
                format!(
                    "{} since {since}: {message}\n  Next step: {next_step}",
                    shown(subject)
                )
            });
            append(&mut text, heading, things.len(), lines);
        }
        let over = ended.iter().map(|ended| {
            let Ended {
                subject,
                message,
                since,
            } = ended;
            format!("{} since {since}: {message}", shown(subject))
        });
        append(&mut text, "Over", ended.len(), over);
        Self {
            title: format!("resyncd on {host}: {title}"),
            text,
            is_bad: !began.is_empty() || !lasting.is_empty(),
            data: data(news, name, host),
        }
    }

    /// The JSON for a program, with the title and the text.
    pub(super) fn json(&self, now: DateTime<Utc>) -> String {
        WebhookRequest::body(TYPE, &self.complete_data(), now)
    }

    fn complete_data(&self) -> Value {
        let mut data = self.data.clone();
        data["title"] = json!(self.title);
        data["text"] = json!(self.text);
        data
    }

    /// The request that tells it.
    pub(super) fn request(
        &self,
        format: NotifyFormat,
        secret: Option<&WebhookSecret>,
        now: DateTime<Utc>,
    ) -> WebhookRequest {
        let Self { title, text, .. } = self;
        match (format, secret) {
            (NotifyFormat::Json, Some(secret)) => {
                let data = self.complete_data();
                let id = Digest::of(Algorithm::Sha256, data.to_string().as_bytes()).to_string();
                WebhookRequest::signed(id, TYPE, &data, secret.bytes(), now)
            }
            (NotifyFormat::Json, None) => WebhookRequest::json(self.json(now)),
            (NotifyFormat::Slack, _) => {
                let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
                let escaped = escaped.replace('>', "&gt;");
                let body = json!({ "text": format!("*{title}*\n{escaped}") });
                WebhookRequest::json(body.to_string())
            }
            (NotifyFormat::Teams, _) => {
                let block = |text: &str| json!({ "type": "TextBlock", "text": text, "wrap": true });
                let mut blocks = vec![block(title)];
                blocks[0]["weight"] = json!("Bolder");
                blocks.extend(text.lines().map(block));
                let card = json!({
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard", "version": "1.4", "body": blocks,
                });
                let kind = "application/vnd.microsoft.card.adaptive";
                let attachment = json!({ "contentType": kind, "content": card });
                let body = json!({ "type": "message", "attachments": [attachment] });
                WebhookRequest::json(body.to_string())
            }
            (NotifyFormat::Ntfy, _) => {
                let (tag, priority) = if self.is_bad {
                    ("warning", "high")
                } else {
                    ("white_check_mark", "default")
                };
                WebhookRequest {
                    headers: vec![
                        ("title", title.clone()),
                        ("tags", tag.to_owned()),
                        ("priority", priority.to_owned()),
                    ],
                    body: text.clone(),
                }
            }
        }
    }
}

/// Appends a paragraph with the first lines.
fn append(text: &mut String, heading: &str, number: usize, lines: impl Iterator<Item = String>) {
    if number == 0 {
        return;
    }
    text.push_str(heading);
    text.push_str(":\n");
    for line in lines.take(MOST) {
        text.push_str(&format!("- {line}\n"));
    }
    if let Some(more) = number.checked_sub(MOST).filter(|more| *more > 0) {
        text.push_str(&format!("- and {more} more: see `resyncd status`\n"));
    }
}

/// A subject at the beginning of a line.
fn shown(Subject { source, set, code }: &Subject) -> String {
    let of = [source, set].into_iter().flatten();
    let of: Vec<&str> = of.map(String::as_str).collect();
    if of.is_empty() {
        code.clone()
    } else {
        format!("{}: {code}", of.join(", "))
    }
}

/// The news without a title and a text.
fn data(news: &News, name: &str, host: &str) -> Value {
    let things = |things: &[(Subject, Attention)]| -> Vec<Value> {
        let row = |(Subject { source, set, code }, attention): &(Subject, Attention)| {
            let Attention {
                message,
                since,
                next_step,
                ..
            } = attention;
            json!({
                "source": source, "set": set, "code": code, "message": message, "since": since, "next_step": next_step,
            })
        };
        things.iter().take(MOST).map(row).collect()
    };
    let ended = news.ended.iter().take(MOST).map(|ended| {
        let Subject { source, set, code } = &ended.subject;
        json!({ "source": source, "set": set, "code": code, "message": ended.message, "since": ended.since })
    });
    let counts = json!({ "began": news.began.len(), "lasting": news.lasting.len(), "ended": news.ended.len() });
    json!({
        "notify": name,
        "host": host,
        "began": things(&news.began),
        "lasting": things(&news.lasting),
        "ended": ended.collect::<Vec<_>>(),
        "counts": counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(source: Option<&str>, code: &str) -> Subject {
        Subject {
            source: source.map(str::to_owned),
            set: source.map(|source| format!("http://{source}.example/list")),
            code: code.to_owned(),
        }
    }

    fn began(source: Option<&str>, code: &str) -> (Subject, Attention) {
        let attention = Attention {
            code: code.to_owned(),
            message: "a <b> & c".to_owned(),
            since: "2026-01-02T03:04:05Z".to_owned(),
            next_step: "look".to_owned(),
        };
        (subject(source, code), attention)
    }

    fn ended(source: Option<&str>, code: &str) -> Ended {
        Ended {
            subject: subject(source, code),
            message: "it was so".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
        }
    }

    fn message(began: Vec<(Subject, Attention)>, ended: Vec<Ended>) -> Message {
        let news = News {
            began,
            ended,
            ..News::default()
        };
        Message::new(&news, "operators", "host")
    }

    #[test]
    fn title_names_a_single_thing_and_counts_several() {
        let stale = || began(Some("example"), "stale");
        for (began, ended, expected) in [
            (vec![stale()], vec![], "stale (example)"),
            (vec![began(None, "database-row")], vec![], "database-row"),
            (
                vec![],
                vec![ended(Some("example"), "stale")],
                "over: stale (example)",
            ),
            (vec![stale(), stale()], vec![], "attention needed (2)"),
            (
                vec![stale()],
                vec![ended(None, "stale")],
                "attention needed (1), over (1)",
            ),
        ] {
            let found = message(began, ended);
            assert_eq!(found.title, format!("resyncd on host: {expected}"));
        }
    }

    #[test]
    fn text_has_each_thing_with_its_next_step_up_to_a_number() {
        let found = message(
            vec![began(Some("example"), "stale")],
            vec![ended(None, "stale")],
        );
        let expected = "Attention needed:\n- example, http://example.example/list: stale since 2026-01-02T03:04:05Z: a <b> & c\n  \
                        Next step: look\nOver:\n- stale since 2026-01-01T00:00:00Z: it was so\n";
        assert_eq!(found.text, expected);
        let storm = vec![began(Some("example"), "stale"); MOST + 7];
        let found = message(storm, Vec::new());
        assert!(found.text.ends_with("- and 7 more: see `resyncd status`\n"));
        let data = found.complete_data();
        assert_eq!(data["counts"]["began"], MOST + 7);
        assert_eq!(data["began"].as_array().unwrap().len(), MOST);
    }

    #[test]
    fn requests_have_the_forms_of_their_receivers() {
        let found = message(vec![began(Some("example"), "stale")], Vec::new());
        let over = message(Vec::new(), vec![ended(Some("example"), "stale")]);
        let now = DateTime::UNIX_EPOCH;
        let secret = WebhookSecret::new("whsec_x", vec![7; 24]);
        let body = |request: &WebhookRequest| serde_json::from_str::<Value>(&request.body).unwrap();
        let header = |request: &WebhookRequest, wanted: &str| {
            let mut headers = request.headers.iter();
            let found = headers.find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.clone())
        };

        let signed = found.request(NotifyFormat::Json, Some(&secret), now);
        let plain = found.request(NotifyFormat::Json, None, now);
        assert_eq!(signed.body, plain.body);
        let json = body(&plain);
        assert_eq!(json["type"], "resyncd.notification");
        assert_eq!(json["data"]["began"][0]["code"], "stale");
        assert_eq!(json["data"]["text"], found.text.as_str());
        assert!(header(&plain, "webhook-id").is_none());
        let id = header(&signed, "webhook-id").unwrap();
        assert!(header(&signed, "webhook-signature").is_some());
        // The same message has the same id, also when it is sent again later.
        let later = found.request(
            NotifyFormat::Json,
            Some(&secret),
            now + chrono::TimeDelta::hours(1),
        );
        assert_eq!(header(&later, "webhook-id").unwrap(), id);
        let other = over.request(NotifyFormat::Json, Some(&secret), now);
        assert_ne!(header(&other, "webhook-id").unwrap(), id);

        let slack = body(&found.request(NotifyFormat::Slack, None, now));
        let text = slack["text"].as_str().unwrap();
        assert!(
            text.starts_with("*resyncd on host: stale (example)*\n"),
            "{text}"
        );
        assert!(text.contains("a &lt;b&gt; &amp; c"), "{text}");

        let teams = body(&found.request(NotifyFormat::Teams, None, now));
        let card = &teams["attachments"][0]["content"];
        assert_eq!(
            (&card["type"], card["body"].as_array().unwrap().len()),
            (&json!("AdaptiveCard"), 4)
        );

        for (message, tag) in [(&found, "warning"), (&over, "white_check_mark")] {
            let ntfy = message.request(NotifyFormat::Ntfy, None, now);
            assert_eq!(ntfy.body, message.text);
            assert_eq!(header(&ntfy, "tags").unwrap(), tag);
            assert_eq!(header(&ntfy, "title").unwrap(), message.title);
        }
    }
}
