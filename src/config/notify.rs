//! Reads `[[notify]]`: who is told what waits for a person, and how.
//!
//! Invariant: no fault repeats a secret, and a URL may be one.

use std::path::PathBuf;
use std::time::Duration;

use lettre::message::{Mailbox, Mailboxes};
use lettre::{AsyncSmtpTransport, Tokio1Executor};
use resourcesync::uri::parse_uri;
use resyncd_core::Redaction;

use crate::config::fault::{Parsed, Reason};
use crate::config::hook::{LONGEST_SECRET, parse_secret, read_command};
use crate::config::secret::{
    PrivateUrl, WebhookSecret, is_secret_given, read_private, read_secret,
};
use crate::config::table_reader::{Class, TableReader, text};
use crate::config::value::parse_url;
use crate::status::ATTENTIONS;

/// How many of these tables there may be.
const MOST: usize = 16;
/// The longest URL, in bytes.
const LONGEST_URL: u64 = 4096;

/// A `[[notify]]`: who is told what waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// Its name among these tables: `[a-z0-9-]`.
    pub name: String,
    /// What is told: codes of attentions, or what stands for several things.
    pub on: Vec<String>,
    /// How long something lasts until it is told, and the shortest time between two messages.
    pub after: Duration,
    /// After how long what lasts is told again; `None`: never.
    pub repeat: Option<Duration>,
    /// What is done.
    pub action: NotifyAction,
}

/// How people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotifyAction {
    /// Runs a program, which gets the message on its standard input.
    Command {
        /// The program, as an absolute path.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Sends a request with the message.
    Request {
        /// Where it is sent.
        url: PrivateUrl,
        /// The form of the message.
        format: NotifyFormat,
        /// What it is signed with.
        secret: Option<WebhookSecret>,
    },
    /// Sends a mail.
    Mail {
        /// To whom.
        to: Mailboxes,
        /// From whom; `None`: from `resyncd` on this host.
        from: Option<Mailbox>,
        /// The mail server; `None`: `/usr/sbin/sendmail` has the mail sent.
        server: Option<PrivateUrl>,
    },
    /// Requests a URL every minute while there is nothing to tell.
    Ping {
        /// The URL.
        url: PrivateUrl,
    },
}

/// The form of a message in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyFormat {
    /// JSON, as the documentation describes it; signed as Standard Webhooks if there is a secret.
    Json,
    /// For an incoming webhook of Slack, or of what understands those: Mattermost, Rocket.Chat.
    Slack,
    /// For a workflow of Microsoft Teams that is triggered by a webhook: an Adaptive Card.
    Teams,
    /// For a topic of ntfy.
    Ntfy,
}

const FORMATS: [(&str, NotifyFormat); 4] = [
    ("json", NotifyFormat::Json),
    ("slack", NotifyFormat::Slack),
    ("teams", NotifyFormat::Teams),
    ("ntfy", NotifyFormat::Ntfy),
];

impl Notify {
    /// What stands for every attention.
    pub const ATTENTION: &'static str = "attention";
    /// A Source, or one of its sets, is failing.
    pub const FAILING: &'static str = "failing";
    /// The end of what was told.
    pub const RECOVERED: &'static str = "recovered";

    /// Whether it is told that something with this code begins: an attention's, or [`FAILING`](Self::FAILING).
    #[must_use]
    pub fn tells(&self, code: &str) -> bool {
        let any = |wanted: &str| self.on.iter().any(|on| on == wanted);
        any(code) || (code != Self::FAILING && any(Self::ATTENTION))
    }

    /// The same redaction, which also removes the secrets of this one.
    pub(super) fn added_to(&self, redaction: Redaction) -> Redaction {
        let (url, secret) = match &self.action {
            NotifyAction::Command { .. } => (None, None),
            NotifyAction::Request { url, secret, .. } => (Some(url), secret.as_ref()),
            NotifyAction::Mail { server, .. } => (server.as_ref(), None),
            NotifyAction::Ping { url } => (Some(url), None),
        };
        let secrets = url.map(|url| url.expose().as_str()).into_iter();
        let secrets = secrets.chain(secret.map(WebhookSecret::expose));
        secrets.fold(redaction, |redaction, secret| redaction.with(secret))
    }

    /// Whether the end of what was told is told.
    #[must_use]
    pub fn tells_ends(&self) -> bool {
        self.on.iter().any(|on| on == Self::RECOVERED)
    }
}

