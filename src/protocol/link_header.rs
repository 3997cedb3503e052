//! The HTTP Link header (RFC 8288), as far as discovery and WebSub need it.

use url::Url;

/// One link of a Link header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderLink {
    /// One relation type, lower case unless it is a URI. A link with several relations becomes several of these.
    pub rel: String,
    /// Its target, resolved against the request.
    pub href: Url,
}

/// Reads one Link header value. What can't be read is passed over.
pub fn parse_link_header(value: &str, base: &Url) -> Vec<HeaderLink> {
    todo!("{value} {base}")
}

/// Writes a Link header value.
pub fn format_link_header(links: &[(&str, &str)]) -> String {
    todo!("{links:?}")
}
