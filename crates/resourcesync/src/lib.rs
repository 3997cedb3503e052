//! Reads and writes the documents of ResourceSync: what a Source holds, and what has changed there.
//!
//! [ResourceSync](https://www.openarchives.org/rs/1.1/resourcesync) (ANSI/NISO Z39.99) extends the Sitemap protocol: a Source publishes
//! Resource Lists, Change Lists and dumps of its resources, and names them in a Capability List. A Destination reads them to keep a copy
//! in step. This crate has the documents as types, a reader and a writer. It does no I/O but on the streams it is given, and knows no
//! clock.
//!
//! ```
//! # #[cfg(feature = "read")] {
//! use resourcesync::{Capability, DocumentReader};
//! use url::Url;
//!
//! let list = br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
//!   <rs:md capability="resourcelist" at="2013-01-03T09:00:00Z"/>
//!   <url><loc>http://example.com/res1</loc><rs:md length="8876"/></url>
//! </urlset>"#;
//! let uri = Url::parse("http://example.com/resourcelist.xml")?;
//! let mut reader = DocumentReader::open(&list[..], &uri)?;
//! assert_eq!(reader.head().md.capability, Some(Capability::ResourceList));
//! for entry in reader.by_ref() {
//!     let entry = entry?;
//!     println!("{} has {:?} bytes", entry.loc, entry.md.content.length);
//! }
//! for warning in reader.warnings() {
//!     println!("{} at {}", warning.code(), warning.position);
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is where
//!
//! | | |
//! |---|---|
//! | [`DocumentReader`], [`read_document`] | read a document an entry at a time, or as a whole |
//! | [`DocumentSummary`] | reads to the end what a document is and which time it spans |
//! | [`DocumentWriter`], [`write_document`] | write a document |
//! | [`Document`], [`Head`], [`Entry`], [`Link`], [`Metadata`] | its parts; [`Capability`] and [`ChangeKind`] say what they mean |
//! | [`SourceTime`], [`Interval`] | W3C datetimes of the Source |
//! | [`Digest`], [`Verifier`] | digests, and bytes against what an entry states |
//! | [`Oddity`], [`Oddities`] | deviations from the specification that the reader tolerates |
//!
//! The modules have what few programs name: [`entries`] and [`diagnostics`] what the types above state, [`uri`] the URIs of remote texts,
//! [`media_type`] the types of packages, [`draft`] version 0.1.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `read` | yes | the reader, with `quick-xml` |
//! | `write` | yes | the writer |
//! | `draft` | no | the reader recognizes the draft of version 0.1 (2012) |
//! | `serde` | no | `Serialize` and `Deserialize` for the types of documents |
//!
//! # What the reader accepts
//!
//! Real Sources deviate from the specification. Where the meaning is unambiguous the reader goes on and counts an [`Oddity`]; an invalid
//! entry does not affect the others, and is counted. A document that is not well formed, incomplete, of another kind or beyond the
//! reader's limits is a [`ReadError`]: the entries that were read until then prove nothing. Memory does not depend on the length of a
//! document.

#![forbid(unsafe_code)]
// Parts of the types serve the reader alone.
#![cfg_attr(not(feature = "read"), allow(dead_code))]

#[cfg(feature = "serde")]
mod as_text;
mod content_info;
mod datetime;
mod declared_list;
mod digest;
mod document;
pub mod draft;
mod entry_order;
mod interval;
mod link_limit;
pub mod media_type;
mod named;
mod oddity;
mod pubsub;
#[cfg(feature = "read")]
mod reader;
#[cfg(feature = "read")]
mod summary;
pub mod uri;
mod verify;
#[cfg(feature = "write")]
mod writer;

pub use content_info::ContentInfo;
pub use datetime::SourceTime;
pub use digest::{Algorithm, Digest};
pub use document::{Capability, ChangeKind, Document, Entry, Head, Link, Metadata, Root};
pub use interval::Interval;
pub use oddity::{Oddities, Oddity};
#[cfg(feature = "read")]
pub use reader::{DocumentReader, ReadError, read_document};
#[cfg(feature = "read")]
pub use summary::DocumentSummary;
pub use verify::{Mismatch, Verified, Verifier};
#[cfg(feature = "write")]
pub use writer::{DocumentWriter, write_document};

/// What is wrong in a text, and where.
pub mod diagnostics {
    pub use crate::datetime::DatetimeError;
    #[cfg(feature = "read")]
    pub use crate::oddity::Warning;
    #[cfg(feature = "read")]
    pub use crate::reader::TextPosition;
}

/// What documents state of their entries beside content and changes: how often a resource changes, in which order the entries are, how
/// many links are read, and what a [summary](DocumentSummary) counts.
pub mod entries {
    pub use crate::document::ChangeFrequency;
    pub use crate::entry_order::EntryOrder;
    pub use crate::link_limit::LinkLimit;
    #[cfg(feature = "read")]
    pub use crate::summary::{ChangeCounts, UnstatedParts};
}
