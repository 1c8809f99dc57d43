use super::{Args, Attempts, DurationArg, Fingerprint, OnError, OnRunning, Scope};
use crate::errors::Errors;
use syn::Expr;

fn parse(text: &str) -> (Args, Vec<String>) {
    let mut errors = Errors::default();
    let args = Args::parse(text.parse().expect("tokens"), &mut errors);
    let Err(error) = errors.finish(Some(())) else {
        return (args, Vec::new());
    };
    let messages = error.into_iter().map(|error| error.to_string());
    (args, messages.collect())
}

#[test]
fn every_argument_is_read() {
    let (args, errors) = parse(
        "key = a::<B, C>(d), fingerprint(e, f.g), op = \"h\", scope = (i, j), ttl = \"1h\", \
         error_ttl = K, lease = l(m, n), max_run = \"15m\", on_error = o::p, \
         on_running = wait(\"1s\"), on_duplicate = reject, on_cancel = finish, on_panic = unknown, \
         on_lease_lost = continue, on_unconfirmed = return, on_outage = run, on_other_type = accept, max_attempts = 3, \
         count_errors = true, reconcile = Self::t, entry = v, label = \"{w}\", engine = self.q, tx = u, crate = r::s,",
    );
    assert_eq!(errors, [""; 0]);
    assert!(args.key.value.is_some() && matches!(args.scope.value, Some(Scope::Of(_))));
    assert!(matches!(args.fingerprint.value, Some(Fingerprint::List(list)) if list.len() == 2));
    assert!(matches!(args.error_ttl.value, Some(DurationArg::Expr(_))));
    assert!(matches!(args.max_run.value, Some(DurationArg::Text(_))));
    assert!(matches!(args.on_error.value, Some(OnError::By(_))));
    assert!(matches!(
        args.on_running.value,
        Some(OnRunning::Wait(DurationArg::Text(_)))
    ));
    assert_eq!(
        args.words.map(|word| word.value.expect("a word").text),
        [
            "reject", "finish", "unknown", "continue", "return", "run", "accept"
        ]
    );
    assert!(matches!(args.max_attempts.value, Some(Attempts::Most(3))));
    assert!(args.count_errors.value.expect("a bool").value);
    assert!(matches!(args.reconcile.value, Some(Expr::Path(_))));
    assert!(args.tx.value.is_some_and(|name| name == "u"));
    assert!(args.entry.value.is_some_and(|name| name == "v"));
    assert!(matches!(args.label.value, Some(Expr::Lit(_))));
    assert!(args.engine.value.is_some() && args.krate.value.is_some());
}

#[test]
fn public_is_a_bare_word() {
    let scope = |text: &str| parse(text).0.scope.value;
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
    assert!(args.scope.value.is_some());
}

#[test]
fn the_number_of_attempts_fits_a_record() {
    let most = |text| match parse(&format!("max_attempts = {text}")) {
        (args, errors) if errors.is_empty() => args.max_attempts.value,
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
fn an_unknown_word_has_a_suggestion_or_a_list_of_all() {
    let message = |text| parse(text).1.concat();
    assert_eq!(
        message("on_cancel = relase"),
        "`on_cancel` has no value `relase`; did you mean `release`?"
    );
    assert_eq!(
        message("on_cancel = stop"),
        "`on_cancel` takes `hold`, `finish`, `release` or `unknown`"
    );
    assert_eq!(
        message("on_lease_lost = \"continue\""),
        "`continue` is a keyword; remove the quotes: `on_lease_lost = continue`"
    );
    assert_eq!(
        message("on_panic = \"abort\""),
        "`on_panic` takes `release` or `unknown`"
    );
    assert_eq!(
        message("on_outage = 1"),
        "`on_outage` takes `fail` or `run`"
    );
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
