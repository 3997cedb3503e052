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
use super::node::NodeResumption;
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
    resumption: Option<&NodeResumption>,
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
    let mut login = Login {
        stream,
        own: String::new(),
        management: Management::Off,
        is_resumed: false,
        early: Vec::new(),
    };
    if let Some(resumption) = resumption
        && has_management
        && login.resume(resumption).await?
    {
        return Ok(login);
    }
    login.bind(credentials.resource).await?;
    if has_management {
        login.manage().await?;
    }
    Ok(login)
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
    // The signature may come as a challenge of its own (RFC 5802, section 5).
    let is_separate = last.is(SASL, "challenge");
    if is_separate {
        scram.check(&decoded(&last)?)?;
        stream.send(&format!("<response xmlns='{SASL}'/>"))?;
        last = stream.read().await?;
    }
    if !last.is(SASL, "success") {
        return Err(not_authenticated(&last));
    }
    if is_separate {
        return Ok(());
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

impl Login {
    /// Resumes a session. False: the server does not know it any more.
    async fn resume(&mut self, resumption: &NodeResumption) -> Result<bool, XmppError> {
        let (id, handled) = (escaped(&resumption.id), resumption.handled);
        self.stream.send(&format!(
            "<resume xmlns='{SM}' h='{handled}' previd='{id}'/>"
        ))?;
        let answer = self.stream.read().await?;
        self.is_resumed = answer.is(SM, "resumed");
        if self.is_resumed {
            self.own.clone_from(&resumption.own);
            self.management = Management::Resumable(resumption.id.clone());
        } else if !answer.is(SM, "failed") {
            return Err(unexpected(&answer));
        }
        Ok(self.is_resumed)
    }

    /// Reads until there is an answer. As soon as the resource is bound, other stanzas may come before it.
    async fn answer(
        &mut self,
        is_answer: impl Fn(&StanzaElement) -> bool,
    ) -> Result<StanzaElement, XmppError> {
        let begun = self.stream.received();
        loop {
            let element = self.stream.read().await?;
            if is_answer(&element) {
                return Ok(element);
            }
            if element.namespace.as_str() != CLIENT || self.early.len() == MOST_EARLY {
                return Err(unexpected(&element));
            }
            self.early.push(element);
            self.stream.check_received_since(begun)?;
        }
    }

    /// Binds a resource.
    async fn bind(&mut self, resource: &str) -> Result<(), XmppError> {
        let resource = escaped(resource);
        self.stream.send(&format!(
            "<iq type='set' id='bind'><bind xmlns='{BIND}'><resource>{resource}</resource></bind></iq>"
        ))?;
        let answering = self.answer(|it| it.is(CLIENT, "iq") && it.attribute("id") == Some("bind"));
        let answer = answering.await?;
        if let Some(error) = answer.child(CLIENT, "error") {
            let text = format!("no resource: {}", condition(error, STANZA_ERRORS));
            return Err(XmppError::Authentication(text));
        }
        let bound = answer.child(BIND, "bind");
        let own = bound.and_then(|bound| bound.child(BIND, "jid"));
        let own = own.map(|own| own.text.trim()).filter(|own| !own.is_empty());
        self.own = shown(own.ok_or_else(|| unexpected(&answer))?);
        Ok(())
    }

    /// Has stanzas acknowledged.
    async fn manage(&mut self) -> Result<(), XmppError> {
        self.stream
            .send(&format!("<enable xmlns='{SM}' resume='true'/>"))?;
        let answer = self.answer(|it| it.namespace.as_str() == SM).await?;
        match answer.name.as_str() {
            "enabled" => {
                let can_resume = matches!(answer.attribute("resume"), Some("true" | "1"));
                let id = answer.attribute("id").filter(|_| can_resume);
                let id = id.map(str::to_owned);
                self.management = id.map_or(Management::Acknowledged, Management::Resumable);
                Ok(())
            }
            "failed" => Ok(()),
            _ => Err(unexpected(&answer)),
        }
    }
}
