//! Why a document is rejected, and where.

use std::{fmt, io};

use memchr::memchr_iter;

/// Why a document could not be read. The entries that were read before the error prove nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not XML, or not well formed.
    #[error("not well-formed XML at {at}: {reason}")]
    NotXml {
        /// Where it is.
        at: TextPosition,
        /// What is wrong there.
        reason: String,
    },
    /// A web page, with its title: the URI leads elsewhere, or the Source answers an error with status 200.
    #[error("received an HTML page in place of a document{}", title_of(.0.as_deref()))]
    HtmlPage(Option<String>),
    /// JSON.
    #[error("received JSON in place of a document")]
    Json,
    /// Nothing, or only white space.
    #[error("received an empty body in place of a document")]
    Empty,
    /// A feed, with the name of its format.
    #[error("received a feed ({0}) in place of a document")]
    Feed(&'static str),
    /// XML of another kind.
    #[error("the root element at {at} is {name:?}, neither urlset nor sitemapindex")]
    WrongRoot {
        /// Where it begins.
        at: TextPosition,
        /// Its name.
        name: String,
    },
    /// The root element has the right name, but another namespace than that of the Sitemap protocol; or the prefix of a
    /// ResourceSync element is not declared.
    #[error("{reason} (at {at})")]
    WrongNamespace {
        /// Where the element begins.
        at: TextPosition,
        /// What is wrong with it.
        reason: String,
    },
    /// It has a document type declaration: no document needs one, and it can define entities.
    #[error("document type declarations are not accepted (at {0})")]
    Doctype(TextPosition),
    /// It ends before its root element does.
    #[error("cut short: the document ends at {0}, before its root element does")]
    CutShort(TextPosition),
    /// There is content after the root element.
    #[error("content after the root element at {0}")]
    TrailingContent(TextPosition),
    /// Elements are nested more than 32 levels deep.
    #[error("elements are nested too deeply at {0}")]
    TooDeep(TextPosition),
    /// An element has more than 64 attributes.
    #[error("the element at {0} has too many attributes")]
    TooManyAttributes(TextPosition),
    /// A tag, a text or a comment is longer than 64 KiB, or an entry or the head longer than 1 MiB.
    #[error("the tag, text or entry at {0} is too large")]
    EventTooLarge(TextPosition),
    /// Its relative URIs are far longer than the document, once they are resolved.
    #[error("relative URIs up to {0} are far longer than the document that states them")]
    UriExpansion(TextPosition),
    /// It is neither UTF-8 nor in an encoding that it declares and that is supported.
    #[error("unsupported encoding at {at}: {name}")]
    UnsupportedEncoding {
        /// Where it is first needed.
        at: TextPosition,
        /// The encoding.
        name: String,
    },
    /// The input failed; a limit of the underlying stream is reported like this too.
    #[error("read error: {0}")]
    Io(#[from] io::Error),
}

impl ReadError {
    /// The same with what it repeats of the document in another form: without secrets, or shortened.
    #[must_use]
    pub fn map_text(mut self, form: impl Fn(&str) -> String) -> Self {
        if let Self::NotXml { reason: text, .. }
        | Self::HtmlPage(Some(text))
        | Self::WrongRoot { name: text, .. }
        | Self::WrongNamespace { reason: text, .. }
        | Self::UnsupportedEncoding { name: text, .. } = &mut self
        {
            *text = form(text);
        }
        self
    }

    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotXml { .. } | Self::Json | Self::Empty => "not-xml",
            Self::HtmlPage(_) => "html-page",
            Self::Feed(_) => "unsupported-feed",
            Self::WrongRoot { .. } => "wrong-root",
            Self::WrongNamespace { .. } => "wrong-namespace",
            Self::Doctype(_) => "doctype",
            Self::CutShort(_) => "cut-short",
            Self::TrailingContent(_) => "trailing-content",
            Self::TooDeep(_) => "too-deep",
            Self::TooManyAttributes(_) => "too-many-attributes",
            Self::EventTooLarge(_) => "event-too-large",
            Self::UriExpansion(_) => "uri-expansion",
            Self::UnsupportedEncoding { .. } => "unsupported-encoding",
            Self::Io(_) => "io",
        }
    }
}

fn title_of(title: Option<&str>) -> String {
    title.map_or_else(String::new, |title| format!(", with the title {title:?}"))
}

/// The beginning of a remote text, short enough for an error message.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(200).collect()
}

/// A position in a document, for people: both numbers begin at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl TextPosition {
    /// The begin of a document.
    pub const BEGIN: Self = Self { line: 1, column: 1 };

    /// The position after this text, which begins here.
    pub(super) fn after(self, text: &str) -> Self {
        let lines = memchr_iter(b'\n', text.as_bytes()).count() as u64;
        let last = text.rsplit('\n').next().unwrap_or_default();
        let begin = if lines == 0 { self.column } else { 1 };
        Self {
            line: self.line + lines,
            column: begin + last.chars().count() as u64,
        }
    }
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_characters_are_counted_in_pieces_of_any_size() {
        for (text, line, column) in [
            ("", 1, 1),
            ("ab", 1, 3),
            ("ab\n", 2, 1),
            ("é\r\nüé\n\n日本x", 4, 4),
        ] {
            let cuts = (0..=text.len()).filter(|&at| text.is_char_boundary(at));
            for (begin, end) in cuts.map(|at| text.split_at(at)) {
                let place = TextPosition::BEGIN.after(begin).after(end);
                assert_eq!(place, TextPosition { line, column }, "{begin:?} {end:?}");
            }
        }
        assert_eq!(TextPosition::BEGIN.to_string(), "line 1, column 1");
    }
}
