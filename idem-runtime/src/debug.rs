//! `Debug` by name and a few fields.

/// `Debug` of a type by its name and the listed fields.
///
/// The other fields are left out: they may be confidential, or have no `Debug`.
macro_rules! debug_fields {
    ($([$($generics:tt)*])? $name:ident $(<$($argument:tt),*>)? { $($field:ident),* }) => {
        impl $(<$($generics)*>)? ::std::fmt::Debug for $name $(<$($argument),*>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}
