//! The harness of databases against real servers: every test with both.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod database;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;
use std::{fs, thread};

use database::{Client, Server, on_both};
use idem_harness::HANG_LIMIT;

on_both! {
    a_started_server_answers
    servers_do_not_share_anything
    many_servers_start_at_once
    committed_answers_survive_a_kill
    answers_committed_to_a_durable_server_survive_a_kill
    a_stopped_server_comes_back_with_its_data
    a_server_with_open_connections_comes_back_on_its_port
    a_paused_server_answers_when_it_is_resumed
    a_paused_server_can_be_killed_stopped_and_dropped
    settings_reach_the_server
    a_setting_that_does_not_exist_fails_with_the_words_of_the_server
    a_password_is_required_and_is_in_the_url
    databases_of_any_name_can_be_made
    sql_that_is_refused_is_not_taken_for_an_answer
    a_dropped_server_leaves_nothing_behind
    a_failed_test_keeps_the_files_of_its_server
}

fn a_started_server_answers<S: Server>() {
    let server = S::builder().start();
    assert!(server.is_running());
    assert_eq!(server.execute("SELECT 1; SELECT 'two';"), "1\ntwo");
    let start = format!("{}://idem@127.0.0.1:{}/", S::SCHEME, server.port());
    assert_eq!(server.url(), format!("{start}idem"));
    assert_eq!(server.url_of("other"), format!("{start}other"));
    assert!(server.log().contains(S::READY), "{}", server.log());
    assert_eq!(
        Client::<S>::new(&server.url()).ask("SELECT 'it is up'"),
        "it is up"
    );
}

fn servers_do_not_share_anything<S: Server>() {
    let (one, two) = (S::builder().start(), S::builder().start());
    assert_ne!((one.port(), one.pid()), (two.port(), two.pid()));
    one.execute("CREATE TABLE t (n INT)");
    assert!(two.try_execute("SELECT * FROM t").is_err());
    drop(one);
    assert_eq!(two.execute("SELECT 1"), "1");
}

fn many_servers_start_at_once<S: Server>() {
    let starts: Vec<_> = (0..4)
        .map(|_| thread::spawn(|| S::builder().start()))
        .collect();
    let servers: Vec<_> = starts
        .into_iter()
        .map(|start| start.join().unwrap())
        .collect();
    // They were started by threads that have ended, and live on.
    assert!(
        servers
            .iter()
            .all(|server| server.execute("SELECT 1") == "1")
    );
}

fn committed_answers_survive_a_kill<S: Server>() {
    outlives_a_kill(&S::builder().start());
}

fn answers_committed_to_a_durable_server_survive_a_kill<S: Server>() {
    let server = S::builder().durable().start();
    assert_eq!(server.execute(S::IS_DURABLE), S::DURABLE);
    outlives_a_kill(&server);
    assert_eq!(server.execute(S::IS_DURABLE), S::DURABLE);
    assert_ne!(S::builder().start().execute(S::IS_DURABLE), S::DURABLE);
}

fn outlives_a_kill<S: Server>(server: &S) {
    let (port, pid) = (server.port(), server.pid());
    server.execute("CREATE TABLE t (n INT)");
    let client = Client::<S>::new(&server.url());
    client.ask("INSERT INTO t VALUES (7)");
    server.kill();
    assert!(!server.is_running());
    assert!(TcpStream::connect(server.addr()).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.execute("SELECT n FROM t"), "7");
}

fn a_stopped_server_comes_back_with_its_data<S: Server>() {
    let server = S::builder().start();
    server.execute("CREATE TABLE t (n INT)");
    server.stop();
    assert!(!server.is_running());
    assert!(TcpStream::connect(server.addr()).is_err());
    server.restart();
    server.execute("INSERT INTO t VALUES (7)");
    server.restart();
    assert_eq!(server.execute("SELECT n FROM t"), "7");
    assert!(!server.log().contains(S::RECOVERS), "{}", server.log());
}

fn a_server_with_open_connections_comes_back_on_its_port<S: Server>() {
    let server = S::builder().start();
    for end in [|server: &S| server.kill(), |server: &S| server.stop()] {
        let clients: Vec<_> = (0..5).map(|_| Client::<S>::new(&server.url())).collect();
        for client in &clients {
            assert_eq!(client.ask("SELECT 'one'"), "one");
        }
        end(&server);
        server.restart();
        assert!(
            clients
                .iter()
                .all(|client| client.try_ask("SELECT 'one'").is_err())
        );
        assert_eq!(server.execute("SELECT 1"), "1");
    }
}

