//! `Debug` by name and fields; `Display` by a sentence per value.

/// `Debug` of a type by its name and the listed fields.
///
/// The other fields are left out: they may be confidential, or have no `Debug`. `field: |it| value` shows a value in place
/// of a field.
macro_rules! debug_fields {
    (
        $([$($generics:tt)*])? $name:ident $(<$($argument:tt),*>)?
        { $($field:ident $(: |$it:ident| $value:expr)?),* }
    ) => {
        impl $(<$($generics)*>)? ::std::fmt::Debug for $name $(<$($argument),*>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &debug_fields!(@ self $field $(|$it| $value)?)))*
                    .finish_non_exhaustive()
            }
        }
    };
    (@ $this:ident $field:ident) => { $this.$field };
    (@ $this:ident $field:ident |$it:ident| $value:expr) => {{ let $it = $this; $value }};
}

/// `Display` by a text per value, with arguments as in `write!`.
macro_rules! display_text {
    ($name:ident { $($(#[$attribute:meta])* $value:pat => $text:literal $(, $argument:expr)*;)+ }) => {
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $($(#[$attribute])* $value => write!(f, $text $(, $argument)*),)+
                }
            }
        }
    };
}
