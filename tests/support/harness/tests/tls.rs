//! Servers that speak TLS, with the client that the library uses.

use ::redis::{ClientTlsConfig, RedisResult, TlsCertificates};
use idem_harness::{Certificates, RedisServer, RespConn, TcpProxy};
use rustls::crypto::ring;

/// A client that trusts one authority.
#[derive(Clone, Copy)]
struct Client<'a> {
    trusts: &'a Certificates,
    /// The client certificate in use.
    shows: Option<&'a Certificates>,
}

impl<'a> Client<'a> {
    fn trusting(trusts: &'a Certificates) -> Self {
        let shows = None;
        Self { trusts, shows }
    }

    fn showing(self, own: &'a Certificates) -> Self {
        let shows = Some(own);
        Self { shows, ..self }
    }

    fn connect(&self, url: &str) -> RedisResult<::redis::Connection> {
        // The first test of a process does it.
        drop(ring::default_provider().install_default());
        let identity = |own: &Certificates| ClientTlsConfig {
            client_cert: own.client_cert_pem().into(),
            client_key: own.client_key_pem().into(),
        };
        let tls = TlsCertificates {
            root_cert: Some(self.trusts.ca_pem().into()),
            client_tls: self.shows.map(identity),
        };
        ::redis::Client::build_with_tls(url, tls)?.get_connection()
    }

    fn ping(&self, url: &str) -> RedisResult<String> {
        ::redis::cmd("PING").query(&mut self.connect(url)?)
    }
}

#[test]
fn the_tls_port_is_of_the_same_server_and_takes_nothing_but_tls() {
    let server = RedisServer::builder().tls().start();
    let client = Client::trusting(server.certificates());
    let (url, port) = (server.tls_url(), server.tls_addr().port());
    assert_eq!(url, format!("rediss://127.0.0.1:{port}"));
    let localhost = format!("rediss://localhost:{port}");
    assert_eq!(client.ping(&localhost).unwrap(), "PONG");
    let mut connection = client.connect(&url).unwrap();
    let mut set = ::redis::cmd("SET");
    let done: String = set.arg(&["key", "value"]).query(&mut connection).unwrap();
    assert_eq!(done, "OK");
    assert_eq!(server.cli(&["GET", "key"]), "value");
    let mut plain = RespConn::open(server.tls_addr()).unwrap();
    assert!(plain.command(&["PING"]).is_err());

    server.kill();
    assert!(client.ping(&url).is_err());
    server.restart();
    assert_eq!(server.tls_url(), url);
    assert_eq!(client.ping(&url).unwrap(), "PONG");
}

#[test]
fn certificates_are_checked_by_both_sides() {
    let (own, stranger) = (Certificates::new(), Certificates::new());
    let builder = || RedisServer::builder().tls_with(own.clone());
    let [lenient, strict] = [builder().start(), builder().tls_client_auth().start()];
    assert_eq!(lenient.certificates().ca_pem(), own.ca_pem());
    let trusting = Client::trusting(&own);
    let rows = [
        ("no certificate", trusting, [true, false]),
        ("its certificate", trusting.showing(&own), [true, true]),
        ("another one", trusting.showing(&stranger), [true, false]),
        (
            "another authority",
            Client::trusting(&stranger).showing(&own),
            [false, false],
        ),
    ];
    for (name, client, accepted) in rows {
        let pongs = [&lenient, &strict].map(|server| client.ping(&server.tls_url()).is_ok());
        assert_eq!(pongs, accepted, "{name}");
    }
    // Neither a client that trusts another server's own authority nor one with those of the system.
    let other = RedisServer::builder().tls_client_auth().start();
    let error = trusting.ping(&other.tls_url()).unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    let client = ::redis::Client::open(lenient.tls_url()).unwrap();
    let error = client.get_connection().err().expect("it is not trusted");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
}

#[test]
fn passwords_and_users_are_in_the_url() {
    let server = RedisServer::builder()
        .tls()
        .password("p@ss/word")
        .acl_user("app", "on >secret ~* +ping")
        .start();
    let port = server.tls_addr().port();
    let client = Client::trusting(server.certificates());
    let [default, app] = [server.tls_url(), server.tls_url_as("app", "secret")];
    assert_eq!(default, format!("rediss://:p%40ss%2Fword@127.0.0.1:{port}"));
    assert_eq!(app, format!("rediss://app:secret@127.0.0.1:{port}"));
    for url in [default, app] {
        assert_eq!(client.ping(&url).unwrap(), "PONG");
    }
    assert!(client.ping(&server.tls_url_as("app", "wrong")).is_err());
}

#[test]
fn a_proxy_stands_before_the_tls_port() {
    let server = RedisServer::builder().tls().start();
    let proxy = TcpProxy::start(server.tls_addr());
    let client = Client::trusting(server.certificates());
    let mut connection = client.connect(&proxy.tls_url()).unwrap();
    let ping = ::redis::cmd("PING");
    assert_eq!(ping.query::<String>(&mut connection).unwrap(), "PONG");
    assert_eq!(proxy.cut(), 1);
    assert!(ping.query::<String>(&mut connection).is_err());
    assert_eq!(client.ping(&proxy.tls_url()).unwrap(), "PONG");
}
