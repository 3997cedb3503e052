//! Why a document is rejected.

use std::io;

/// Why a document could not be read. The entries that were read before the error prove nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not XML, or not well formed.
    #[error("not well-formed XML near byte {at}: {reason}")]
    NotXml {
        /// The position, in bytes from the beginning.
        at: u64,
        /// What is wrong there.
        reason: String,
    },
    /// XML of another kind: a web page, a feed.
    #[error("the root element is {0:?}, neither urlset nor sitemapindex")]
    WrongRoot(String),
    /// The root element has the right name, but not the namespace of the Sitemap protocol; or the prefix of a ResourceSync
    /// element is not declared.
    #[error("{0}")]
    WrongNamespace(String),
    /// It has a document type declaration: no document needs one, and it can define entities.
    #[error("document type declarations are not accepted")]
    Doctype,
    /// It refers to an entity other than the five predefined ones.
    #[error("unknown entity {0:?}")]
    Entity(String),
    /// It ends before its root element does.
    #[error("cut short: the document ends before its root element does")]
    CutShort,
    /// There is content after the root element.
    #[error("content after the root element")]
    TrailingContent,
    /// Elements are nested more than 32 levels deep.
    #[error("elements are nested too deeply")]
    TooDeep,
    /// An element has more than 64 attributes.
    #[error("an element has too many attributes")]
    TooManyAttributes,
    /// A tag, a text or a comment is longer than 64 KiB, or an entry or the head longer than 1 MiB.
    #[error("a tag, text or entry is too large")]
    EventTooLarge,
    /// It is not UTF-8.
    #[error("unsupported encoding: {0}")]
    UnsupportedEncoding(String),
    /// The input failed; a limit of the underlying stream is reported like this too.
    #[error("read error: {0}")]
    Io(#[from] io::Error),
}

impl ReadError {
    /// The stable name of the error.
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
