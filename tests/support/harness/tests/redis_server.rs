//! The Redis harness against a real `redis-server`.

use std::net::{Ipv4Addr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use idem_harness::{HANG_LIMIT, RedisServer, Reply, RespConn};

#[test]
fn a_started_server_answers() {
    let server = RedisServer::start();
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert!(server.log().contains("Ready to accept connections"));
}

#[test]
fn servers_do_not_share_anything() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    assert_ne!((one.port(), one.pid()), (two.port(), two.pid()));
    one.cli(&["SET", "key", "value"]);
    assert_eq!(two.reply(&["GET", "key"]), Reply::Nil);
}

#[test]
fn many_servers_start_at_once() {
    let starts: Vec<_> = (0..12).map(|_| thread::spawn(RedisServer::start)).collect();
    let servers: Vec<_> = starts
        .into_iter()
        .map(|start| start.join().unwrap())
        .collect();
    // They were started by threads that have ended, and live on.
    assert!(servers.iter().all(|server| server.cli(&["PING"]) == "PONG"));
}

#[test]
fn replies_of_every_kind_are_read() {
    let server = RedisServer::start();
    let bytes = b"\x00\xff\r\n".as_slice();
    assert_eq!(
        server.reply(&[b"SET".as_slice(), b"key", bytes]),
        Reply::Simple("OK".to_owned())
    );
    assert_eq!(server.reply(&["GET", "key"]), Reply::Bulk(bytes.to_vec()));
    assert_eq!(server.reply(&["INCR", "number"]), Reply::Int(1));
    assert_eq!(server.reply(&["BLPOP", "list", "0.001"]), Reply::Nil);
    assert!(
        server
            .reply(&["NOSUCH"])
            .as_error()
            .unwrap()
            .starts_with("ERR unknown command")
    );
    assert_eq!(
        server.reply(&["MGET", "number", "none"]),
        Reply::Array(vec![Reply::Bulk(b"1".to_vec()), Reply::Nil])
    );
    assert_eq!(server.cli(&["MGET", "number", "none"]), "1\n(nil)");
}

#[test]
fn a_refused_command_is_not_taken_for_an_answer() {
    let server = RedisServer::start();
    server.cli(&["SET", "key", "value"]);
    let refused = catch_unwind(AssertUnwindSafe(|| server.cli(&["INCR", "key"])));
    let message = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.starts_with("`INCR key` is refused: ERR value is not an integer"),
        "{message}"
    );
}

#[test]
fn a_killed_server_comes_back_empty_on_its_port() {
    let server = RedisServer::start();
    let (port, pid) = (server.port(), server.pid());
    server.cli(&["SET", "key", "value"]);
    server.kill();
    assert!(!server.is_running());
    assert!(RespConn::open(server.addr()).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.cli(&["EXISTS", "key"]), "0");
}

#[test]
fn a_server_with_open_connections_comes_back_on_its_port() {
    let server = RedisServer::start();
    let mut connections: Vec<_> = (0..50).map(|_| server.connect()).collect();
    server.kill();
    server.restart();
    assert!(
        connections
            .iter_mut()
            .all(|connection| connection.command(&["PING"]).is_err())
    );
    assert_eq!(server.cli(&["PING"]), "PONG");
}

#[test]
fn an_append_only_server_keeps_its_data_over_a_kill() {
    let server = RedisServer::builder().append_only_always().start();
    server.cli(&["SET", "key", "value"]);
    server.kill();
    server.restart();
    assert_eq!(server.cli(&["GET", "key"]), "value");
}

#[test]
fn an_append_only_server_keeps_its_data_over_an_orderly_restart() {
    let server = RedisServer::builder().append_only_every_second().start();
    server.cli(&["SET", "key", "value"]);
    server.shutdown();
    assert!(!server.is_running());
    server.restart();
    assert_eq!(server.cli(&["GET", "key"]), "value");
    server.restart();
    assert_eq!(server.cli(&["GET", "key"]), "value");
}

#[test]
fn a_paused_server_answers_when_it_is_resumed() {
    let server = RedisServer::start();
    let mut connection = server.connect();
    connection
        .set_read_timeout(Duration::from_millis(50))
        .unwrap();
    server.pause();
    server.pause();
    assert!(server.is_running());
    connection.send(&["ECHO", "late"]).unwrap();
    assert!(connection.read().is_err());
    connection.set_read_timeout(HANG_LIMIT).unwrap();
    server.resume();
    assert_eq!(connection.read().unwrap().to_string(), "late");
}

#[test]
fn a_paused_server_can_be_killed_shut_down_and_dropped() {
    let server = RedisServer::start();
    server.pause();
    server.kill();
    server.restart();
    server.pause();
    server.shutdown();
    server.restart();
    server.pause();
}

#[test]
fn settings_reach_the_server() {
    let server = RedisServer::builder()
        .arg("--maxmemory", "3mb")
        .args(["--client-output-buffer-limit", "pubsub", "1mb", "1mb", "60"])
        .start();
    assert_eq!(
        server.cli(&["CONFIG", "GET", "maxmemory"]),
        "maxmemory\n3145728"
    );
    server.restart();
    assert_eq!(
        server.cli(&["CONFIG", "GET", "maxmemory"]),
        "maxmemory\n3145728"
    );
    assert_eq!(server.cli(&["CONFIG", "GET", "bind"]), "bind\n127.0.0.1");
}

