//! Number of statements that a call sends to the database.

use crate::prelude::*;

/// Statements on the table caused by `work`, as the server logged them.
async fn caused<B: Server>(
    seen: impl Fn() -> Vec<String>,
    work: impl AsyncFnOnce(),
) -> Vec<String> {
    let before = seen().len();
    work().await;
    seen().split_off(before)
}

/// `young`: number of statements for the replay of a young answer.
async fn a_call_asks_twice_and_a_replay_once<B: Server>(
    url: &str,
    young: usize,
    seen: impl Fn() -> Vec<String>,
) {
    let store = open::<B>(url).await;
    let fixture = Fixture::on(&store);
    fixture.pay("warm").await.unwrap();
    fixture.pay("warm").await.unwrap();
    for number in 0..3 {
        let key = number.to_string();
        let first = caused::<B>(&seen, async || drop(fixture.pay(&key).await.unwrap())).await;
        assert_eq!(first.len(), 2, "{first:#?}");
        assert!(first[0].contains("INSERT"), "{first:#?}");
        assert!(first[1].contains("UPDATE"), "{first:#?}");
        // MySQL shows a committed answer before it is in its log, so the replay of a young answer writes afterwards.
        let replay = caused::<B>(&seen, async || drop(fixture.pay(&key).await.unwrap())).await;
        assert_eq!(replay.len(), young, "{replay:#?}");
        let writes = replay.last().is_some_and(|last| last.contains("UPDATE"));
        assert_eq!(writes, young > 1, "{replay:#?}");
        store.age(Duration::from_secs(3)).await.unwrap();
        let replay = caused::<B>(&seen, async || drop(fixture.pay(&key).await.unwrap())).await;
        assert_eq!(replay.len(), 1, "{replay:#?}");
    }
    assert_eq!(fixture.all_effects(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_asked_twice_and_once() {
    let server = Postgres::serve(&[("log_statement", "all")]);
    let seen = || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("LOG:  "));
        let lines =
            lines.filter(|line| line.contains(" execute ") || line.contains(" statement: "));
        lines.map(str::to_owned).collect()
    };
    a_call_asks_twice_and_a_replay_once::<Postgres>(&server.url(), 1, seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_is_asked_twice_and_once() {
    let server = MySql::serve(&[("general-log", "1"), ("log-output", "TABLE")]);
    let seen = || {
        let log = server.execute(
            "SELECT concat(thread_id, ' ', command_type, ' ', argument) FROM mysql.general_log \
             WHERE argument LIKE '%idem_records%' AND argument NOT LIKE '%general_log%' \
             AND command_type IN ('Query', 'Execute')",
        );
        log.lines().map(str::to_owned).collect()
    };
    a_call_asks_twice_and_a_replay_once::<MySql>(&server.url(), 2, seen).await;
}
