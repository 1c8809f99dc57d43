//! Commands of a call and their number, as counted by the server.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

use std::time::Duration;

use idem_harness::{Command, Edition, Monitor, RedisServer};
use idem_runtime::{Answer, AnswerSource, Engine, Error, ErrorKind, step};
use idem_tests::shop::{Failure, MARKERS, Shop, connect, happened, patient, persistent};

/// A server with a warm script cache, and a shop on it whose commands are monitored.
async fn watched() -> (RedisServer, Shop, Monitor) {
    let (server, shop) = Shop::alone().await;
    shop.pay("warm").await.unwrap();
    shop.pay_by("warmer", async |_| Err(Failure::Down))
        .await
        .unwrap_err();
    let monitor = server.monitor();
    (server, shop, monitor)
}

/// A claim of a new key, and a completed answer: no script.
const PLAIN: &str = "SET";
const SCRIPT: &str = "EVALSHA";

#[tokio::test]
async fn a_first_call_is_two_commands() {
    let (_server, shop, mut monitor) = watched().await;
    shop.pay("a").await.unwrap();
    assert_eq!(monitor.names(), [PLAIN, SCRIPT]);
}

#[tokio::test]
async fn a_replay_is_one_command() {
    let (_server, shop, mut monitor) = watched().await;
    let first = shop.pay("a").await;
    monitor.names();
    assert_eq!(shop.pay("a").await, first);
    assert_eq!(monitor.names(), [PLAIN]);
}

#[tokio::test]
async fn a_replay_of_a_large_answer_is_one_command() {
    let (_server, shop, mut monitor) = watched().await;
    let memo = "m".repeat(20_000);
    let pay = || shop.pay_with_memo("a", 1, memo.clone(), async |_| Ok(()));
    let first = pay().await;
    monitor.names();
    assert_eq!(pay().await, first);
    assert_eq!(monitor.names(), [PLAIN]);
}

#[tokio::test]
async fn a_replay_with_its_age_is_one_command_or_two_for_a_large_answer() {
    let (server, _shop, mut monitor) = watched().await;
    let engine = Engine::new(connect(server.url()).await.unwrap());
    monitor.names();
    for (key, bytes, replay) in [
        ("small", 10, &[SCRIPT][..]),
        ("large", 20_000, &[SCRIPT, "GETRANGE"]),
    ] {
        let call = || {
            let call = engine.operation("shop.told").key(&key);
            call.run(async |_| Ok::<_, Error>(Answer::from("m".repeat(bytes))))
        };
        assert_eq!(call().await.unwrap().how(), AnswerSource::Executed);
        monitor.names();
        assert_eq!(call().await.unwrap().how(), AnswerSource::Replayed);
        assert_eq!(monitor.names(), replay);
    }
}

#[tokio::test]
async fn a_mismatch_is_one_command() {
    let (_server, shop, mut monitor) = watched().await;
    shop.pay("a").await.unwrap();
    monitor.names();
    let error = shop.pay_for("a", 2, async |_| Ok(())).await.unwrap_err();
    assert_eq!(error.refused().kind(), &ErrorKind::Mismatch);
    assert_eq!(monitor.names(), [PLAIN]);
}

#[tokio::test]
async fn a_business_error_is_two_commands_and_then_one() {
    let (_server, shop, mut monitor) = watched().await;
    let pay = || shop.pay_by("a", async |_| Err(Failure::Declined));
    assert_eq!(pay().await, Err(Failure::Declined));
    assert_eq!(monitor.names(), [PLAIN, SCRIPT]);
    let runs = shop.runs();
    assert_eq!(pay().await, Err(Failure::Declined));
    assert_eq!(monitor.names(), [PLAIN]);
    assert_eq!(shop.runs(), runs);
}

#[tokio::test]
async fn a_system_error_is_two_commands_and_three_when_the_key_was_given_back() {
    let (_server, shop, mut monitor) = watched().await;
    for commands in [&[PLAIN, SCRIPT][..], &[PLAIN, SCRIPT, SCRIPT]] {
        let answer = shop.pay_by("a", async |_| Err(Failure::Down)).await;
        assert_eq!(answer, Err(Failure::Down));
        assert_eq!(monitor.names(), commands);
    }
}

/// The short path of the script, which the recorded end of the attempt does not leave: the general one publishes.
#[tokio::test]
async fn the_release_of_a_first_attempt_publishes_nothing() {
    let (_server, shop, mut monitor) = watched().await;
    let answer = shop.pay_by("a", async |_| Err(Failure::Down)).await;
    assert_eq!(answer, Err(Failure::Down));
    let commands = monitor.commands();
    let of_scripts = commands.iter().filter(|command| command.is_from_script());
    let names: Vec<_> = of_scripts.map(|command| &*command.name).collect();
    assert_eq!(names, ["GETRANGE", "PTTL", "SET"]);
}

