//! The Redis harness against servers of other ages and origins.

use std::time::Duration;

use idem_harness::{Edition, RedisServer, RespConn};

/// A field of the server's `INFO`, such as `redis_version:7.0.15`.
fn info(server: &RedisServer, name: &str) -> Option<String> {
    let info = server.cli(&["INFO", "server"]);
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find_map(|(field, value)| (field == name).then(|| value.to_owned()))
}

#[test]
fn each_edition_has_the_version_of_its_name() {
    let version = |edition| {
        let server = RedisServer::builder().version(edition).start();
        (
            info(&server, "redis_version").expect("every server says so"),
            info(&server, "valkey_version"),
        )
    };
    let (redis, valkey) = version(Edition::Redis62);
    assert!(redis.starts_with("6.2.") && valkey.is_none(), "{redis}");
    let (redis, valkey) = version(Edition::Redis8);
    assert!(redis.starts_with("8.") && valkey.is_none(), "{redis}");
    let (redis, valkey) = version(Edition::Valkey);
    // The Redis version from which Valkey was forked.
    assert!(redis.starts_with("7.2."), "{redis}");
    assert!(valkey.is_some());
}

#[test]
fn a_binary_goes_before_an_edition() {
    let error = RedisServer::builder()
        .version(Edition::Redis8)
        .binary("/nowhere/redis-server")
        .try_start()
        .unwrap_err();
    assert!(error.to_string().contains("/nowhere/redis-server"));
}

#[test]
fn each_edition_knows_the_settings_of_the_harness() {
    for edition in Edition::ALL {
        let server = RedisServer::builder()
            .version(edition)
            .append_only_always()
            .password("secret")
            .acl_user("app", "on >word ~app:* resetchannels &app:* +get +publish")
            .unix_socket()
            .start();
        let mut app = RespConn::open(server.addr()).unwrap();
        let mut say = |command: &[&str]| app.command(command).unwrap().to_string();
        assert!(say(&["GET", "app:1"]).starts_with("(error) NOAUTH"));
        assert_eq!(say(&["AUTH", "secret"]), "OK", "{edition:?}");
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
        let path = server.unix_url().replace("redis+unix://", "");
        assert!(std::os::unix::net::UnixStream::connect(path).is_ok());

        server.kill();
        server.restart();
        assert_eq!(server.cli(&["GET", "app:1"]), "value", "{edition:?}");
        server.restart();
        assert_eq!(server.cli(&["GET", "app:1"]), "value", "{edition:?}");
    }
}

#[test]
fn each_edition_is_paused_watched_and_moved_in_time() {
    for edition in Edition::ALL {
        let server = RedisServer::builder().version(edition).start();
        server.cli(&["SET", "a:short", "1", "PX", "5000"]);
        server.cli(&["SET", "a:long", "1", "PX", "60000"]);
        assert_eq!(server.advance(Duration::from_secs(10), "a:"), 2);
        assert_eq!(server.cli(&["EXISTS", "a:short", "a:long"]), "1");

        let mut monitor = server.monitor();
        server.cli(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "a:long"]);
        let commands = monitor.commands();
        let seen: Vec<_> = commands.iter().map(|command| &*command.name).collect();
        assert_eq!(seen, ["EVAL", "GET"], "{edition:?}");
        assert!(commands[1].is_from_script(), "{edition:?}");

        let mut connection = server.connect();
        server.pause();
        connection.send(&["ECHO", "late"]).unwrap();
        server.resume();
        assert_eq!(connection.read().unwrap().to_string(), "late");
        server.shutdown();
        assert!(!server.is_running(), "{edition:?}");
    }
}
