//! From a connection to a session: TLS, authentication, resource, stream management (RFC 6120, sections 5 to 7; XEP-0198).
//!
//! Invariant: without TLS nothing is sent that is worth reading, unless the server is on loopback; and the password is never sent.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use resyncd_fetch::tls_text;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::account::XmppAccount;
use super::element::StanzaElement;
use super::error::XmppError;
use super::names::{BIND, CLIENT, SASL, SM, STANZA_ERRORS, TLS};
use super::scram::Scram;
use super::stanza::AROUND;
use super::stream::{AnyConnection, XmlStream, condition, escaped, shown, unexpected};

/// The longest stanza before the server has proved who it is, in bytes.
const LONGEST_BEFORE: usize = 64 << 10;
/// How many stanzas may come before the session has begun.
const MOST_EARLY: usize = 1000;

/// Whether TLS is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Security {
    /// Always.
    Required,
    /// Only if the server requires it: nobody is in between.
    Loopback,
}

/// What a session is resumed with (XEP-0198, section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resumption {
    /// The name that the server gave it.
    pub(super) id: String,
    /// How many stanzas were processed.
    pub(super) handled: u32,
    /// The full address.
    pub(super) own: String,
}

/// Whether stanzas are acknowledged (XEP-0198).
pub(super) enum Management {
    Off,
    Acknowledged,
    /// They are, and the session has a name by which it can be resumed.
    Resumable(String),
}

/// A session that has begun.
pub(super) struct Login {
    pub(super) stream: XmlStream,
    /// The full address.
    pub(super) own: String,
    pub(super) management: Management,
    /// Whether it goes on where the one before was lost.
    pub(super) is_resumed: bool,
    /// What came before stanzas were counted: what a session before this one has subscribed to goes on.
    pub(super) early: Vec<StanzaElement>,
}

/// What a session needs.
pub(super) struct LoginCredentials<'a> {
    pub(super) account: &'a XmppAccount,
    /// What TLS begins with: only then are certificates needed.
    pub(super) tls: &'a (dyn Fn() -> Result<Arc<ClientConfig>, XmppError> + Sync),
    /// The resource to ask for.
    pub(super) resource: &'a str,
    /// The longest document, in bytes.
    pub(super) limit: usize,
    /// The service whose documents are to be received.
    pub(super) service: Option<&'a str>,
}

/// Begins a session.
pub(super) async fn log_in(
    connection: AnyConnection,
    security: Security,
    credentials: &LoginCredentials<'_>,
    resumption: Option<&Resumption>,
) -> Result<Login, XmppError> {
    let domain = &credentials.account.domain;
    let mut stream = XmlStream::new(connection, LONGEST_BEFORE);
    let mut features = stream.begin(domain, None).await?;
    let offer = features.child(TLS, "starttls");
    let is_wanted = match security {
        Security::Required if offer.is_none() => return Err(XmppError::NoTls),
        Security::Required => true,
        Security::Loopback => offer.is_some_and(|offer| offer.child(TLS, "required").is_some()),
    };
    if is_wanted {
        stream = encrypt(stream, credentials).await?;
        features = stream.begin(domain, None).await?;
    }
    authenticate(&mut stream, &features, credentials.account).await?;
    stream.set_limit(credentials.limit.saturating_add(AROUND));
    let features = stream.begin(domain, credentials.service).await?;
    let has_management = features.child(SM, "sm").is_some();
    if let Some(resumption) = resumption
        && has_management
        && resume(&mut stream, resumption).await?
    {
        return Ok(Login {
            stream,
            own: resumption.own.clone(),
            management: Management::Resumable(resumption.id.clone()),
            is_resumed: true,
            early: Vec::new(),
        });
    }
    let mut early = Vec::new();
    let own = bind(&mut stream, credentials.resource, &mut early).await?;
    let management = if has_management {
        manage(&mut stream, &mut early).await?
    } else {
        Management::Off
    };
    Ok(Login {
        stream,
        own,
        management,
        is_resumed: false,
        early,
    })
}

async fn encrypt(
    mut stream: XmlStream,
    credentials: &LoginCredentials<'_>,
) -> Result<XmlStream, XmppError> {
    stream.send(&format!("<starttls xmlns='{TLS}'/>"))?;
    if !stream.read().await?.is(TLS, "proceed") {
        return Err(XmppError::NoTls);
    }
    let connection = stream.into_connection()?;
    let name = ServerName::try_from(credentials.account.domain.clone());
    let name = name.map_err(|error| XmppError::Tls(error.to_string()))?;
    let connector = TlsConnector::from((credentials.tls)()?);
    let connection = connector.connect(name, connection).await;
    let connection = connection.map_err(|error| XmppError::Tls(tls_text(&error)))?;
    Ok(XmlStream::new(Box::new(connection), LONGEST_BEFORE))
}

