//! Keys in disguise: whatever a client writes into a socket, one key is taken as it is meant, and everything
//! else is refused before a command is sent to the store.

use axum::extract::Extension;
use axum::routing::post;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, KeyRules};
use idem_runtime::store::memory::MemoryStore;
use idem_tests::faulty::{Faulty, StoreOperation};

use crate::client::{Fixture, routed};
use crate::server::{Server, answers, request, with_key};

/// A service that answers with the key that reached it, and all commands that its store received.
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

/// Values that are no key, whether quotation marks are required or not.
const NEVER: &[&[u8]] = &[
    // Nothing.
    b"",
    b" ",
    b"\t \t",
    b"\"\"",
    b"\" \"",
    // Quotation marks that do not end, or that end early.
    b"\"",
    b"\"a",
    b"a\"",
    b"\"a\"b",
    b"\"a\" b",
    b"\"a\"\"b\"",
    b"\"a\\\"",
    // Backslashes that escape nothing.
    b"\"a\\n\"",
    b"\"\\x41\"",
    b"\"\\u0041\"",
    b"a\\",
    // Several.
    b"\"a\", \"b\"",
    b"\"a\",\"b\"",
    b"\"a\",",
    b",\"a\"",
    b"a, b",
    b"a,b",
    b",",
    b"(\"a\" \"b\")",
    b"(\"a\" \"b\"), \"c\"",
    b"a b",
    b"a\tb",
    // Parameters that are none, or have no key before them.
    b"\"a\";",
    b"\"a\"; ;b",
    b"\"a\";B=1",
    b"\"a\";b=\"c",
    b";b=1",
    b"a;b=1",
    b"a;",
    // Not ASCII, and not even text.
    "\"ключ\"".as_bytes(),
    "ключ".as_bytes(),
    b"\"\xff\xfe\"",
    b"\xff\xfe",
    b"\"\xc3\x28\"",
    b"\"\xed\xa0\x80\"",
    b"a\xa0",
    b"\xa0",
    // Blanks that are not at the ends.
    b"\"a\tb\"",
];

/// Values that are a key only where quotation marks are not required.
const BARE: &[&[u8]] = &[
    b"8e03978e-40d5-43dd-bc93-6894a57f9324",
    b"42",
    b"-1.5",
    b"?1",
    b":YWJj:",
    b"@1659578233",
    b"order/7",
    b"a=1",
    b"{}",
    b"$(id)",
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
        for length in [256, 8 << 10, 100 << 10] {
            let key = "k".repeat(length);
            shop.refuses(&with_key(format!("\"{key}\""), "tea")).await;
            // Not a key, or too long a one.
            shop.refuses(&with_key(key, "tea")).await;
            // Escapes count once, blanks at the ends not at all, and parameters are no way around.
            let escapes = format!("\"{}\"", "\\\\".repeat(length));
            shop.refuses(&with_key(escapes, "tea")).await;
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
async fn a_key_that_no_server_reads_to_its_end_is_refused() {
    let shop = Shop::open(bare()).await;
    let request = with_key("k".repeat(2 << 20), "tea");
    let mut client = shop.server.connect().await;
    client.write(&request).await;
    // The server may cut the connection before its answer was read.
    let bytes = client.rest().await;
    assert!(
        bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 431 "),
        "{}",
        bytes.escape_ascii()
    );
    shop.is_untouched(b"a key of 2 MiB");
}

#[tokio::test]
async fn a_malformed_header_is_refused_and_nothing_is_stored() {
    let lines: &[&[u8]] = &[
        // Between the name and the colon there is nothing (RFC 9112, section 5.1).
        b"Idempotency-Key : \"a\"\r\n",
        b"Idempotency-Key\t: \"a\"\r\n",
        b" Idempotency-Key: \"a\"\r\n",
        // A header does not go on in the next line (RFC 9112, section 5.2).
        b"Idempotency-Key: \"a\r\n b\"\r\n",
        b"Idempotency-Key: \"a\r\n\tb\"\r\n",
        b"Idempotency-Key:\r\n \"a\"\r\n",
        // CR, NUL and other control characters (RFC 9110, section 5.5).
        b"Idempotency-Key: \"a\rb\"\r\n",
        b"Idempotency-Key: \"a\rIdempotency-Key: b\"\r\n",
        b"Idempotency-Key: \"a\0b\"\r\n",
        b"Idempotency-Key: \0\r\n",
        b"Idempotency-Key: \"a\x01b\"\r\n",
        b"Idempotency-Key: \"a\x0bb\"\r\n",
        b"Idempotency-Key: \"a\x1b[2J\"\r\n",
        b"Idempotency-Key: \"a\x7fb\"\r\n",
        b"Idempotency-Key: a\x08\r\n",
        // Names that are none.
        b"Idempotency-Key\0: \"a\"\r\n",
        b"Idempotency Key: \"a\"\r\n",
        b"\"Idempotency-Key\": \"a\"\r\n",
        b": \"a\"\r\n",
        b"Idempotency-Key\r\n",
        b"Idempotency-Key: \"a\"\r\nno colon\r\n",
    ];
    for keys in [strict(), bare()] {
        let shop = Shop::open(keys).await;
        for lines in lines {
            let request = request(lines, "tea");
            let answer = shop.server.ask(&request).await;
            assert_eq!(answer.said(), (400, ""), "{}", request.escape_ascii());
            shop.is_untouched(&request);
        }
    }
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

#[tokio::test]
async fn a_request_with_two_lengths_is_not_two_requests() {
    let shop = Shop::open(strict()).await;
    let hidden = String::from_utf8(with_key("\"hidden\"", "tea")).unwrap();
    let start = "POST /orders HTTP/1.1\r\nHost: shop.test\r\nIdempotency-Key: \"a\"\r\n";
    let both = format!(
        "{start}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        5 + hidden.len()
    );
    let different = format!(
        "{start}Content-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}",
        hidden.len()
    );
    let ask = async |request: String| {
        let mut client = shop.server.connect().await;
        client.write(request.as_bytes()).await;
        answers(&client.rest().await)
    };
    // Chunks are what counts (RFC 9112, section 6.3), and the connection ends.
    let answers = ask(both).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0].body, "a");
    let answers = ask(different).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0].said(), (400, ""));
    assert_eq!(shop.store.count(StoreOperation::Claim), 1);
    assert_eq!(shop.fixture.runs(), 1);
}
