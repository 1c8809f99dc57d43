//! Servers that speak TLS, with the client that the library uses.

use idem_harness::{Certificates, RedisServer, RespConn, TcpProxy};
use redis::{ClientTlsConfig, RedisResult, TlsCertificates};
use rustls::crypto::ring;

/// A client that trusts one authority.
struct Client<'a> {
    trusts: &'a Certificates,
    /// The client certificate in use.
    shows: Option<&'a Certificates>,
}

impl Client<'_> {
    fn connect(&self, url: &str) -> RedisResult<redis::Connection> {
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
        redis::Client::build_with_tls(url, tls)?.get_connection()
    }

    fn ping(&self, url: &str) -> RedisResult<String> {
        redis::cmd("PING").query(&mut self.connect(url)?)
    }
}

fn trusting(trusts: &Certificates) -> Client<'_> {
    Client {
        trusts,
        shows: None,
    }
}

fn showing<'a>(trusts: &'a Certificates, shows: &'a Certificates) -> Client<'a> {
    Client {
        trusts,
        shows: Some(shows),
    }
}

#[test]
fn the_tls_port_takes_tls_and_nothing_else() {
    let server = RedisServer::builder().tls().start();
    let client = trusting(server.certificates());
    assert_eq!(
        server.tls_url(),
        format!("rediss://127.0.0.1:{}", server.tls_addr().port())
    );
    assert_eq!(client.ping(&server.tls_url()).unwrap(), "PONG");
    let localhost = format!("rediss://localhost:{}", server.tls_addr().port());
    assert_eq!(client.ping(&localhost).unwrap(), "PONG");

    let mut plain = RespConn::open(server.tls_addr()).unwrap();
    assert!(plain.command(&["PING"]).is_err());
}

#[test]
fn both_ports_are_one_server() {
    let server = RedisServer::builder().tls().start();
    let client = trusting(server.certificates());
    let mut connection = client.connect(&server.tls_url()).unwrap();
    let done: String = redis::cmd("SET")
        .arg(&["key", "value"])
        .query(&mut connection)
        .unwrap();
    assert_eq!(done, "OK");
    assert_eq!(server.cli(&["GET", "key"]), "value");
}

#[test]
fn a_server_of_another_authority_is_not_trusted() {
    let server = RedisServer::builder().tls().start();
    let stranger = Certificates::new();
    let error = trusting(&stranger).ping(&server.tls_url()).unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    // A client with the system's authorities does not trust it either.
    drop(ring::default_provider().install_default());
    let client = redis::Client::open(server.tls_url()).unwrap();
    let error = client.get_connection().err().expect("it is not trusted");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
}

#[test]
fn a_client_certificate_is_demanded_and_checked() {
    let server = RedisServer::builder().tls_client_auth().start();
    let (own, stranger) = (server.certificates(), Certificates::new());
    let url = server.tls_url();
    assert_eq!(showing(own, own).ping(&url).unwrap(), "PONG");
    assert!(trusting(own).ping(&url).is_err());
    assert!(showing(own, &stranger).ping(&url).is_err());
}

#[test]
fn a_client_certificate_is_demanded_only_on_request() {
    let server = RedisServer::builder().tls().start();
    let own = server.certificates();
    assert_eq!(trusting(own).ping(&server.tls_url()).unwrap(), "PONG");
    assert_eq!(showing(own, own).ping(&server.tls_url()).unwrap(), "PONG");
}

#[test]
fn servers_can_have_one_authority() {
    let own = Certificates::new();
    let servers = [false, true].map(|demanding| {
        let builder = RedisServer::builder().tls_with(own.clone());
        let builder = if demanding {
            builder.tls_client_auth()
        } else {
            builder
        };
        builder.start()
    });
    for server in &servers {
        let pong = showing(&own, &own).ping(&server.tls_url());
        assert_eq!(pong.unwrap(), "PONG");
    }
    assert_eq!(servers[0].certificates().ca_pem(), own.ca_pem());
    // Two servers, each with its default authority.
    let others = [(), ()].map(|()| RedisServer::builder().tls().start());
    let error = trusting(others[0].certificates()).ping(&others[1].tls_url());
    assert!(error.is_err());
}

#[test]
fn passwords_and_users_are_in_the_url() {
    let server = RedisServer::builder()
        .tls()
        .password("p@ss/word")
        .acl_user("app", "on >secret ~* +ping")
        .start();
    let (client, port) = (trusting(server.certificates()), server.tls_addr().port());
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
    let client = trusting(server.certificates());
    let mut connection = client.connect(&proxy.tls_url()).unwrap();
    let ping = redis::cmd("PING");
    assert_eq!(ping.query::<String>(&mut connection).unwrap(), "PONG");
    assert_eq!(proxy.cut(), 1);
    assert!(ping.query::<String>(&mut connection).is_err());
    assert_eq!(client.ping(&proxy.tls_url()).unwrap(), "PONG");
}

#[test]
fn a_restarted_server_has_the_same_port_and_certificates() {
    let server = RedisServer::builder().tls().start();
    let url = server.tls_url();
    server.kill();
    assert!(trusting(server.certificates()).ping(&url).is_err());
    server.restart();
    assert_eq!(server.tls_url(), url);
    assert_eq!(trusting(server.certificates()).ping(&url).unwrap(), "PONG");
}

#[test]
fn a_server_built_without_tls_is_reported() {
    let error = RedisServer::builder()
        .version(idem_harness::Edition::Redis8)
        .tls()
        .try_start()
        .unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}