async fn authenticate(
    stream: &mut XmlStream,
    features: &StanzaElement,
    account: &XmppAccount,
) -> Result<(), XmppError> {
    let failed = |text: &str| Err(XmppError::Authentication(text.to_owned()));
    let offered = features.child(SASL, "mechanisms");
    let offered = offered.map_or(&[][..], |offered| &offered.children);
    let is_offered = |name: &&str| {
        let mut offered = offered.iter();
        offered.any(|it| it.is(SASL, "mechanism") && it.text.trim() == *name)
    };
    let Some(name) = Scram::NAMES.into_iter().find(is_offered) else {
        return failed("the server offers neither SCRAM-SHA-256 nor SCRAM-SHA-1");
    };
    let mut scram = Scram::new(name, &account.user, account.password.expose())?;
    let first = STANDARD.encode(scram.first());
    stream.send(&format!(
        "<auth xmlns='{SASL}' mechanism='{name}'>{first}</auth>"
    ))?;
    let challenge = stream.read().await?;
    if !challenge.is(SASL, "challenge") {
        return Err(not_authenticated(&challenge));
    }
    let challenge = decoded(&challenge)?;
    let proving = tokio::task::spawn_blocking(move || {
        let proof = scram.answer(&challenge);
        (scram, proof)
    });
    let Ok((mut scram, proof)) = proving.await else {
        return failed("interrupted");
    };
    let message = STANDARD.encode(proof?);
    stream.send(&format!("<response xmlns='{SASL}'>{message}</response>"))?;
    let mut last = stream.read().await?;
    if last.is(SASL, "challenge") {
        // The signature may come as a challenge of its own (RFC 5802, section 5).
        scram.check(&decoded(&last)?)?;
        stream.send(&format!("<response xmlns='{SASL}'/>"))?;
        last = stream.read().await?;
        return if last.is(SASL, "success") {
            Ok(())
        } else {
            Err(not_authenticated(&last))
        };
    }
    if !last.is(SASL, "success") {
        return Err(not_authenticated(&last));
    }
    scram.check(&decoded(&last)?)
}

fn decoded(element: &StanzaElement) -> Result<Vec<u8>, XmppError> {
    let text = STANDARD.decode(element.text.trim());
    text.map_err(|_| XmppError::Authentication("the server sends no base64".to_owned()))
}

fn not_authenticated(answer: &StanzaElement) -> XmppError {
    if answer.is(SASL, "failure") {
        XmppError::Authentication(condition(answer, SASL))
    } else {
        unexpected(answer)
    }
}

/// Resumes a session. False: the server does not know it any more.
async fn resume(stream: &mut XmlStream, resumption: &Resumption) -> Result<bool, XmppError> {
    let (id, handled) = (escaped(&resumption.id), resumption.handled);
    stream.send(&format!(
        "<resume xmlns='{SM}' h='{handled}' previd='{id}'/>"
    ))?;
    let answer = stream.read().await?;
    match answer.name.as_str() {
        "resumed" if answer.namespace.as_str() == SM => Ok(true),
        "failed" if answer.namespace.as_str() == SM => Ok(false),
        _ => Err(unexpected(&answer)),
    }
}

/// Reads until there is an answer. As soon as the resource is bound, other stanzas may come before it.
async fn answer(
    stream: &mut XmlStream,
    early: &mut Vec<StanzaElement>,
    is_answer: impl Fn(&StanzaElement) -> bool,
) -> Result<StanzaElement, XmppError> {
    let begun = stream.received();
    loop {
        let element = stream.read().await?;
        if is_answer(&element) {
            return Ok(element);
        }
        if element.namespace.as_str() != CLIENT || early.len() == MOST_EARLY {
            return Err(unexpected(&element));
        }
        early.push(element);
        stream.check_received_since(begun)?;
    }
}

/// Binds a resource. Returns the full address.
async fn bind(
    stream: &mut XmlStream,
    resource: &str,
    early: &mut Vec<StanzaElement>,
) -> Result<String, XmppError> {
    let resource = escaped(resource);
    stream.send(&format!(
        "<iq type='set' id='bind'><bind xmlns='{BIND}'><resource>{resource}</resource></bind></iq>"
    ))?;
    let is_answer = |it: &StanzaElement| it.is(CLIENT, "iq") && it.attribute("id") == Some("bind");
    let answer = answer(stream, early, is_answer).await?;
    if let Some(error) = answer.child(CLIENT, "error") {
        let text = format!("no resource: {}", condition(error, STANZA_ERRORS));
        return Err(XmppError::Authentication(text));
    }
    let bound = answer.child(BIND, "bind");
    let own = bound.and_then(|bound| bound.child(BIND, "jid"));
    match own.map(|own| own.text.trim()) {
        Some(own) if !own.is_empty() => Ok(shown(own)),
        _ => Err(unexpected(&answer)),
    }
}

/// Has stanzas acknowledged.
async fn manage(
    stream: &mut XmlStream,
    early: &mut Vec<StanzaElement>,
) -> Result<Management, XmppError> {
    stream.send(&format!("<enable xmlns='{SM}' resume='true'/>"))?;
    let is_answer = |it: &StanzaElement| it.namespace.as_str() == SM;
    let answer = answer(stream, early, is_answer).await?;
    match answer.name.as_str() {
        "enabled" => {
            let can_resume = matches!(answer.attribute("resume"), Some("true" | "1"));
            let id = answer.attribute("id").filter(|_| can_resume);
            let id = id.map(str::to_owned);
            Ok(id.map_or(Management::Acknowledged, Management::Resumable))
        }
        "failed" => Ok(Management::Off),
        _ => Err(unexpected(&answer)),
    }
}
