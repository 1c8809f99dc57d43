//! The Redis harness against a real `redis-server`, and servers of other ages and origins.

use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use idem_harness::{Edition, HANG_LIMIT, RedisServer, RedisServerBuilder, Reply, RespConn};

/// Runs a check with the system's server and each edition; the edition is in its messages.
fn with_each(check: fn(RedisServerBuilder, Option<Edition>)) {
    check(RedisServer::builder(), None);
    for edition in Edition::ALL {
        check(RedisServer::builder().version(edition), Some(edition));
    }
}

#[test]
fn each_edition_has_the_version_of_its_name() {
    let fields = |edition| {
        let server = RedisServer::builder().version(edition).start();
        let info = server.cli(&["INFO", "server"]);
        ["redis_version:", "valkey_version:"]
            .map(|name| info.lines().find_map(|line| line.strip_prefix(name)))
            .map(|field| field.map(str::to_owned))
    };
    // The Redis version of Valkey is the one from which it was forked.
    let expected = [
        (Edition::Redis62, "6.2.", false),
        (Edition::Redis8, "8.", false),
        (Edition::Valkey, "7.2.", true),
    ];
    for (edition, version, is_valkey) in expected {
        let [redis, valkey] = fields(edition);
        assert!(redis.unwrap().starts_with(version), "{edition:?}");
        assert_eq!(valkey.is_some(), is_valkey, "{edition:?}");
    }
}

#[test]
fn password_users_socket_and_data_are_those_of_the_settings() {
    with_each(|builder, edition| {
        let server = builder
            .append_only_always()
            .password("p@ss/word")
            .acl_user("app", "on >word ~app:* resetchannels &app:* +get +publish")
            .unix_socket()
            .start();
        let mut app = RespConn::open(server.addr()).unwrap();
        let mut say = |command: &[&str]| app.command(command).unwrap().to_string();
        assert!(say(&["GET", "app:1"]).starts_with("(error) NOAUTH"));
        assert_eq!(say(&["AUTH", "p@ss/word"]), "OK", "{edition:?}");
        assert_eq!(say(&["SET", "app:1", "value", "PX", "60000"]), "OK");
        assert_eq!(say(&["AUTH", "app", "word"]), "OK", "{edition:?}");
        assert_eq!(say(&["GET", "app:1"]), "value");
        assert_eq!(say(&["PUBLISH", "app:news", "one"]), "0");
        for refused in [["GET", "other"], ["DEL", "app:1"]] {
            assert!(
                say(&refused).starts_with("(error) NOPERM"),
                "{edition:?} allows {refused:?}"
            );
        }
        let addr = server.addr();
        assert_eq!(server.url(), format!("redis://:p%40ss%2Fword@{addr}"));
        let app = server.url_as("app", "word");
        assert_eq!(app, format!("redis://app:word@{addr}"));
        let path = server.unix_url().replace("redis+unix://", "");
        assert!(UnixStream::connect(path).is_ok());

        server.kill();
        server.restart();
        assert_eq!(server.cli(&["GET", "app:1"]), "value", "{edition:?}");
        server.restart();
        assert_eq!(server.cli(&["GET", "app:1"]), "value", "{edition:?}");
    });
}

#[test]
fn a_server_is_paused_watched_and_moved_in_time() {
    with_each(|builder, edition| {
        let server = builder.start();
        for (key, ttl) in [
            ("a[*]:short", "30000"),
            ("a[*]:long", "90000"),
            ("ax", "30000"),
        ] {
            server.cli(&["SET", key, "1", "PX", ttl]);
        }
        server.cli(&["SET", "a[*]:forever", "1"]);
        assert_eq!(server.advance(Duration::from_secs(40), "a[*]:"), 2);
        let left = ["EXISTS", "a[*]:short", "a[*]:long", "a[*]:forever", "ax"];
        assert_eq!(server.cli(&left), "3", "{edition:?}");
        assert_eq!(server.cli(&["EXISTS", "a[*]:short"]), "0");
        let left: u64 = server.cli(&["PTTL", "a[*]:long"]).parse().unwrap();
        assert!((1..=50_000).contains(&left), "{edition:?}: {left}");

        let mut monitor = server.monitor();
        server.cli(&["set", "key", "a \"b\""]);
        server.cli(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "key"]);
        let commands = monitor.commands();
        let seen: Vec<_> = commands.iter().map(ToString::to_string).collect();
        let script = "EVAL return redis.call('GET', KEYS[1]) 1 key";
        assert_eq!(seen, ["SET key a \"b\"", script, "GET key"], "{edition:?}");
        assert!(commands[2].is_from_script() && !commands[1].is_from_script());
        assert_eq!(monitor.names(), [""; 0]);
        server.cli(&["PING"]);
        assert_eq!(monitor.names(), ["PING"]);

        let mut connection = server.connect();
        let silence = Duration::from_millis(50);
        connection.set_read_timeout(silence).unwrap();
        server.pause();
        connection.send(&["ECHO", "late"]).unwrap();
        assert!(connection.read().is_err(), "{edition:?}");
        connection.set_read_timeout(HANG_LIMIT).unwrap();
        server.resume();
        assert_eq!(connection.read().unwrap().to_string(), "late");
        server.shutdown();
        assert!(!server.is_running(), "{edition:?}");
        assert!(connection.command(&["PING"]).is_err());
        server.restart();
        assert_eq!(server.cli(&["DBSIZE"]), "0", "{edition:?}");
    });
}

