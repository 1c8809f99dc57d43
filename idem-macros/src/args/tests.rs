use super::{Args, Attempts, Scope};
use crate::errors::Errors;

fn parse(text: &str) -> (Args, Vec<String>) {
    let mut errors = Errors::default();
    let args = Args::parse(text.parse().expect("tokens"), &mut errors);
    (args, errors.messages())
}

#[test]
fn public_is_a_bare_word() {
    let scope = |text: &str| parse(text).0.scope;
    assert!(matches!(scope("scope = public"), Some(Scope::Public(_))));
    for value in [
        "&public",
        "(public)",
        "self.public",
        "public.id",
        "public()",
        "\"public\"",
    ] {
        let text = format!("scope = {value}");
        assert!(matches!(scope(&text), Some(Scope::Of(_))), "{value}");
    }
}

#[test]
fn parsing_continues_at_the_comma_after_an_error() {
    let (args, errors) = parse("kye = f(1, 2), op = 3, ttl, key = a b, key = c, \"d\", scope = e");
    let begin = [
        "unknown argument",
        "`op` takes",
        "`ttl` needs",
        "expected `,`",
        "`key` is",
        "expected an",
    ];
    assert_eq!(errors.len(), begin.len(), "{errors:?}");
    for (error, begin) in errors.iter().zip(begin) {
        assert!(error.starts_with(begin), "{error}");
    }
    assert!(args.scope.is_some());
}

#[test]
fn the_number_of_attempts_fits_a_record() {
    let most = |text| match parse(&format!("max_attempts = {text}")) {
        (args, errors) if errors.is_empty() => args.max_attempts,
        (_, errors) => {
            assert!(errors[0].contains("1 to 65535") || errors[0].contains("no attempt"));
            None
        }
    };
    assert!(matches!(most("1"), Some(Attempts::Most(1))));
    assert!(matches!(most("65_535"), Some(Attempts::Most(65_535))));
    assert!(matches!(most("unlimited"), Some(Attempts::Unlimited)));
    for text in ["0", "65536", "-1", "1.5", "5u8", "5s", "\"5\"", "many", "N"] {
        assert!(most(text).is_none(), "{text}");
    }
}

#[test]
fn the_transaction_is_a_bare_name() {
    let message = |text| parse(&format!("tx = {text}")).1.concat();
    for text in ["tx", "r#try", "(tx)"] {
        assert_eq!(message(text), "", "{text}");
    }
    for text in ["\"conn\"", "&mut conn", "&conn", "&mut (conn)"] {
        let message = message(text);
        assert!(message.ends_with("write `tx = conn`"), "{text}: {message}");
    }
    for text in [
        "self.tx", "a::b", "tx::<T>", "f(tx)", "*tx", "1", "\"a b\"", "\"fn\"",
    ] {
        let message = message(text);
        assert!(
            message.starts_with("`tx` takes the name"),
            "{text}: {message}"
        );
    }
}

#[test]
fn a_function_is_not_mistaken_for_a_misspelt_word() {
    let message = |text| parse(&format!("on_error = {text}")).1.concat();
    for (text, meant) in [
        ("realease", "release"),
        ("Keep", "keep"),
        ("unkown", "unknown"),
        ("clasify", "classify"),
        ("kept", "keep"),
        ("released", "release"),
        ("retry", "release"),
    ] {
        let begin = format!("`on_error` has no value `{text}`; did you mean `{meant}`?");
        assert!(message(text).starts_with(&begin), "{}", message(text));
    }
    assert!(message("Class::System").contains("write `on_error = release`"));
    assert!(message("idem::Class::Business").contains("write `on_error = keep`"));
    for text in [
        "judge",
        "reclassify",
        "self::realease",
        "release",
        "self::kept",
    ] {
        assert_eq!(message(text), "", "{text}");
    }
}
