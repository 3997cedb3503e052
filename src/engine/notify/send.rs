//! Sends a message to people, or pings.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use lettre::message::header::{self, ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Mailboxes};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use resyncd_core::{Redaction, one_line};
use resyncd_fetch::{Client, with_userinfo};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::message::Message;
use crate::config::NotifyAction;
use crate::engine::hooks::command::{CommandRun, run_command};
use crate::engine::hooks::delivery::{DeliveryError, accepted};
use crate::random::hex_name;

/// How long a program, a receiver or a mail server may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What sends mails where no server is configured.
const SENDMAIL: &str = "/usr/sbin/sendmail";
/// The longest error of a mail server that is shown, in bytes.
const LONGEST_ERROR: usize = 500;

/// Tells a message; where the action is a ping, nothing. `name`: of the `[[notify]]`.
pub(super) async fn send(
    name: &str,
    action: &NotifyAction,
    message: &Message,
    client: &Client,
    now: DateTime<Utc>,
    stop: &CancellationToken,
) -> Result<(), DeliveryError> {
    match action {
        NotifyAction::Command { program, arguments } => {
            let line = message.json(now) + "\n";
            let variables = vec![
                ("RESYNCD_NOTIFY", name.into()),
                ("RESYNCD_TITLE", message.title.clone().into()),
            ];
            run(program, arguments, variables, line.as_bytes(), stop).await
        }
        NotifyAction::Request {
            url,
            format,
            secret,
        } => {
            let receiver = client.webhook_receiver(url.expose(), TIMEOUT)?;
            let request = message.request(*format, secret.as_ref(), now);
            accepted(TIMEOUT, receiver.send(&request)).await
        }
        NotifyAction::Mail { to, from, server } => {
            let from = from.clone().map_or_else(own_address, Ok)?;
            let mail = mail(message, to, from.clone())?;
            match server {
                Some(server) => send_mail(server.expose(), mail).await,
                None => {
                    let (from, mail) = (from.email.to_string(), mail.formatted());
                    let own = ["-i", "-f", &from, "--"].map(str::to_owned);
                    let to = to.iter().map(|to| to.email.to_string());
                    let arguments: Vec<String> = own.into_iter().chain(to).collect();
                    run(Path::new(SENDMAIL), &arguments, Vec::new(), &mail, stop).await
                }
            }
        }
        NotifyAction::Ping { .. } => Ok(()),
    }
}

/// Requests the URL of a ping.
pub(super) async fn ping(url: &Url, client: &Client) -> Result<(), DeliveryError> {
    let receiver = client.webhook_receiver(url, TIMEOUT)?;
    accepted(TIMEOUT, receiver.ping()).await
}

/// The name of this host.
pub(super) fn host() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    name.chars().filter(char::is_ascii_graphic).collect()
}

async fn run(
    program: &Path,
    arguments: &[String],
    variables: Vec<(&'static str, std::ffi::OsString)>,
    input: &[u8],
    stop: &CancellationToken,
) -> Result<(), DeliveryError> {
    let run = CommandRun {
        program,
        arguments,
        variables,
        input,
        timeout: TIMEOUT,
    };
    Ok(run_command(&run, stop).await?)
}

/// `resyncd` on this host.
fn own_address() -> Result<Mailbox, DeliveryError> {
    let address = format!("resyncd@{}", host());
    let refused = |_| {
        let message = format!("{address} is no address; state a sender with `from`");
        DeliveryError::Mail(message)
    };
    address.parse().map_err(refused)
}

fn mail(
    message: &Message,
    to: &Mailboxes,
    from: Mailbox,
) -> Result<lettre::Message, DeliveryError> {
    // No program answers it (RFC 3834).
    let automatic = HeaderValue::new(
        HeaderName::new_from_ascii_str("Auto-Submitted"),
        "auto-generated".to_owned(),
    );
    let built = lettre::Message::builder()
        .from(from)
        .mailbox(header::To::from(to.clone()))
        .subject(&message.title)
        .message_id(hex_name(16).ok().map(|id| format!("<{id}@{}>", host())))
        .header(ContentType::TEXT_PLAIN)
        .raw_header(automatic)
        .body(message.text.clone());
    built.map_err(|error| DeliveryError::Mail(error.to_string()))
}

async fn send_mail(server: &Url, mail: lettre::Message) -> Result<(), DeliveryError> {
    let redaction = with_userinfo(Redaction::default(), server);
    let failed = |error: lettre::transport::smtp::Error| {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        DeliveryError::Mail(one_line(&redaction.redact(&text), LONGEST_ERROR))
    };
    let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(server.as_str());
    let transport = transport.map_err(failed)?.timeout(Some(TIMEOUT)).build();
    match tokio::time::timeout(TIMEOUT, transport.send(mail)).await {
        Ok(sent) => sent.map(drop).map_err(failed),
        Err(_) => Err(DeliveryError::Timeout(TIMEOUT)),
    }
}
