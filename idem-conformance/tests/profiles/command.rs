//! The program: its exit codes and its output.

use std::fs;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::post;
use axum::serve::Listener;
use idem_conformance::http::Specification;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyLayer, Profile};
use idem_runtime::store::memory::MemoryStore;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::setup;
use super::shop::Served;

const SLOW: &str = r#"POST /slow {"quantity": {number}}"#;
const STREAMED: &str = r#"POST /streamed {"quantity": {number}}"#;
const ORDER: &str = r#"POST /orders {"items": ["tea", "cake"], "quantity": {number}}"#;

/// Runs the program with these arguments, beside the server of this thread.
async fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idem-conformance"));
    command.args(arguments);
    output(command).await
}

async fn output(mut command: Command) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code(), text)
}

#[tokio::test]
async fn exit_codes_tell_a_met_specification_from_a_failed_row_and_from_no_run() {
    let draft = Specification::Draft;
    let shop = Served::start(draft, Profile::draft(), &setup(draft)).await;
    let met = shop.base.to_string();
    let mut bare = setup(draft);
    bare.set = |layer| layer.optional();
    let optional = Served::start(draft, Profile::draft(), &bare).await;
    let failing = optional.base.to_string();
    let caller = ["-H", "x-tenant: acme", "--other-header", "x-tenant: eve"];
    let owned = |arguments: &[&str]| {
        arguments
            .iter()
            .map(|it| (*it).to_owned())
            .collect::<Vec<_>>()
    };
    let draft = |address, more: &[&str]| {
        owned(&[&["draft", address, "--operation", ORDER][..], &caller, more].concat())
    };
    let of = |table, operation| owned(&[table, &met, "--operation", operation]);
    let total = ["--effects", "GET /total", "--effects-at", "/total"];
    let slow = ["--slow", SLOW];
    let streamed = ["--streamed", STREAMED];
    let streaming = "passed         2.6           must    streaming";
    let one = ["--allow", "missing"];
    let both = ["--allow", "missing", "--allow", "suite_missing"];
    let second = ["--operation", "POST /nothing"];
    let concurrent = "passed         2.6           must    concurrent";
    for (arguments, code, said) in [
        (draft(&met, &[]), 0, "0 failed"),
        (draft(&met, &total), 0, "passed         suite: edge"),
        (draft(&met, &slow), 0, concurrent),
        (draft(&met, &streamed), 0, streaming),
        (draft(&met, &["--markdown"]), 0, "| 2.6 | should |"),
        (draft(&failing, &[]), 1, "got:      201"),
        (draft("http://127.0.0.1:1", &[]), 2, "got no response"),
        (draft("127.0.0.1:1", &[]), 2, "begins with `http://`"),
        (draft("ftp://127.0.0.1:1", &[]), 2, "begins with neither"),
        (draft(&failing, &one), 1, "FAILED"),
        (draft(&failing, &both), 0, "FAILED"),
        (draft(&met, &second), 2, "error: the argument '--operation"),
        // The handler refuses it.
        (of("draft", "POST /nothing"), 2, "got 403"),
        (of("rfc", ORDER), 2, "`rfc` is none of draft"),
        (of("draft", "/orders"), 2, "is not a method and a path"),
    ] {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let (is, text) = run(&arguments).await;
        assert_eq!(is, Some(code), "{arguments:?}\n{text}");
        assert!(text.contains(said), "{arguments:?}\n{text}");
    }
}

/// A listener of TLS connections.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, addr) = self.listener.accept().await.unwrap();
            // A client that does not trust the certificate ends its connection.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, addr);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// An authority in PEM, and a server of it at `localhost`.
fn certified() -> (String, TlsAcceptor) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = server.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (pem, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn a_server_over_tls_is_tested_if_the_machine_trusts_its_authority() {
    let (pem, acceptor) = certified();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let orders = Arc::new(AtomicUsize::new(0));
    let order = post(async move || orders.fetch_add(1, Ordering::SeqCst).to_string());
    let engine = Engine::new(MemoryStore::new());
    let layer = IdempotencyLayer::public(engine, "shop.api").profile(Profile::draft());
    let shop = Router::new().route("/orders", order).layer(layer);
    let served = axum::serve(Tls { listener, acceptor }, shop).into_future();
    let task = tokio::spawn(served);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("authority-{}.pem", std::process::id()));
    fs::write(&file, pem).unwrap();
    let program = |trusted: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idem-conformance"));
        command.args(["draft", &address, "--operation", ORDER]);
        if trusted {
            command.env("SSL_CERT_FILE", &file);
        }
        output(command)
    };
    let (code, text) = program(true).await;
    assert!(code == Some(0) && text.contains(" 0 failed"), "{text}");
    let (code, text) = program(false).await;
    assert!(
        code == Some(2) && text.contains("invalid peer certificate"),
        "{text}"
    );
    fs::remove_file(&file).unwrap();
    task.abort();
}