#[tokio::test]
async fn a_refused_duplicate_of_a_running_call_is_two_commands() {
    let (_server, shop, mut monitor) = watched().await;
    let first = shop.pay_by("a", async |_| {
        assert_eq!(monitor.names(), [PLAIN]);
        let error = shop.pay("a").await.unwrap_err().refused();
        assert!(matches!(error.kind(), ErrorKind::Running { .. }), "{error}");
        assert_eq!(monitor.names(), [PLAIN, SCRIPT]);
        Ok(())
    });
    first.await.unwrap();
}

#[tokio::test]
async fn a_step_is_one_command_and_its_replay_none() {
    // The newest server completes by compare-and-set, which a record with steps does not try.
    let newest = RedisServer::builder().version(Edition::Redis8).start();
    for server in [RedisServer::start(), newest] {
        let engine = Engine::new(connect(server.url()).await.unwrap());
        let monitor = tokio::sync::Mutex::new(server.monitor());
        let sent = async || monitor.lock().await.names();
        for key in ["warm", "a"] {
            let attempt = async |sends: [&[&str]; 4], ends: Result<String, Failure>| {
                let call = engine.operation("shop.place").key(key).run(async |_| {
                    let claimed = sent().await;
                    step("charge", async |_| Ok::<_, Failure>(1)).await?;
                    let stepped = sent().await;
                    step("mail", async |_| Ok::<_, Failure>(())).once().await?;
                    let once = sent().await;
                    if key == "a" {
                        assert_eq!([&claimed[..], &stepped, &once], sends[..3]);
                    }
                    ends.clone()
                });
                assert_eq!(call.await, ends);
                let ended = sent().await;
                if key == "a" {
                    assert_eq!(ended, sends[3]);
                }
            };
            sent().await;
            let [one, two] = [&[SCRIPT][..], &[SCRIPT, SCRIPT]];
            let end = one;
            attempt([&[PLAIN], one, two, end], Err(Failure::Down)).await;
            // An answer of any length, which would otherwise be staged.
            let answer = Ok("m".repeat(20_000));
            attempt([&[PLAIN, SCRIPT], &[], &[], end], answer).await;
        }
    }
}

#[tokio::test]
async fn a_script_that_the_server_does_not_know_costs_one_more_command() {
    let (server, shop, mut monitor) = watched().await;
    shop.pay("a").await.unwrap();
    server.cli(&["SCRIPT", "FLUSH"]);
    monitor.names();
    shop.pay("a").await.unwrap();
    assert_eq!(monitor.names(), [PLAIN]);
    shop.pay("b").await.unwrap();
    assert_eq!(monitor.names(), [PLAIN, SCRIPT, "EVAL"]);
    shop.pay("c").await.unwrap();
    assert_eq!(monitor.names(), [PLAIN, SCRIPT]);
    // None of it is `SCRIPT LOAD`, which a restricted user may not call.
}

#[tokio::test]
async fn before_redis_7_nothing_but_scripts_is_sent() {
    let server = RedisServer::builder().version(Edition::Redis62).start();
    let shop = Shop::open_with(&server.url(), patient, persistent).await;
    let mut monitor = server.monitor();
    everything(&shop).await;
    let large = shop.pay_with_memo("large", 1, "m".repeat(20_000), async |_| Ok(()));
    large.await.unwrap();
    let sent = monitor.commands();
    let mut sent = sent.iter().filter(|command| !command.is_from_script());
    assert!(sent.all(|command| matches!(&*command.name, "EVALSHA" | "EVAL")));
}

#[tokio::test]
async fn connecting_probes_the_server() {
    let server = RedisServer::start();
    let mut monitor = server.monitor();
    let _store = connect(server.url()).await.unwrap();
    let commands = monitor.commands();
    let (from_script, asked): (Vec<_>, Vec<_>) = commands
        .iter()
        .partition(|command| command.is_from_script());
    let asked: Vec<_> = asked.iter().map(|command| &*command.name).collect();
    // The server hides `CONFIG GET`, which the store sends after these commands.
    assert_eq!(asked, ["HELLO", "INFO", "EVAL"]);
    // The script checks the permissions, and tries one write.
    let tried: Vec<_> = from_script.iter().map(|command| &*command.name).collect();
    assert_eq!(tried, ["SET"]);
}

