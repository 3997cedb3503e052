//! Documents without a daemon: [`shapes`] has documents like the examples of the specification, [`specified`] has those examples word for
//! word, and [`draft`] those of the draft of version 0.1; [`reading`] has deviations. [`writing`] checks writer and reader against each
//! other.

#![cfg(all(feature = "read", feature = "write", feature = "draft"))]
#![allow(
    clippy::unwrap_used,
    reason = "a test panics where its preconditions fail"
)]

mod draft;
mod generated;
mod odd;
mod reading;
mod shapes;
mod specified;
mod writing;

use resourcesync::{Document, read_document};
use url::Url;

/// The URI of documents that only the reader sees.
fn base() -> Url {
    Url::parse("http://example.com/sets/1/list.xml").unwrap()
}

/// Reads a document and compares its oddities, in the form of the log.
#[track_caller]
fn read_with_oddities(text: &str, oddities: &str) -> Document {
    let document = read_document(text.as_bytes(), &base());
    let document = document.unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(document.oddities.to_string(), oddities, "{text}");
    document
}
