//! Row ids, one type a table.

macro_rules! row_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