#[tokio::test]
async fn a_renewal_is_one_command_on_a_connection_of_its_own() {
    let server = RedisServer::start();
    let lease = Duration::from_secs(3);
    let settings = |engine| persistent(engine).lease(lease);
    let shop = Shop::open_with(&server.url(), patient, settings).await;
    shop.pay("warm").await.unwrap();
    let mut monitor = server.monitor();
    let mut seen = Vec::new();
    let long = shop.pay_by("a", async |_| {
        // The first renewal connects, and loads its script.
        happened(&shop.events, "renewed", 1).await;
        seen = monitor.commands();
        happened(&shop.events, "renewed", 2).await;
        let second = monitor.commands();
        let sent = second.iter().filter(|command| !command.is_from_script());
        let names: Vec<_> = sent.clone().map(|command| &*command.name).collect();
        // More than one if this test was delayed.
        assert!(!names.is_empty() && names.iter().all(|name| *name == "EVALSHA"));
        assert!(sent.count() < shop.events.count("renewed"));
        let touched = second.iter().filter(|command| command.name == "PEXPIRE");
        assert!(touched.count() >= 1);
        seen.extend(second);
        Ok(())
    });
    long.await.unwrap();
    let renewing = |command: &Command| command.args.iter().any(|arg| arg.starts_with("2P"));
    let mut clients: Vec<_> = seen
        .iter()
        .filter(|command| !command.is_from_script() && renewing(command))
        .map(|command| &*command.client)
        .collect();
    let claimed = clients.remove(0);
    assert!(clients.len() >= 2);
    clients.dedup();
    assert_eq!(clients.len(), 1, "renewals share a connection");
    assert_ne!(clients, [claimed], "and it is not that of the claims");
}

/// Every kind of call, one after the other.
async fn everything(shop: &Shop) {
    for _ in 0..2 {
        shop.pay("a").await.unwrap();
        let declined = shop.pay_by("b", async |_| Err(Failure::Declined)).await;
        assert_eq!(declined, Err(Failure::Declined));
        let down = shop.pay_by("c", async |_| Err(Failure::Down)).await;
        assert_eq!(down, Err(Failure::Down));
        shop.pay_for("a", 2, async |_| Ok(())).await.unwrap_err();
    }
    shop.pay("c").await.unwrap();
}

#[tokio::test]
async fn a_record_has_its_life_from_its_first_write_on() {
    let (_server, shop, mut monitor) = watched().await;
    everything(&shop).await;
    let commands = monitor.commands();
    let writes: Vec<_> = commands
        .iter()
        .filter(|command| command.name == "SET")
        .collect();
    assert!(
        writes.len() >= 10,
        "five claims and their ends: {}",
        writes.len()
    );
    for write in writes {
        let options: Vec<_> = write.args[2..].iter().map(String::as_str).collect();
        match options[..] {
            // A released key leaves a record only for the lease of a minute.
            ["PX", life] if matches!(&write.args[1][..2], "2R" | "4R") => assert_eq!(life, "60000"),
            // A plain claim, granted or not; a completion; a claim by script.
            ["NX", "GET", "PX", life] | ["PX", life] | ["PX", life, "NX"] => {
                assert_eq!(life, "86400000");
            }
            _ => panic!("a record without a life: {options:?}"),
        }
    }
    let later = commands
        .iter()
        .find(|command| command.name.contains("EXPIRE"));
    assert_eq!(later, None, "only a renewal changes a life");
}

/// The only key of a command.
fn record_of(command: &Command) -> &str {
    if command.name == PLAIN {
        return &command.args[0];
    }
    assert_eq!((&*command.name, &*command.args[1]), (SCRIPT, "1"));
    &command.args[2]
}

#[tokio::test]
async fn a_command_touches_one_record_whose_name_has_no_text_of_a_user() {
    let (_server, shop, mut monitor) = watched().await;
    everything(&shop).await;
    let commands = monitor.commands();
    let start = format!("{}:shop.pay:", shop.prefix());
    for command in commands.iter().filter(|command| !command.is_from_script()) {
        let name = record_of(command);
        assert!(name.starts_with(&start), "{name}");
        let digest = &name[start.len()..];
        assert_eq!(digest.len(), 43, "{digest}");
        for marker in MARKERS {
            assert!(!name.contains(marker));
        }
    }
    // A script reads and writes only the record of its key argument.
    let mut given = "";
    for command in &commands {
        match (command.is_from_script(), &*command.name) {
            (false, _) => given = record_of(command),
            (true, "TIME") => {}
            (true, _) => assert_eq!(command.args[0], given),
        }
    }
}
