//! Names planted by untrusted writers, on an operator's terminal.

use std::sync::Arc;

use idem_harness::TestDir;
use idem_runtime::store::Store;
use idem_runtime::store::sql::Sqlite;
use idem_runtime::{Engine, step};

use crate::filled::{PREFIX, PayError, Receipt, Site, sql};

/// Clears a screen, sets a window's title, and has its own line.
const NAME: &str = "pay\x1b[2J\u{9b}31m\u{202e}\nanswered: no";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_move_no_cursor() {
    let dir = TestDir::new("planted").unwrap();
    let url = format!("sqlite://{}", dir.path().join("records.db").display());
    let store = sql::<Sqlite>(url.clone()).await;
    let store: Arc<dyn Store> = Arc::new(store);
    let engine = Engine::builder(Arc::clone(&store)).prefix(PREFIX);
    let engine = engine.instance(NAME).build().unwrap();
    let call = engine.operation(NAME).key("o-1").label(NAME);
    let answer = call.run(|_| async {
        step(NAME, async |_| Ok::<_, PayError>(1)).await?;
        Err::<Receipt, _>(PayError::Down)
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let site = Site::new(url, store);
    let of = format!("'{NAME}' --key \"o-1\"");
    for (verb, lines) in [
        ("ls".to_owned(), 2),
        ("stats".to_owned(), 2),
        (format!("show {of}"), 10),
        (format!("why {of}"), 6),
    ] {
        let text = site.done(verb);
        assert!(
            text.contains("pay\u{fffd}[2J\u{fffd}31m\u{fffd}\u{fffd}answered: no"),
            "{text}"
        );
        assert!(
            !text.contains(|c: char| c != '\n' && c.is_control()),
            "{text:?}"
        );
        assert!(!text.contains("\nanswered: no"), "{text}");
        assert!(text.lines().count() >= lines, "{text}");
    }
}
