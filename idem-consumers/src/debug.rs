//! `Debug` by name and a few fields.

/// `Debug` of a type by its name and the listed values; others may be confidential, or have no `Debug`.
macro_rules! debug_fields {
    ($name:ident $this:ident { $($field:ident: $value:expr),* }) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}