#[test]
fn data_synced_each_second_survives_a_shutdown() {
    let server = RedisServer::builder().append_only_every_second().start();
    server.cli(&["SET", "key", "value"]);
    server.shutdown();
    server.restart();
    assert_eq!(server.cli(&["GET", "key"]), "value");
}

#[test]
fn replies_of_every_kind_are_read() {
    let server = RedisServer::start();
    let bytes = b"\x00\xff\r\n".as_slice();
    let bulk = |bytes: &[u8]| Reply::Bulk(bytes.to_vec());
    let rows: [(&[&[u8]], _); 5] = [
        (&[b"SET", b"key", bytes], Reply::Simple("OK".to_owned())),
        (&[b"GET", b"key"], bulk(bytes)),
        (&[b"INCR", b"number"], Reply::Int(1)),
        (&[b"BLPOP", b"list", b"0.001"], Reply::Nil),
        (
            &[b"MGET", b"number", b"none"],
            Reply::Array(vec![bulk(b"1"), Reply::Nil]),
        ),
    ];
    for (command, expected) in rows {
        assert_eq!(server.reply(command), expected);
    }
    assert_eq!(server.cli(&["MGET", "number", "none"]), "1\n(nil)");

    let unknown = server.reply(&["NOSUCH"]);
    assert!(unknown.as_error().unwrap().starts_with("ERR unknown"));
    let refused = catch_unwind(AssertUnwindSafe(|| server.cli(&["INCR", "key"])));
    let message = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.starts_with("`INCR key` is refused: ERR value is not an integer"),
        "{message}"
    );
}

#[test]
fn settings_reach_the_server_and_outlive_a_restart() {
    let server = RedisServer::builder()
        .arg("--maxmemory", "3mb")
        .args(["--client-output-buffer-limit", "pubsub", "1mb", "1mb", "60"])
        .start();
    for _ in 0..2 {
        let memory = server.cli(&["CONFIG", "GET", "maxmemory"]);
        assert_eq!(memory, "maxmemory\n3145728");
        assert_eq!(server.cli(&["CONFIG", "GET", "bind"]), "bind\n127.0.0.1");
        server.restart();
    }
}

#[test]
fn time_moves_for_thousands_of_keys_at_once() {
    let server = RedisServer::start();
    let fill = "for i = 1, 5000 do redis.call('SET', 'k:' .. i, i, 'PX', 1000 * i + 60000) end";
    server.cli(&["EVAL", fill, "0"]);
    assert_eq!(server.advance(Duration::from_secs(2_560), "k:"), 5_000);
    let left: u64 = server.cli(&["DBSIZE"]).parse().unwrap();
    assert!((2_400..=2_500).contains(&left), "{left}");
}

#[test]
fn a_server_that_does_not_start_gives_the_reason_and_the_remedy() {
    let failed = |builder: RedisServerBuilder| builder.try_start().unwrap_err().to_string();
    let nowhere = RedisServer::builder().binary("/nowhere/redis-server");
    for missing in [nowhere.clone(), nowhere.version(Edition::Redis8)] {
        let message = failed(missing);
        for part in [
            "no program `/nowhere/redis-server`",
            "apt-get install redis-server",
            "IDEM_REDIS_SERVER",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
    let message = failed(RedisServer::builder().arg("--no-such-setting", "1"));
    assert!(message.contains("no-such-setting"), "{message}");
    let message = failed(RedisServer::builder().version(Edition::Redis8).tls());
    assert!(message.contains("TLS"), "{message}");
}
