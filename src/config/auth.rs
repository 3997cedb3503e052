//! Reads `[source.auth]`: the credentials of a Source.
//!
//! Invariant: what is sent is only for origins that the configuration names, and never for http if the URL of the Source is https.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use resourcesync::uri::{has_userinfo, parse_uri};
use resyncd_fetch::{AuthHeader, ClientCertificate, SourceAuth};
use url::{Origin, Url};

use super::Source;
use super::fault::Parsed;
use super::secret::{is_secret_given, read_secret};
use super::table_reader::TableReader;
use super::value::parse_url;

/// The longest token, password or header, in bytes.
const LONGEST_LINE: u64 = 16 << 10;
/// The longest certificate with its chain, in bytes.
const LONGEST_PEM: u64 = 1 << 20;
const AUTHORIZATION: &str = "authorization";
/// Headers that the client sets itself, or that are not for the Source.
const RESERVED: [&str; 15] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Reads the table. `source`: the Source with its URLs; its credentials are those of the URLs.
pub(super) fn read_auth(section: &mut TableReader<'_, '_>, source: &Source) -> Option<SourceAuth> {
    let more = section.list("origins", |text| parse_origin(text, &source.url));
    let bearer = read_secret(section, "bearer", LONGEST_LINE, parse_token);
    let basic = read_secret(section, "basic", LONGEST_LINE, parse_password);
    let header = read_secret(section, "header", LONGEST_LINE, parse_headers);
    let key = read_secret(section, "key", LONGEST_PEM, |text| Ok(text.to_owned()));
    let is_key_unread = key.is_none() && is_secret_given(section, "key");
    let certificate = if is_key_unread {
        // Its fault is reported, and says nothing about the certificate.
        None
    } else {
        read_secret(section, "certificate", LONGEST_PEM, |text| {
            let key = key.as_ref().map(|key| key.value.as_str());
            ClientCertificate::parse(text, key).map_err(|error| reason!("bad-secret": "{error}"))
        })
    };
    // One with a fault is not missing.
    let has_certificate = is_secret_given(section, "certificate");
    let mut auth = SourceAuth {
        origins: own_origins(source, more),
        ..SourceAuth::default()
    };
    let file = &mut *section.file;
    for secret in [bearer, basic, header].into_iter().flatten() {
        if has_authorization(&secret.value) && has_authorization(&auth) {
            reject!(file, &secret, "bad-auth": "a request has one Authorization header, and another key sets it already");
        }
        let mut origins = auth.origins.iter();
        if has_authorization(&secret.value)
            && let Some(origin) = origins.find(|origin| has_password(source, origin))
        {
            let origin = origin.ascii_serialization();
            reject!(file, &secret, "bad-auth": "a URL of {origin} has a user name or a password already: remove them");
        }
        auth.headers.extend(secret.value.headers);
        auth.secrets.extend(secret.value.secrets);
    }
    if let Some(certificate) = certificate {
        let is_https =
            |origin: &Origin| matches!(origin, Origin::Tuple(scheme, ..) if scheme == "https");
        if !auth.origins.iter().any(is_https) {
            reject!(file, &certificate, "bad-auth": "a certificate is shown to servers of https only, and `url` is http");
        }
        auth.certificate = Some(certificate.value);
    } else if !has_certificate && let Some(key) = key {
        reject!(file, &key, "bad-auth":
            "a private key is unusable without `certificate`, `certificate_file` or `certificate_credential`");
    }
    let is_empty = auth.headers.is_empty() && auth.certificate.is_none();
    (!is_empty).then_some(auth)
}

fn has_authorization(auth: &SourceAuth) -> bool {
    let mut headers = auth.headers.iter();
    headers.any(|header| header.name == AUTHORIZATION)
}

/// The origins of the URL, the sets and the others that are configured. What is http is not the Source's own if the URL is https.
fn own_origins(source: &Source, more: Vec<Origin>) -> Vec<Origin> {
    let is_http = source.url.scheme() == "http";
    let sets = source.sets.iter();
    let sets = sets.filter(|set| is_http || set.scheme() == "https");
    let mut origins = vec![source.url.origin()];
    for origin in sets.map(Url::origin).chain(more) {
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    origins
}

fn has_password(source: &Source, origin: &Origin) -> bool {
    let url = parse_uri(&origin.ascii_serialization());
    url.is_ok_and(|url| source.credentials.has_any_for(&url))
}

/// Parses an origin: a URL without a path.
fn parse_origin(text: &str, source: &Url) -> Parsed<Origin> {
    let url = parse_url(text)?;
    let shown = url.as_str();
    ensure!(!has_userinfo(&url), "bad-url": "an origin has neither a user name nor a password");
    ensure!(url.path() == "/" && url.query().is_none(), "bad-url":
        "{shown:?} has a path: an origin is a scheme, a host and a port, such as https://files.example.net");
    ensure!(url.scheme() == "https" || source.scheme() != "https", "bad-url":
        "{shown:?} is http, and `url` is https: the credentials would be sent unencrypted");
    Ok(url.origin())
}

/// A bearer token (RFC 6750, section 2.1).
fn parse_token(text: &str) -> Parsed<SourceAuth> {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(!text.is_empty() && is_visible, "bad-secret": "a token is one line of visible ASCII characters");
    let secrets = vec![text.to_owned()];
    Ok(authorization(format!("Bearer {text}"), secrets))
}

/// A user name and a password (RFC 7617).
fn parse_password(text: &str) -> Parsed<SourceAuth> {
    let password = text.split_once(':').map(|(_, password)| password);
    let password = password.filter(|_| !text.chars().any(char::is_control));
    let bad = || reason!("bad-secret": "a user name and a password are one line: NAME:PASSWORD");
    let password = password.ok_or_else(bad)?;
    let encoded = STANDARD.encode(text);
    let secrets = [password, encoded.trim_end_matches('=')].map(str::to_owned);
    Ok(authorization(format!("Basic {encoded}"), secrets.into()))
}

/// The header of this name. `secrets`: what no text may repeat of it.
fn authorization(value: String, secrets: Vec<String>) -> SourceAuth {
    let name = AUTHORIZATION.to_owned();
    SourceAuth {
        headers: vec![AuthHeader { name, value }],
        secrets,
        ..SourceAuth::default()
    }
}

/// Headers, each on a line: `NAME: VALUE`.
fn parse_headers(text: &str) -> Parsed<SourceAuth> {
    let mut found = SourceAuth::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let bad = || reason!("bad-secret": "a header is a line: NAME: VALUE");
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        ensure!(!name.is_empty() && name.bytes().all(is_token), "bad-secret": "the name of a header has letters, digits and - only");
        let is_reserved = RESERVED.contains(&name.as_str())
            || name.starts_with("if-")
            || name.starts_with("proxy-");
        ensure!(!is_reserved, "bad-secret": "the header {name} is not one of credentials");
        let mut others = found.headers.iter();
        ensure!(others.all(|header| header.name != name), "bad-secret": "the header {name} is there twice");
        let is_text = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t');
        ensure!(!value.is_empty() && value.bytes().all(is_text), "bad-secret":
            "the value of the header {name} is not visible ASCII characters");
        // Of `Token abc` and `session=abc` also the end alone.
        let last = value.trim_end_matches('=').rsplit([' ', '\t', '=', ';']);
        found.secrets.extend(last.take(1).map(str::to_owned));
        found.secrets.push(value.to_owned());
        let value = value.to_owned();
        found.headers.push(AuthHeader { name, value });
    }
    ensure!(!found.headers.is_empty(), "bad-secret": "there is no header in it: NAME: VALUE");
    Ok(found)
}
