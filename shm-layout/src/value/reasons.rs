//! Enumerations of reasons, each a row with its sentence.

/// Declares the reasons of one kind, numbered from 0 in the order of their rows.
macro_rules! reasons {
    (
        $(#[$about:meta])* enum $Kind:ident;
        $($(#[$doc:meta])* $name:ident = $sentence:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(rename_all = "snake_case")
        )]
        #[repr(u8)]
        pub enum $Kind {
            $($(#[$doc])* $name,)*
        }

        impl $Kind {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the reason as a clause.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }
        }
    };
}

pub(super) use reasons;
