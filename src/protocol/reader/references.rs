//! The URIs of a document: resolved against its URL, within limits.
//!
//! A document of a few kilobytes must not become gigabytes: a reference of one byte may stand for a long URI.

use std::borrow::Cow;

use memchr::memchr3;
use url::Url;

use super::input::UNREADABLE;
use crate::protocol::{
    BaseUri, Oddities, Oddity, ReferenceError, resolve_reference, without_userinfo,
};

/// How many bytes relative URIs may add to any document: 50,000 entries with a base of 300 bytes.
const ADDED: u64 = 16 << 20;
/// How many bytes they may add for each byte of the document beyond that.
const ADDED_PER_BYTE: u64 = 4;

/// What the references of a document are resolved against, and how long that has made them.
pub(super) struct References {
    base: Url,
    /// The maximum length of a URI, in bytes.
    max_bytes: usize,
    /// How many bytes longer the relative ones have become.
    added: u64,
}

impl References {
    pub(super) fn of(base: BaseUri<'_>) -> Self {
        Self {
            base: base.uri.clone(),
            max_bytes: base.max_bytes,
            added: 0,
        }
    }

    /// The URL of the document.
    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Whether a reference is too long, resolved or not.
    pub(super) fn is_too_long(&self, text: &str) -> bool {
        text.len() > self.max_bytes
    }

    /// Whether the URIs so far are too long for what was read of the document. `position`: how many bytes were read.
    pub(super) fn are_expanded(&self, position: u64) -> bool {
        self.added > ADDED.saturating_add(position.saturating_mul(ADDED_PER_BYTE))
    }

    /// The URI of a `loc` or `href`, resolved against the document. Line breaks with their indentation are removed. `None` if it
    /// is not a URI, or too long.
    pub(super) fn resolve(&mut self, text: &str, oddities: &mut Oddities) -> Option<Url> {
        let text = text.trim();
        let text = if memchr3(b'\n', b'\r', b'\t', text.as_bytes()).is_some() {
            let lines = text.split(['\n', '\r', '\t']).map(str::trim);
            Cow::Owned(lines.collect::<String>())
        } else {
            Cow::Borrowed(text)
        };
        if text.is_empty() || text.contains(UNREADABLE) {
            return None;
        }
        let url = match self.resolve_text(&text, oddities) {
            Ok(url) => url,
            Err(ReferenceError::TooLong) => {
                oddities.add(Oddity::LongUri);
                return None;
            }
            Err(ReferenceError::Syntax(_)) => return None,
        };
        if !url.username().is_empty() || url.password().is_some() {
            oddities.add(Oddity::UserInfo);
        }
        Some(without_userinfo(url))
    }

    fn resolve_text(&mut self, text: &str, oddities: &mut Oddities) -> Result<Url, ReferenceError> {
        if self.is_too_long(text) {
            return Err(ReferenceError::TooLong);
        }
        match Url::parse(text) {
            Ok(url) if self.is_too_long(url.as_str()) => Err(ReferenceError::TooLong),
            Ok(url) => Ok(url),
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                let base = BaseUri {
                    uri: &self.base,
                    max_bytes: self.max_bytes,
                };
                let url = resolve_reference(base, text)?;
                let more = url.as_str().len().saturating_sub(text.len());
                self.added = self.added.saturating_add(more as u64);
                oddities.add(Oddity::RelativeUri);
                Ok(url)
            }
            Err(error) => Err(ReferenceError::Syntax(error)),
        }
    }
}
