//! Macros of the cases: their list, and expected replies.

/// Lists a file's cases with the rule and the tag of each.
macro_rules! cases {
    ($($rule:literal $name:ident $(: $tag:ident)?,)+) => {
        pub(super) fn cases() -> Vec<super::case::Case> {
            vec![$(super::case::Case {
                name: stringify!($name),
                rule: $rule,
                tag: cases!(@tag $($tag)?),
                run: |fixture| Box::pin($name(super::probe::Probe::new(fixture))),
            }),+]
        }
    };
    (@tag) => { super::case::Tag::Decision };
    (@tag transport) => { super::case::Tag::Transport };
}

/// A copy of a value with these fields replaced; its type is `non_exhaustive`.
macro_rules! with {
    ($value:expr $(, $field:ident: $other:expr)+ $(,)?) => {{
        let mut value = $value;
        $(value.$field = $other;)+
        value
    }};
}

/// Destructures a reply, or panics with it at the case's line.
macro_rules! expect {
    ($reply:expr, $pattern:pat => $out:expr $(, $($why:tt)+)?) => {
        match $reply {
            $pattern => $out,
            other => panic!(
                "expected `{}`, the store said `{other:?}`{}",
                stringify!($pattern),
                expect!(@why $($($why)+)?),
            ),
        }
    };
    (@why) => { "" };
    (@why $($why:tt)+) => { format!(": {}", format_args!($($why)+)) };
}

/// The record of a done key, and its remaining life.
macro_rules! replayed {
    ($reply:expr) => {
        expect!($reply, idem_runtime::store::author::ClaimReply::Done { record, left } => (record, left))
    };
}
