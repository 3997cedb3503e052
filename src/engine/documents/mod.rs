//! The documents of a set, as everything that reads them sees them: which are offered, what one is, what its index names, and
//! which errors leave something unread.
//!
//! A document is fetched and summarized completely, checked for its capability, and entered into a walk, which yields what the indexes
//! name. What is done with the entries of a list, and with a part that can't be read, is the caller's.
//!
//! | module | what it has |
//! |---|---|
//! | `offered` | what a Capability List offers |
//! | `summarized` | one document, fetched and summarized |
//! | `walk` | what its indexes and pages name |
//! | `failures` | which errors end the reading, and which leave something unread |
//!
//! Must not know the store's sets, coverage, or whether a document has changed since it was read last.

mod failures;
mod offered;
mod summarized;
mod walk;

pub(super) use failures::{Alternatives, DeadParts, PartFailures};
pub(super) use offered::offered;
pub(super) use summarized::{
    NextEntry, SummarizedDocument, expect_capability, expect_undamaged, fetch_document,
    fetch_if_changed,
};
pub(super) use walk::{Child, DocumentWalk, Entries, lists_to_read};
