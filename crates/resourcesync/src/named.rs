//! Enumerations whose values have a name in documents, or in messages.

/// Declares such an enumeration. `fn`: the method that returns the name.
macro_rules! named {
    (
        fn $name:ident;
        $(#[$attribute:meta])*
        pub enum $type:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$attribute])*
        pub enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its stable name.
            pub fn $name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.$name())
            }
        }
    };
}

pub(crate) use named;
