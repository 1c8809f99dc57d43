//! Commands of a call and their number, as counted by the server.

use std::time::Duration;

use idem_harness::{Command, Edition, Monitor, RedisServer};
use idem_runtime::{Engine, step};
use idem_tests::shop::{Failure, MARKERS, Shop, connect, happened, patient, persistent, until};

/// A server with known scripts, and a shop with monitored commands.
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

/// The commands of each kind of call, in sending order.
#[tokio::test]
async fn a_first_call_is_two_commands() {
    let (server, shop, mut monitor) = watched().await;
    let [one, two] = [&[PLAIN][..], &[PLAIN, SCRIPT]];
    let first = shop.pay("a").await;
    assert_eq!(monitor.names(), two, "a first call");
    assert_eq!(shop.pay("a").await, first);
    assert_eq!(monitor.names(), one, "a replay");
    shop.pay_for("a", 2, async |_| Ok(())).await.unwrap_err();
    assert_eq!(monitor.names(), one, "a mismatch");
    let large = || shop.pay_with_memo("large", 1, "m".repeat(20_000), async |_| Ok(()));
    let first = large().await;
    monitor.names();
    assert_eq!(large().await, first);
    assert_eq!(monitor.names(), one, "a replay of a large answer");
    for commands in [two, one] {
        let declined = shop.pay_by("b", async |_| Err(Failure::Declined)).await;
        assert_eq!(declined, Err(Failure::Declined));
        assert_eq!(monitor.names(), commands, "a business error");
    }
    for commands in [two, &[PLAIN, SCRIPT, SCRIPT]] {
        let down = shop.pay_by("c", async |_| Err(Failure::Down)).await;
        assert_eq!(down, Err(Failure::Down));
        let sent = monitor.commands();
        let (of_script, sent): (Vec<_>, Vec<_>) =
            sent.iter().partition(|command| command.is_from_script());
        let names: Vec<_> = sent.iter().map(|command| &*command.name).collect();
        assert_eq!(names, commands, "a system error");
        if commands == two {
            // The short path of the script, which publishes nothing.
            let names: Vec<_> = of_script.iter().map(|command| &*command.name).collect();
            assert_eq!(names, ["GETRANGE", "PTTL", "SET"]);
        }
    }
    let running = shop.pay_by("d", async |_| {
        assert_eq!(monitor.names(), one);
        shop.pay("d").await.unwrap_err();
        assert_eq!(
            monitor.names(),
            two,
            "a refused duplicate of a running call"
        );
        Ok(())
    });
    running.await.unwrap();
    server.cli(&["SCRIPT", "FLUSH"]);
    monitor.names();
    for (key, commands) in [("a", one), ("e", &[PLAIN, SCRIPT, "EVAL"]), ("f", two)] {
        // None of it is `SCRIPT LOAD`, which a restricted user may not call.
        shop.pay(key).await.unwrap();
        assert_eq!(
            monitor.names(),
            commands,
            "a script that the server does not know"
        );
    }
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

/// The start-up check reads, and writes one key, which expires.
#[tokio::test]
async fn connecting_probes_the_server() {
    let server = RedisServer::start();
    let mut monitor = server.monitor();
    let _store = connect(server.url()).await.unwrap();
    let commands = monitor.commands();
    let (written, sent): (Vec<_>, Vec<_>) = commands
        .iter()
        .partition(|command| command.is_from_script());
    let sent: Vec<_> = sent.iter().map(|command| &*command.name).collect();
    // The server hides `CONFIG GET`, which the store sends after these commands.
    assert_eq!(sent, ["HELLO", "INFO", "EVAL"]);
    let [write] = written.try_into().expect("one write");
    assert!(
        write.to_string().starts_with("SET idem:start-up-check-"),
        "{write}"
    );
    until("the key is gone", || server.cli(&["DBSIZE"]) == "0").await;
}

#[tokio::test]
async fn a_renewal_is_one_command_on_a_connection_of_its_own() {
    let server = RedisServer::start();
    let settings = |engine| persistent(engine).lease(Duration::from_secs(3));
    let shop = Shop::open_with(&server.url(), patient, settings).await;
    shop.pay("warm").await.unwrap();
    let mut monitor = server.monitor();
    let mut sent = Vec::new();
    let long = shop.pay_by("a", async |_| {
        // The first renewal connects, and loads its script.
        happened(&shop.events, "renewed", 1).await;
        sent = monitor.commands();
        happened(&shop.events, "renewed", 2).await;
        let second = monitor.commands();
        assert!(second.iter().any(|command| command.name == "PEXPIRE"));
        let mut of_client = second.iter().filter(|command| !command.is_from_script());
        assert!(of_client.all(|command| command.name == SCRIPT));
        sent.extend(second);
        Ok(())
    });
    long.await.unwrap();
    sent.retain(|sent| !sent.is_from_script() && sent.args.iter().any(|arg| arg.starts_with("2P")));
    let mut clients: Vec<_> = sent.iter().map(|command| &*command.client).collect();
    let claimed = clients.remove(0);
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
