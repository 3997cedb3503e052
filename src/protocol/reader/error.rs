//! Why a document is refused.

use std::io;

/// Why a document could not be read. Whatever was read of it before proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not XML, or not well formed.
    #[error("not well-formed XML, near byte {at}: {reason}")]
    NotXml {
        /// Where, in bytes from the beginning.
        at: u64,
        /// What is wrong there.
        reason: String,
    },
    /// XML of another kind: a web page, a feed.
    #[error("the root element is {0:?}, which is neither urlset nor sitemapindex")]
    WrongRoot(String),
    /// The root element has the right name, but does not belong to the Sitemap protocol; or the prefix of a ResourceSync
    /// element is not declared.
    #[error("{0}")]
    WrongNamespace(String),
    /// It has a document type declaration, which no such document needs, and which can hold entities.
    #[error("a document type declaration is not accepted")]
    Doctype,
    /// It refers to an entity other than the five of XML.
    #[error("the entity {0:?} is not known")]
    Entity(String),
    /// It ends before its root element does.
    #[error("cut short: it ends before its root element does")]
    CutShort,
    /// Something stands behind the root element.
    #[error("something stands behind the root element")]
    TrailingContent,
    /// Its elements are nested more deeply than 32 levels.
    #[error("elements are nested too deeply")]
    TooDeep,
    /// An element has more than 64 attributes.
    #[error("an element has too many attributes")]
    TooManyAttributes,
    /// A tag, a text or a comment is longer than 64 KiB, or an entry, or everything that belongs to
    /// the head, than 1 MiB.
    #[error("a tag, text or entry is too large")]
    EventTooLarge,
    /// It is not UTF-8.
    #[error("the encoding is not supported: {0}")]
    UnsupportedEncoding(String),
    /// Its bytes could not be had; the limits of the stream below are told in this way as well.
    #[error("could not be read: {0}")]
    Io(#[from] io::Error),
}

impl ReadError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotXml { .. } => "not-xml",
            Self::WrongRoot(_) => "wrong-root",
            Self::WrongNamespace(_) => "wrong-namespace",
            Self::Doctype => "doctype",
            Self::Entity(_) => "entity",
            Self::CutShort => "cut-short",
            Self::TrailingContent => "trailing-content",
            Self::TooDeep => "too-deep",
            Self::TooManyAttributes => "too-many-attributes",
            Self::EventTooLarge => "event-too-large",
            Self::UnsupportedEncoding(_) => "unsupported-encoding",
            Self::Io(_) => "io",
        }
    }
}