#[test]
fn a_password_is_required_and_is_in_the_url() {
    let server = RedisServer::builder().password("p@ss/word").start();
    let mut connection = RespConn::open(server.addr()).unwrap();
    let refused = connection.command(&["PING"]).unwrap();
    assert!(refused.as_error().unwrap().starts_with("NOAUTH"));
    assert_eq!(
        connection
            .command(&["AUTH", "p@ss/word"])
            .unwrap()
            .to_string(),
        "OK"
    );
    assert_eq!(
        server.url(),
        format!("redis://:p%40ss%2Fword@127.0.0.1:{}", server.port())
    );
    assert_eq!(server.cli(&["PING"]), "PONG");
}

#[test]
fn a_user_has_the_rights_of_its_rules_and_the_harness_all() {
    let server = RedisServer::builder()
        .acl_user("app", "on >secret ~app:* +get")
        .acl_user("default", "off")
        .start();
    let mut app = RespConn::open(server.addr()).unwrap();
    assert!(
        app.command(&["GET", "app:1"])
            .unwrap()
            .as_error()
            .unwrap()
            .starts_with("NOAUTH")
    );
    app.command(&["AUTH", "app", "secret"]).unwrap();
    assert_eq!(app.command(&["GET", "app:1"]).unwrap(), Reply::Nil);
    for refused in [["GET", "other"], ["DEL", "app:1"]] {
        assert!(
            app.command(&refused)
                .unwrap()
                .as_error()
                .unwrap()
                .starts_with("NOPERM")
        );
    }
    assert_eq!(server.cli(&["SET", "other", "1"]), "OK");
    assert_eq!(
        server.url_as("app", "secret"),
        format!("redis://app:secret@127.0.0.1:{}", server.port())
    );
}

#[test]
fn a_unix_socket_is_there_when_asked_for() {
    let server = RedisServer::builder().unix_socket().start();
    let url = server.unix_url();
    let path = url.strip_prefix("redis+unix://").unwrap();
    assert!(std::os::unix::net::UnixStream::connect(path).is_ok());
}

#[test]
fn time_moves_for_keys_under_a_prefix() {
    let server = RedisServer::start();
    server.cli(&["SET", "a[*]:short", "1", "PX", "30000"]);
    server.cli(&["SET", "a[*]:long", "1", "PX", "90000"]);
    server.cli(&["SET", "a[*]:forever", "1"]);
    server.cli(&["SET", "ax:short", "1", "PX", "30000"]);
    assert_eq!(server.advance(Duration::from_secs(40), "a[*]:"), 2);
    assert_eq!(server.cli(&["EXISTS", "a[*]:short"]), "0");
    assert_eq!(
        server.cli(&["EXISTS", "a[*]:long", "a[*]:forever", "ax:short"]),
        "3"
    );
    let left: u64 = server.cli(&["PTTL", "a[*]:long"]).parse().unwrap();
    assert!((30_001..=50_000).contains(&left), "{left}");
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
fn a_monitor_sees_every_command_up_to_now() {
    let server = RedisServer::start();
    let mut monitor = server.monitor();
    server.cli(&["set", "key", "a \"b\""]);
    server.cli(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "key"]);
    let commands = monitor.commands();
    let seen: Vec<_> = commands.iter().map(ToString::to_string).collect();
    let script = "EVAL return redis.call('GET', KEYS[1]) 1 key";
    assert_eq!(seen, ["SET key a \"b\"", script, "GET key"]);
    assert!(commands[2].is_from_script() && !commands[1].is_from_script());
    assert_eq!(monitor.names(), [""; 0]);
    server.cli(&["PING"]);
    assert_eq!(monitor.names(), ["PING"]);
}

#[test]
fn a_missing_binary_names_the_package() {
    let error = RedisServer::builder()
        .binary("/nowhere/redis-server")
        .try_start()
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("no program `/nowhere/redis-server`"),
        "{message}"
    );
    assert!(
        message.contains("apt-get install redis-server"),
        "{message}"
    );
    assert!(message.contains("IDEM_REDIS_SERVER"), "{message}");
}

#[test]
fn a_setting_that_does_not_exist_fails_with_the_words_of_the_server() {
    let error = RedisServer::builder()
        .arg("--no-such-setting", "1")
        .try_start()
        .unwrap_err();
    let message = error.to_string();
    assert!(message.contains("no-such-setting"), "{message}");
}

#[test]
fn a_dropped_server_leaves_nothing_behind() {
    let server = RedisServer::start();
    let (dir, addr) = (server.dir().to_owned(), server.addr());
    assert!(dir.exists());
    drop(server);
    assert!(!dir.exists());
    assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, addr.port())).is_ok());
}

#[test]
fn a_failed_test_keeps_the_files_of_its_server() {
    let (dir, addr) = thread::spawn(|| {
        let server = RedisServer::start();
        let seen = (server.dir().to_owned(), server.addr());
        let failed = thread::spawn(move || {
            let _server = server;
            panic!("on purpose");
        });
        assert!(failed.join().is_err());
        seen
    })
    .join()
    .unwrap();
    assert!(dir.join("redis.log").exists());
    assert!(RespConn::open(addr).is_err());
    std::fs::remove_dir_all(dir).unwrap();
}
