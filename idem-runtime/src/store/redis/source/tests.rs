use super::*;
use crate::store::redis::endpoint::Address;

#[cfg(feature = "redis-tls")]
mod tls;

fn find(url: &str) -> Result<Deployment, StoreError> {
    RedisSource::from(url).resolve(&SourceOptions::default())
}

fn address(client: &Endpoint) -> String {
    let address = Address::of(client.get_connection_info());
    address.expect("a host and a port").to_string()
}

fn nodes(url: &str) -> Vec<String> {
    match find(url) {
        Ok(Deployment::Cluster(clients)) => clients.iter().map(address).collect(),
        _ => panic!("{url} is a cluster"),
    }
}

fn sentinels(url: &str) -> Sentinels {
    match find(url) {
        Ok(Deployment::Sentinels(sentinels)) => sentinels,
        _ => panic!("{url} has sentinels"),
    }
}

#[test]
fn a_plain_url_is_one_server() {
    for (url, at) in [
        ("redis://localhost", "localhost:6379"),
        ("redis://[::1]:7000/3", "[::1]:7000"),
        ("redis://user:p%40ss@10.0.0.1:6380/1", "10.0.0.1:6380"),
    ] {
        let Ok(Deployment::Server(client)) = find(url) else {
            panic!("{url} is a server")
        };
        assert_eq!(address(&client), at);
    }
}

#[test]
fn a_client_gives_its_address_and_settings() {
    let given = Client::open("redis://user:p%40ss@10.0.0.1:6380/2?protocol=resp3").unwrap();
    let source = RedisSource::from(given);
    assert_eq!(format!("{source:?}"), "RedisSource(a Client)");
    let Ok(Deployment::Server(client)) = source.resolve(&SourceOptions::default()) else {
        panic!("it is one server")
    };
    assert_eq!(address(&client), "10.0.0.1:6380");
    let settings = client.get_connection_info().redis_settings();
    assert_eq!(settings.username(), Some("user"));
    assert_eq!(settings.password(), Some("p@ss"));
    assert_eq!(settings.db(), 2);
    assert_eq!(settings.protocol(), redis::ProtocolVersion::RESP3);
}

#[test]
fn a_connection_without_tls_is_told_unless_it_stays_on_the_machine() {
    let warning = |url| match find(url) {
        Ok(deployment) => deployment.warning(),
        Err(error) => panic!("{url}: {error}"),
    };
    for url in [
        "redis://redis.example",
        "redis://user:secret@10.0.0.1:6380/1",
        "redis://[2001:db8::1]:7000/3",
        "redis+sentinel://localhost,10.0.0.2/payments",
        "redis+cluster://user:secret@a,localhost",
    ] {
        let told = warning(url).expect(url);
        assert!(
            told.contains("without TLS") && told.contains("`rediss://`"),
            "{told}"
        );
        for hidden in ["secret", "10.0.0", "example"] {
            assert!(!told.contains(hidden), "{told}");
        }
    }
    for url in [
        "redis://localhost",
        "redis://127.0.0.1:6380",
        "redis://[::1]:7000/3",
        "redis+unix:///run/redis.sock",
        "redis+sentinel://localhost,127.0.0.1/payments",
        "redis+cluster://[::1],localhost:7001",
    ] {
        assert_eq!(warning(url), None, "{url}");
    }
    #[cfg(feature = "redis-tls")]
    for url in ["rediss://redis.example", "rediss+cluster://a,10.0.0.1"] {
        assert_eq!(warning(url), None, "{url}");
    }
}

#[test]
fn the_nodes_of_a_cluster_share_the_settings_of_the_url() {
    let url = "redis+cluster://user:p%40%2C%2Fss@a,b:7001,[::1],[::2]:7003/?protocol=resp3";
    assert_eq!(nodes(url), ["a:6379", "b:7001", "[::1]:6379", "[::2]:7003"]);
    let Ok(Deployment::Cluster(clients)) = find(url) else {
        panic!("it is a cluster")
    };
    for client in clients {
        let settings = client.get_connection_info().redis_settings().clone();
        assert_eq!(settings.username(), Some("user"));
        assert_eq!(settings.password(), Some("p@,/ss"));
        assert_eq!(settings.protocol(), redis::ProtocolVersion::RESP3);
    }
}

#[test]
fn sentinels_have_their_own_port_and_password() {
    let url = "redis+sentinel://user:secret@a,b:26380,[::1]/payments/2";
    let found = sentinels(url);
    let asked: Vec<_> = found.sentinels().iter().map(address).collect();
    assert_eq!(asked, ["a:26379", "b:26380", "[::1]:26379"]);
    for client in found.sentinels() {
        let settings = client.get_connection_info().redis_settings().clone();
        assert_eq!((settings.password(), settings.db()), (None, 0));
    }
    let server = found.server().get_connection_info().redis_settings();
    assert_eq!(server.username(), Some("user"));
    assert_eq!((server.password(), server.db()), (Some("secret"), 2));
    assert!(format!("{found:?}").contains("payments"));

    let options = SourceOptions {
        sentinel: Some((Some("watcher".to_owned()), "other".to_owned())),
        ..SourceOptions::default()
    };
    let Ok(Deployment::Sentinels(found)) = RedisSource::from(url).resolve(&options) else {
        panic!("it has sentinels")
    };
    let settings = found.sentinels()[0].get_connection_info().redis_settings();
    assert_eq!(settings.username(), Some("watcher"));
    assert_eq!(settings.password(), Some("other"));
}

#[test]
fn an_invalid_url_is_refused_and_not_quoted() {
    for url in [
        "",
        "secret",
        "redis",
        "http://secret",
        "redis+sentinel://",
        "redis+sentinel://secret",
        "redis+sentinel://secret/",
        "redis+sentinel://a,,secret/service",
        "redis+sentinel://a:port/secret",
        "redis+sentinel:///secret",
        "redis+cluster://",
        "redis+cluster://a,secret:99999",
        "redis+cluster://,",
        "redis+unknown://secret",
        "redis+sentinel://a/service/secret",
    ] {
        let error = find(url)
            .err()
            .unwrap_or_else(|| panic!("{url} is refused"));
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        let said = format!("{error} {error:?}");
        assert!(!said.contains("secret"), "{said}");
        assert!(said.contains("redis"), "{said}");
    }
    assert!(!format!("{:?}", RedisSource::from("redis://:secret@a")).contains("secret"));
}