/// Reads all `[[notify]]`. They are valid only if no fault was found.
pub(super) fn read_notifications(document: &mut TableReader<'_, '_>) -> Vec<Notify> {
    let mut all: Vec<Notify> = Vec::new();
    document.tables("notify", "notify", |number, mut section| {
        let Some(notify) = read_notify(&mut section) else {
            return;
        };
        if all.iter().any(|other| other.name == notify.name) {
            reject!(section, "name", "duplicate-name": "two [[notify]] are named {:?}", notify.name);
        }
        if number > MOST {
            reject!(section, "name", "out-of-range": "there can be {MOST} [[notify]]");
        }
        all.push(notify);
    });
    all
}

/// `None`: it has a fault, or a secret that this process cannot read.
fn read_notify(section: &mut TableReader<'_, '_>) -> Option<Notify> {
    if !section.is_present("name") {
        reject!(section, "name", "missing-key": "required key is missing");
    }
    let name = section.label("name");
    let on = section.list("on", parse_occasion);
    let after = section.duration_or_never("after").unwrap_or_default();
    let repeat = section.duration_or_never("repeat");
    let command = read_command(section);
    let url = read_private(section, "url", LONGEST_URL, |text| {
        parse_url(text).map(PrivateUrl::new)
    });
    let format = section.choice("format", &FORMATS);
    let secret = read_secret(section, "secret", LONGEST_SECRET, parse_secret);
    let to = section.optional("mail", Class::Any, text("addresses", parse_mailboxes));
    let from = section.optional("from", Class::Any, text("an address", parse_sender));
    let server = read_private(section, "smtp", LONGEST_URL, parse_server);
    let ping = read_private(section, "ping", LONGEST_URL, |text| {
        parse_url(text).map(PrivateUrl::new)
    });
    let is_signed = is_secret_given(section, "secret");
    if is_signed && (format != NotifyFormat::Json || !is_secret_given(section, "url")) {
        reject!(section, "secret", "bad-notify": "only requests with `format` \"json\" are signed");
    }
    let ways = [
        section.is_present("command"),
        is_secret_given(section, "url"),
        section.is_present("mail"),
        is_secret_given(section, "ping"),
    ];
    if ways.iter().filter(|is_given| **is_given).count() != 1 {
        reject!(section, "name", "bad-notify": "a [[notify]] needs one of `command`, `url`, `mail` and `ping`");
        return None;
    }
    let action = match ways {
        [true, ..] => {
            let (program, arguments) = command?;
            NotifyAction::Command { program, arguments }
        }
        [_, true, ..] => NotifyAction::Request {
            url: url?.value,
            format,
            secret: match secret {
                None if is_signed => return None,
                secret => secret.map(|secret| secret.value),
            },
        },
        [_, _, true, _] => NotifyAction::Mail {
            to: to?,
            from: from.flatten(),
            server: match server {
                None if is_secret_given(section, "smtp") => return None,
                server => server.map(|server| server.value),
            },
        },
        _ => NotifyAction::Ping { url: ping?.value },
    };
    Some(Notify {
        name: name?,
        on,
        after,
        repeat,
        action,
    })
}

fn parse_occasion(text: &str) -> Parsed<String> {
    let groups = [Notify::ATTENTION, Notify::FAILING, Notify::RECOVERED];
    let is_known = groups.contains(&text) || ATTENTIONS.contains(&text);
    ensure!(is_known, "bad-choice":
        "{text:?} is neither \"attention\", \"failing\" or \"recovered\" nor the code of an attention, such as \"held-deletions\"");
    Ok(text.to_owned())
}

fn parse_mailboxes(text: &str) -> Parsed<Mailboxes> {
    let addresses = text.parse::<Mailboxes>().ok();
    let addresses = addresses.filter(|addresses| addresses.iter().next().is_some());
    addresses.ok_or_else(|| bad_address(text))
}

/// `None`: none is stated.
fn parse_sender(text: &str) -> Parsed<Option<Mailbox>> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| bad_address(text)),
    }
}

fn bad_address(text: &str) -> Reason {
    reason!("bad-mail": "{text:?} is no mail address, such as \"admin@example.net\"; several are separated by commas")
}

fn parse_server(text: &str) -> Parsed<PrivateUrl> {
    // The library's errors may repeat the password.
    let bad = || {
        reason!("bad-url": "the mail server is stated as smtps://USER:PASSWORD@HOST, smtp://USER:PASSWORD@HOST:587?tls=required, or \
            smtp://HOST for one that needs neither a password nor TLS")
    };
    let url = parse_uri(text).map_err(|_| bad())?;
    let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.as_str());
    transport.map_err(|_| bad())?;
    Ok(PrivateUrl::new(url))
}
