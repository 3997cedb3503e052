//! A table whose keys are the fields of a type.

use super::table_reader::TableReader;

/// A type that one table of the file is read into.
pub(super) trait Table: Sized {
    /// The name of the table.
    const NAME: &'static str;

    /// Reads the table.
    fn read(section: &mut TableReader<'_, '_>) -> Self;

    /// The keys that differ, with their table.
    fn differing(&self, other: &Self) -> Vec<String>;

    /// The defaults: an absent table.
    fn defaults() -> Self {
        TableReader::absent(Self::NAME, Self::read)
    }
}

/// Declares a type for a table of the file. A field states its type, how it is read (a method of [`TableReader`]) and its key.
macro_rules! table {
    ($(#[$meta:meta])* $table:ident = $name:literal {
        $($(#[$doc:meta])* $field:ident: $type:ty = $method:ident($key:literal $(, $argument:expr)*),)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $table {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $crate::config::table::Table for $table {
            const NAME: &'static str = $name;

            fn read(section: &mut $crate::config::table_reader::TableReader<'_, '_>) -> Self {
                Self {
                    $($field: section.$method($key $(, $argument)*),)*
                }
            }

            fn differing(&self, other: &Self) -> Vec<String> {
                let mut keys = Vec::new();
                $(if self.$field != other.$field {
                    keys.push(concat!($name, ".", $key).to_owned());
                })*
                keys
            }
        }

        impl Default for $table {
            fn default() -> Self {
                $crate::config::table::Table::defaults()
            }
        }
    };
}
