//! Reads `[source.auth]`: the credentials of a Source.
//!
//! Invariant: what is sent is only for origins that the configuration names, and never for http if the URL of the Source is https.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use resourcesync::uri::{has_userinfo, parse_uri};
use resyncd_fetch::{AuthHeader, ClientCertificate, SourceAuth};
use url::{Origin, Url};

use super::Source;
use super::fault::FaultKind;
use super::secret_reader::{NamedSecret, is_secret_given, read_secret};
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
            ClientCertificate::parse(text, key).map_err(|error| error.to_string())
        })
    };
    // One with a fault is not missing.
    let has_certificate = is_secret_given(section, "certificate");
    let mut auth = SourceAuth {
        origins: own_origins(source, more),
        ..SourceAuth::default()
    };
    let headers = [bearer, basic, header].into_iter().flatten();
    for NamedSecret { value, key } in headers {
        let has_authorization =
            |headers: &[AuthHeader]| headers.iter().any(|header| header.name == AUTHORIZATION);
        if has_authorization(&value.headers) && has_authorization(&auth.headers) {
            let text = "a request has one Authorization header, and another key sets it already";
            section.reject(&key, &FaultKind::BadAuth(text.to_owned()));
        }
        let of_url = has_authorization(&value.headers)
            .then(|| {
                let mut origins = auth.origins.iter();
                origins.find(|origin| has_password(source, origin))
            })
            .flatten();
        if let Some(origin) = of_url {
            let origin = origin.ascii_serialization();
            let text =
                format!("a URL of {origin} has a user name or a password already: remove them");
            section.reject(&key, &FaultKind::BadAuth(text));
        }
        auth.headers.extend(value.headers);
        auth.secrets.extend(value.secrets);
    }
    if let Some(NamedSecret { value, key }) = certificate {
        let is_https =
            |origin: &Origin| matches!(origin, Origin::Tuple(scheme, ..) if scheme == "https");
        if !auth.origins.iter().any(is_https) {
            let text = "a certificate is shown to servers of https only, and `url` is http";
            section.reject(&key, &FaultKind::BadAuth(text.to_owned()));
        }
        auth.certificate = Some(value);
    } else if !has_certificate && let Some(NamedSecret { key, .. }) = key {
        let text = "a private key is unusable without `certificate`, `certificate_file` or `certificate_credential`";
        section.reject(&key, &FaultKind::BadAuth(text.to_owned()));
    }
    let is_empty = auth.headers.is_empty() && auth.certificate.is_none();
    (!is_empty).then_some(auth)
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
fn parse_origin(text: &str, source: &Url) -> Result<Origin, FaultKind> {
    let url = parse_url(text)?;
    let bad = |why: &str| Err(FaultKind::BadUrl(format!("{:?} {why}", url.as_str())));
    if has_userinfo(&url) {
        let text = "an origin has neither a user name nor a password".to_owned();
        return Err(FaultKind::BadUrl(text));
    }
    if url.path() != "/" || url.query().is_some() {
        return bad(
            "has a path: an origin is a scheme, a host and a port, such as https://files.example.net",
        );
    }
    if url.scheme() == "http" && source.scheme() == "https" {
        return bad("is http, and `url` is https: the credentials would be sent unencrypted");
    }
    Ok(url.origin())
}

/// Headers, and what no text may repeat of them.
struct SecretHeaders {
    headers: Vec<AuthHeader>,
    secrets: Vec<String>,
}

/// A bearer token (RFC 6750, section 2.1).
fn parse_token(text: &str) -> Result<SecretHeaders, String> {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || !is_visible {
        return Err("a token is one line of visible ASCII characters".to_owned());
    }
    Ok(SecretHeaders {
        headers: vec![authorization(format!("Bearer {text}"))],
        secrets: vec![text.to_owned()],
    })
}

/// A user name and a password (RFC 7617).
fn parse_password(text: &str) -> Result<SecretHeaders, String> {
    let password = text.split_once(':').map(|(_, password)| password);
    let password = password.filter(|_| !text.chars().any(char::is_control));
    let password = password.ok_or("a user name and a password are one line: NAME:PASSWORD")?;
    let encoded = STANDARD.encode(text);
    Ok(SecretHeaders {
        headers: vec![authorization(format!("Basic {encoded}"))],
        secrets: vec![
            password.to_owned(),
            encoded.trim_end_matches('=').to_owned(),
        ],
    })
}

fn authorization(value: String) -> AuthHeader {
    AuthHeader {
        name: AUTHORIZATION.to_owned(),
        value,
    }
}

/// Headers, each on a line: `NAME: VALUE`.
fn parse_headers(text: &str) -> Result<SecretHeaders, String> {
    let mut found = SecretHeaders {
        headers: Vec::new(),
        secrets: Vec::new(),
    };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line
            .split_once(':')
            .ok_or("a header is a line: NAME: VALUE")?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("the name of a header has letters, digits and - only".to_owned());
        }
        let is_reserved = RESERVED.contains(&name.as_str());
        if is_reserved || name.starts_with("if-") || name.starts_with("proxy-") {
            return Err(format!("the header {name} is not one of credentials"));
        }
        if found.headers.iter().any(|header| header.name == name) {
            return Err(format!("the header {name} is there twice"));
        }
        let is_text = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t');
        if value.is_empty() || !value.bytes().all(is_text) {
            return Err(format!(
                "the value of the header {name} is not visible ASCII characters"
            ));
        }
        // Of `Token abc` and `session=abc` also the end alone.
        let last = value.trim_end_matches('=').rsplit([' ', '\t', '=', ';']);
        found.secrets.extend(last.take(1).map(str::to_owned));
        found.secrets.push(value.to_owned());
        let value = value.to_owned();
        found.headers.push(AuthHeader { name, value });
    }
    if found.headers.is_empty() {
        Err("there is no header in it: NAME: VALUE".to_owned())
    } else {
        Ok(found)
    }
}
