//! Words of a record: a code in its bytes, and texts for an operator.

/// Codes, words and explanations of an enum; `Other`: a later version's.
macro_rules! coded_words {
    (
        $name:ident: $about:literal, $of_later:literal;
        $($code:literal $value:ident $word:literal: $explanation:literal;)+
    ) => {
        impl $name {
            const CODES: &[(u32, Self)] = &[$(($code, Self::$value)),+];

            fn code(self) -> u32 {
                let of = Self::CODES.iter().find(|(_, value)| *value == self);
                of.map_or(0, |(code, _)| *code)
            }

            fn of(code: u32) -> Self {
                let of = Self::CODES.iter().find(|(known, _)| *known == code);
                of.map_or(Self::Other, |(_, value)| *value)
            }

            /// One word, as the `idem` command prints it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                    Self::Other => "other",
                }
            }

            #[doc = $about]
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self {
                    $(Self::$value => $explanation,)+
                    Self::Other => $of_later,
                }
            }
        }
    };
}
pub(super) use coded_words;
