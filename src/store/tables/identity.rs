//! The columns `identity` and `spelling` of `resource`.
//!
//! `identity` is what tells resources apart: rows are found by it. `spelling` states how the Source wrote the URI last: NULL as the
//! identity, which is `https:` where that has no scheme; empty the same with `http:`; and otherwise the URI itself. So what nearly all
//! Sources write takes no room. `uri` is made of the two when it is read.

use std::borrow::Cow;

use resyncd_core::ResourceUri;
use rusqlite::types::{ToSql, ToSqlOutput};

use crate::store::sql::Result;

/// The column `identity`, of any spelling.
pub(crate) struct Identity<'a>(pub(crate) &'a ResourceUri);

impl ToSql for Identity<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(match self.0.identity() {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        })
    }
}

/// The column `spelling` of a URI.
pub(crate) fn spelling(uri: &ResourceUri) -> Option<&str> {
    let (text, identity) = (uri.as_str(), uri.identity());
    match text.strip_suffix(&*identity) {
        Some("" | "https:") => None,
        Some("http:") => Some(""),
        _ => Some(text),
    }
}