fn a_paused_server_answers_when_it_is_resumed<S: Server>() {
    let server = S::builder().start();
    let client = Client::<S>::new(&server.url());
    server.pause();
    server.pause();
    assert!(server.is_running());
    client.ask_late("SELECT 'late'", Duration::from_millis(50), || {
        let hasty = Client::<S>::try_new(&server.url(), Duration::from_millis(50));
        assert!(hasty.is_err(), "a paused server lets nobody in");
        server.resume();
    });
    assert_eq!(server.execute("SELECT 1"), "1");
}

fn a_paused_server_can_be_killed_stopped_and_dropped<S: Server>() {
    let server = S::builder().start();
    let _client = Client::<S>::new(&server.url());
    server.pause();
    server.kill();
    server.restart();
    let _client = Client::<S>::new(&server.url());
    server.pause();
    server.stop();
    server.restart();
    server.pause();
}

fn settings_reach_the_server<S: Server>() {
    let server = S::builder().setting("max_connections", "17").start();
    assert_eq!(server.execute(S::MAX_CONNECTIONS), "17");
    server.restart();
    assert_eq!(server.execute(S::MAX_CONNECTIONS), "17");
    assert_eq!(S::builder().start().execute(S::MAX_CONNECTIONS), "300");
}

fn a_setting_that_does_not_exist_fails_with_the_words_of_the_server<S: Server>() {
    let started = S::builder().setting("no_such_setting", "1").try_start();
    let message = started.err().unwrap().to_string();
    assert!(message.contains("no_such_setting"), "{message}");
    assert!(message.contains("its log ends"), "{message}");
}

fn a_password_is_required_and_is_in_the_url<S: Server>() {
    let server = S::builder().start();
    let url = server.password_url();
    assert_eq!(
        url,
        format!("{}://app:pass%40word@{}/idem", S::SCHEME, server.addr())
    );
    let client = Client::<S>::new(&url);
    client.ask("CREATE TABLE t (n INT)");
    for wrong in [url.replace("%40", ""), url.replace(":pass%40word", "")] {
        let refused = Client::<S>::try_new(&wrong, HANG_LIMIT).err();
        let refused = refused.expect("a wrong password is refused").to_string();
        assert!(refused.contains("app"), "{refused}");
    }
    // The owner of one database, not of the server.
    assert!(client.try_ask("CREATE DATABASE other").is_err());
}

fn databases_of_any_name_can_be_made<S: Server>() {
    let server = S::builder().start();
    let url = server.create_database("other");
    assert_eq!(url, server.url_of("other"));
    assert_eq!(Client::<S>::new(&url).ask(S::DATABASE), "other");
    let name = "a`b\"c d";
    let _ = server.create_database(name);
    assert_eq!(server.execute_in(name, S::DATABASE), name);
    assert_eq!(server.execute(S::DATABASE), "idem");
}

fn sql_that_is_refused_is_not_taken_for_an_answer<S: Server>() {
    let server = S::builder().start();
    let error = server.try_execute("SELECT * FROM nowhere").unwrap_err();
    assert!(error.contains("nowhere"), "{error}");
    server.kill();
    let error = server.try_execute("SELECT 1").unwrap_err();
    assert!(
        error.contains(&server.port().to_string()) || error.contains("connect"),
        "{error}"
    );
}

fn a_dropped_server_leaves_nothing_behind<S: Server>() {
    let server = S::builder().start();
    let (dir, addr) = (server.dir().to_owned(), server.addr());
    let _client = Client::<S>::new(&server.url());
    assert!(dir.exists());
    drop(server);
    assert!(!dir.exists());
    assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, addr.port())).is_ok());
}

fn a_failed_test_keeps_the_files_of_its_server<S: Server>() {
    let server = S::builder().start();
    let (dir, addr) = (server.dir().to_owned(), server.addr());
    let failed = thread::spawn(move || {
        let _server = server;
        panic!("on purpose");
    });
    assert!(failed.join().is_err());
    let log = fs::read_to_string(dir.join("server.log")).unwrap();
    assert!(log.contains(S::READY), "{log}");
    assert!(TcpStream::connect(addr).is_err());
    fs::remove_dir_all(dir).unwrap();
}
