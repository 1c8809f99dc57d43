//! Schema numbers of types.

use std::borrow::Cow;
use std::cell::Cell;

/// The schema number of a type: FNV-1a over its name.
///
/// The name is taken without the module paths, so that moving a type keeps its number, and without lifetimes, which not
/// every compiler writes. An answer of one schema is not read as another.
#[must_use]
pub(crate) fn schema_of(type_name: &'static str) -> u32 {
    thread_local! {
        static KNOWN: [Cell<Option<(&'static str, u32)>>; 16] = const { [const { Cell::new(None) }; 16] };
    }
    // A `&'static str` at a known address never changes. Most programs have few types of answers, and each call needs
    // the number of one.
    let known = KNOWN.try_with(|known| {
        let known = &known[type_name.as_ptr().addr() / 16 % known.len()];
        if let Some((name, number)) = known.get()
            && std::ptr::eq(name, type_name)
        {
            return number;
        }
        let number = number_of(type_name);
        known.set(Some((type_name, number)));
        number
    });
    // A thread that is about to end has no cache.
    known.unwrap_or_else(|_| number_of(type_name))
}

fn number_of(type_name: &str) -> u32 {
    let type_name = &*without_lifetimes(type_name);
    let mut hash = 0x811c_9dc5_u32;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    let mut rest = type_name;
    while !rest.is_empty() {
        // Nearly all names are ASCII, and a scan of bytes is faster.
        let letters = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let ascii = rest.bytes().take_while(letters).count();
        let end = match rest.as_bytes().get(ascii) {
            Some(byte) if !byte.is_ascii() => rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len()),
            _ => ascii,
        };
        let (word, tail) = rest.split_at(end);
        if let Some(tail) = tail.strip_prefix("::") {
            // `word` was a module.
            rest = tail;
            continue;
        }
        feed(word.as_bytes());
        let mut chars = tail.chars();
        if let Some(mark) = chars.next() {
            feed(mark.encode_utf8(&mut [0; 4]).as_bytes());
        }
        rest = chars.as_str();
    }
    hash
}

/// `Cow<'_, str>` as `Cow<str>`, `Money<'_>` as `Money`, `&'_ str` as `&str`.
fn without_lifetimes(type_name: &str) -> Cow<'_, str> {
    // Hardly any answer has lifetimes.
    if !type_name.contains('\'') {
        return type_name.into();
    }
    let mut parts = type_name.split('\'');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_');
        let rest = end.map_or("", |end| &part[end..]);
        let separated = rest.strip_prefix(", ").or_else(|| rest.strip_prefix(' '));
        name.push_str(separated.unwrap_or(rest));
    }
    name.replace("<>", "").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More names than the cache holds, each of them requested again.
    #[test]
    fn a_name_that_is_known_keeps_its_number() {
        const NAMES: &str = "Receipt Refund Order Invoice Payment Basket Article Customer Address Parcel \
            Voucher Account Booking Ticket Seat Flight Room Guest Night Price Tax Total";
        for _ in 0..3 {
            for name in NAMES.split_whitespace() {
                assert_eq!(schema_of(name), number_of(name), "{name}");
                // It begins where another name does.
                assert_eq!(schema_of(&name[..3]), number_of(&name[..3]), "{name}");
            }
        }
    }

    #[test]
    fn lifetimes_do_not_count() {
        for (with, without) in [
            ("alloc::borrow::Cow<'_, str>", "alloc::borrow::Cow<str>"),
            ("shop::Money<'_>", "shop::Money"),
            ("shop::Pair<'_, 'static, u8>", "shop::Pair<u8>"),
            ("&'_ str", "&str"),
            ("(&'static [u8], shop::Money<'a>)", "(&[u8], shop::Money)"),
        ] {
            assert_eq!(without_lifetimes(with), without);
            assert_eq!(schema_of(with), schema_of(without), "{with}");
        }
    }

    #[test]
    fn the_schema_tag_ignores_modules_and_sees_types() {
        assert_eq!(
            schema_of("alloc::vec::Vec<shop::Receipt>"),
            schema_of("std::vec::Vec<billing::model::Receipt>")
        );
        assert_ne!(schema_of("Vec<Receipt>"), schema_of("Vec<Refund>"));
        assert_ne!(schema_of("(u8, u16)"), schema_of("(u16, u8)"));
        // Frozen: a record of an older release must keep its tag.
        assert_eq!(schema_of("shop::Receipt"), 0x1b91_20e3);
        assert_eq!(
            schema_of("läden::Quittung<a::Straße>"),
            schema_of("Quittung<Straße>")
        );
    }
}
