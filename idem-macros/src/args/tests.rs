use super::{Args, Fingerprint, OnError, OnRunning, Time};
use crate::errors::Errors;

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
         error_ttl = K, lease = l(m, n), on_error = o::p, on_running = wait(\"1s\"), \
         on_duplicate = reject, engine = self.q, crate = r::s,",
    );
    assert_eq!(errors, [""; 0]);
    assert!(args.key.value.is_some() && args.scope.value.is_some());
    assert!(matches!(args.fingerprint.value, Some(Fingerprint::List(list)) if list.len() == 2));
    assert!(matches!(args.error_ttl.value, Some(Time::Expr(_))));
    assert!(matches!(args.on_error.value, Some(OnError::By(_))));
    assert!(matches!(
        args.on_running.value,
        Some(OnRunning::Wait(Time::Text(_)))
    ));
    assert!(args.engine.value.is_some() && args.krate.value.is_some());
}

#[test]
fn after_a_mistake_reading_goes_on_at_the_next_comma() {
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
