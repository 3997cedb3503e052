//! A table whose keys are the fields of a type.

use super::table_reader::TableReader;

/// A type that one table of the file is read into.
pub(super) trait Table: Sized {
    /// Reads the table.
    fn read(section: &mut TableReader<'_, '_>) -> Self;

    /// The keys that differ, with their table.
    fn differing(&self, other: &Self) -> Vec<String>;
}

/// Declares a type for a table of the file, or how one of another crate is read (`impl`). A field states its type, how it is read (a
/// method of [`TableReader`]) and its key. Where the parts of a field are keys of their own, they stand in brackets.
macro_rules! table {
    ($(#[$meta:meta])* $table:ident = $name:literal {
        $($(#[$doc:meta])* $field:ident: $type:ty = $method:ident($key:literal $(, $argument:expr)*),)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $table {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $table {
            fn default() -> Self {
                $crate::config::table_reader::TableReader::absent($name, $crate::config::table::Table::read)
            }
        }

        table! { impl $table = $name { $($field = $method($key $(, $argument)*),)* } }
    };
    (impl $table:ident = $name:literal {
        $($field:ident = $method:ident($key:literal $(, $argument:expr)*) $([$($part:ident: $part_key:literal),*])?,)*
    }) => {
        impl $crate::config::table::Table for $table {
            fn read(section: &mut $crate::config::table_reader::TableReader<'_, '_>) -> Self {
                Self {
                    $($field: section.$method($key $(, $argument)*),)*
                }
            }

            fn differing(&self, other: &Self) -> Vec<String> {
                let mut keys = Vec::new();
                $(table!(@compare keys, $name, self.$field, other.$field, $key $(, $($part: $part_key),*)?);)*
                keys.dedup();
                keys
            }
        }
    };
    (@compare $keys:ident, $name:literal, $own:expr, $other:expr, $key:literal) => {
        if $own != $other {
            $keys.push(concat!($name, ".", $key).to_owned());
        }
    };
    (@compare $keys:ident, $name:literal, $own:expr, $other:expr, $key:literal, $($part:ident: $part_key:literal),*) => {
        $(table!(@compare $keys, $name, $own.$part, $other.$part, $part_key);)*
    };
}
