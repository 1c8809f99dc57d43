use redis::parse_redis_value;

use super::*;

fn said(line: &str) -> Option<String> {
    let reply = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
    let error = reply.extract_error().unwrap_err();
    let said_by = Address {
        host: "10.0.0.1".into(),
        port: 7_000,
    };
    Some(match redirect(&error, &said_by)? {
        Redirect::Moved(to) => format!("moved to {to}"),
        Redirect::Ask(to) => format!("ask {to}"),
        Redirect::Nameless => "nameless".to_owned(),
    })
}

#[test]
fn a_redirect_names_its_node() {
    for (line, meant) in [
        ("MOVED 3999 10.0.0.2:7001", Some("moved to 10.0.0.2:7001")),
        (
            "MOVED 3999 redis.example:7001",
            Some("moved to redis.example:7001"),
        ),
        ("MOVED 3999 fd00::7:7001", Some("moved to [fd00::7]:7001")),
        ("MOVED 3999 :7001", Some("moved to 10.0.0.1:7001")),
        ("MOVED 3999 ?:7001", Some("nameless")),
        ("ASK 3999 10.0.0.2:7001", Some("ask 10.0.0.2:7001")),
        ("ASK 3999 :7001", Some("ask 10.0.0.1:7001")),
        ("ASK 3999 ?:7001", Some("nameless")),
        ("MOVED 3999 10.0.0.2:70010", None),
        ("MOVED 3999 10.0.0.2", None),
        ("MOVED 3999", None),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            None,
        ),
        ("ERR MOVED 3999 10.0.0.2:7001", None),
    ] {
        assert_eq!(said(line).as_deref(), meant, "{line}");
    }
}

fn cluster(seeds: &[&str]) -> Cluster {
    let seeds: Vec<_> = seeds
        .iter()
        .map(|url| Endpoint::new(Client::open(*url).unwrap(), None))
        .collect();
    let limits = crate::store::redis::limits::Limits {
        connect: Duration::from_secs(1),
        response: Duration::from_secs(1),
        text_bytes: usize::MAX,
    };
    let settings = ConnectionSettings {
        limits,
        durability: crate::store::redis::Durability::Acknowledged,
        wait_connections: 1,
    };
    Cluster::new(&seeds, settings, &Arc::default()).unwrap()
}

#[test]
fn the_node_that_replied_last_is_queried_first_and_each_node_once() {
    let cluster = cluster(&[
        "redis://10.0.0.1:1",
        "redis://10.0.0.2:2",
        "redis://10.0.0.1:1",
    ]);
    let candidates = || -> Vec<_> {
        cluster
            .candidates()
            .iter()
            .map(Address::to_string)
            .collect()
    };
    assert_eq!(candidates(), ["10.0.0.1:1", "10.0.0.2:2"]);
    let at = |port| Address {
        host: "10.0.0.2".into(),
        port,
    };
    let node = |port| {
        let host = Value::BulkString(b"10.0.0.2".to_vec());
        let node = Value::Array(vec![host, Value::Int(port)]);
        Value::Array(vec![Value::Int(port), Value::Int(port), node])
    };
    let reply = Value::Array(vec![node(3), node(2), node(4)]);
    {
        let mut state = cluster.lock();
        state.slots = Slots::read(&reply, &at(2)).map(Arc::new);
        state.answered = Some(at(4));
    }
    let expected = ["10.0.0.2:4", "10.0.0.2:3", "10.0.0.2:2", "10.0.0.1:1"];
    assert_eq!(candidates(), expected);
}
