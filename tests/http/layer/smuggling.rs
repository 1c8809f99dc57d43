//! Keys in disguise: whatever a client writes into a socket, one key is taken as it is meant, and everything
//! else is refused before a command is sent to the store.

use axum::extract::Extension;
use axum::routing::post;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, KeyRules};
use idem_runtime::store::memory::MemoryStore;
use idem_tests::faulty::Faulty;

use crate::client::{Fixture, routed};
use crate::server::{Server, answers, request, with_key};

/// A service that answers with its key, and its store's commands.
struct Shop {
    server: Server,
    store: Faulty,
    fixture: Fixture,
}

impl Shop {
    async fn open(keys: KeyRules) -> Self {
        let (store, fixture) = (Faulty::new(MemoryStore::new()), Fixture::new());
        let layer = IdempotencyLayer::public(Engine::new(store.clone()), "shop.api").keys(keys);
        let counter = fixture.clone();
        let handler = post(move |Extension(key): Extension<IdempotencyKey>| {
            counter.run();
            async move { key.as_str().to_owned() }
        });
        let service = routed(handler, layer);
        let server = Server::start(service).await;
        Self {
            server,
            store,
            fixture,
        }
    }

    fn is_untouched(&self, request: &[u8]) {
        let log = self.store.log();
        assert!(log.is_empty(), "{}: {log:?}", request.escape_ascii());
        assert_eq!(self.fixture.runs(), 0, "{}", request.escape_ascii());
    }

    /// Asserts that the layer refuses a request, and leaves the store untouched.
    async fn refuses(&self, request: &[u8]) {
        let answer = self.server.ask(request).await;
        let row = request.escape_ascii();
        assert_eq!(answer.status, 400, "{row}");
        assert_eq!(answer.problem(), (400, "key-invalid"), "{row}");
        self.is_untouched(request);
    }
}

fn strict() -> KeyRules {
    KeyRules::default().bare(false)
}

fn bare() -> KeyRules {
    KeyRules::default()
}

/// Values that are no key, whether quotation marks are required or not. The grammar has unit tests.
const NEVER: &[&[u8]] = &[
    b"",
    b"\t \t",
    b"\"\"",
    b"\"a",
    b"\"a\" b",
    b"\"a\\n\"",
    b"\"a\", \"b\"",
    b"\"a\",",
    b"a, b",
    b"\"a\tb\"",
    b"\"a\";B=1",
    b"a;b=1",
    // Not ASCII, and not even text.
    "ключ".as_bytes(),
    b"\"\xff\xfe\"",
    b"\xa0",
];

/// Values that are a key only where quotation marks are not required.
const BARE: &[&[u8]] = &[
    b"8e03978e-40d5-43dd-bc93-6894a57f9324",
    b"?1",
    b":YWJj:",
    b"../../etc/passwd",
    b"'a'",
];

/// Lines with more than one key, or with what ends it.
const LINES: &[&str] = &[
    "Idempotency-Key: \"a\"\r\nIdempotency-Key: \"a\"\r\n",
    "Idempotency-Key: \"a\"\r\nIdempotency-Key: \"b\"\r\n",
    "Idempotency-Key: \"a\"\r\nidempotency-key: \"b\"\r\n",
    "IDEMPOTENCY-KEY: \"a\"\r\nX-Between: 1\r\nIdEmPoTeNcY-kEy: \"b\"\r\n",
    "Idempotency-Key: \"a\"\r\nIdempotency-Key:\r\n",
    "Idempotency-Key:\r\nIdempotency-Key: \"a\"\r\n",
    "Idempotency-Key: a\r\nIdempotency-Key: a\r\n",
    // As one header, these would be one string.
    "Idempotency-Key: \"a\r\nIdempotency-Key: b\"\r\n",
    // What would be the rest of the string is a header of its own.
    "Idempotency-Key: \"a\r\nX-Injected: 1\"\r\n",
    "Idempotency-Key: \"a\nX-Injected: 1\"\r\n",
];

#[tokio::test]
async fn a_malformed_key_is_refused_and_nothing_is_stored() {
    for (keys, more) in [(strict(), BARE), (bare(), &[])] {
        let shop = Shop::open(keys).await;
        for key in NEVER.iter().chain(more) {
            shop.refuses(&with_key(key, "tea")).await;
        }
        for lines in LINES {
            shop.refuses(&request(lines, "tea")).await;
        }
        // Escapes count once, blanks at the ends not at all, and parameters are no way around.
        for text in ["k", "\\\\"] {
            let key = format!("\"{}\"", text.repeat(256));
            shop.refuses(&with_key(key, "tea")).await;
        }
        let longest = format!("  \"{}\\\"\";a=1;b ", "k".repeat(254));
        let answer = shop.server.ask(with_key(longest, "tea")).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 255));
    }
}

#[tokio::test]
async fn a_bare_key_reaches_the_handler_as_it_was_written() {
    let shop = Shop::open(bare()).await;
    for key in BARE {
        let answer = shop.server.ask(with_key(key, "tea")).await;
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, *key));
    }
    assert_eq!(shop.fixture.runs(), BARE.len());
}

#[tokio::test]
async fn a_name_that_only_looks_alike_is_another_header() {
    let shop = Shop::open(bare()).await;
    for name in ["Idempotency_Key", "IdempotencyKey", "X-Idempotency-Key"] {
        let request = request(format!("{name}: a\r\n"), "tea");
        let answer = shop.server.ask(&request).await;
        assert_eq!(answer.problem(), (400, "key-missing"));
        shop.is_untouched(&request);
    }
}

#[tokio::test]
async fn one_key_in_many_spellings_is_one_key() {
    let shop = Shop::open(bare()).await;
    let spellings = [
        "Idempotency-Key: a\r\n",
        "Idempotency-Key:a\r\n",
        "idempotency-key: \"a\"\r\n",
        "IDEMPOTENCY-KEY: \t\"a\" \t\r\n",
        "Idempotency-Key: \"a\";version=1\r\n",
        "Idempotency-Key: \"a\"; b;c=?0\r\n",
    ];
    for lines in spellings {
        let answer = shop.server.ask(request(lines, "tea")).await;
        assert_eq!(answer.said(), (200, "a"));
    }
    assert_eq!(shop.fixture.runs(), 1);
    // Escapes are resolved, once.
    let answer = shop.server.ask(with_key(r#""a\\\"b""#, "tea")).await;
    assert_eq!(answer.body, r#"a\"b"#);
}

#[tokio::test]
async fn the_body_of_a_refused_request_is_not_read_as_the_next_one() {
    let shop = Shop::open(strict()).await;
    let hidden = String::from_utf8(with_key("\"hidden\"", "tea")).unwrap();
    for key in ["bare", "\"a\", \"b\""] {
        let start = format!(
            "POST /orders HTTP/1.1\r\nHost: shop.test\r\nContent-Length: {}\r\nIdempotency-Key: {key}\r\n\r\n",
            hidden.len()
        );
        let last = with_key("neither", "");
        let mut client = shop.server.connect().await;
        client
            .write(&[start.as_bytes(), hidden.as_bytes(), &last].concat())
            .await;
        let bytes = client.rest().await;
        let answers = answers(&bytes);
        assert!(!answers.is_empty());
        for answer in answers {
            assert_eq!(answer.problem(), (400, "key-invalid"));
        }
        shop.is_untouched(start.as_bytes());
    }
}
