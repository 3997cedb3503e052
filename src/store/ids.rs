//! Row ids, one type a table.

use serde::{Deserialize, Serialize};

macro_rules! row_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub(crate) i64);
    };
}

row_id! {
    /// A set of resources that is, or was, followed.
    SetId
}
row_id! {
    /// A channel that is, or was, subscribed to.
    ChannelId
}
row_id! {
    /// A part of a Resource List: a list that its index names, or the only one.
    PartId
}
row_id! {
    /// A resource that a document has named.
    ResourceId
}

impl ResourceId {
    /// Before all rows.
    pub(crate) const NONE: Self = Self(0);
    /// After all rows.
    pub(crate) const LAST: Self = Self(i64::MAX);

    /// The number of the row.
    pub(crate) fn number(self) -> i64 {
        self.0
    }

    /// The rows from one number on and before another: after a row, up to another one.
    pub(crate) fn range(first: i64, end: i64) -> (Self, Self) {
        (Self(first - 1), Self(end - 1))
    }
}
