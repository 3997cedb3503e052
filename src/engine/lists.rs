//! Resource Lists and Change Lists, with their indexes (sections 10 and 12): what a set's worker makes of them.

pub(super) mod change_list_index;
pub(super) mod change_lists;
mod list_parts;
mod resource_lists;
