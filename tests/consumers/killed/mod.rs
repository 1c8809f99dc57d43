//! Killed, stalled and replaced consumers, and a restarted broker: one effect of each id, no message lost, and a dead
//! letter of each message that always fails.

mod bank;
mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_harness::{PostgresServer, RedisServer};
use idem_runtime::store::sql::Postgres;
use idem_tests::bounds::bound;
use idem_tests::brokers::{Broker, ConsumerSettings, Nats, Rabbit, RedisStreams};
use idem_tests::seeded::Seeded;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::block_in_place;

use self::bank::{Bank, Books, Fate};
use self::fleet::{Fault, Fleet};
use idem_tests::sql::connect;

/// The time that a trial may take.
const PATIENCE: Duration = Duration::from_mins(15);

/// How long a fault waits for a body that it interrupts.
const HELD: Duration = Duration::from_secs(2);

/// The numbers of ids, and of killed, stalled and replaced consumers: 2,000 messages of 500 ids, and 20,000 of 5,000 in
/// a full run.
fn sizes<B: Broker>() -> (u64, [usize; 3]) {
    bound((500, B::FAULTS), (5_000, [40, 20, 10]))
}

/// The number of an id's messages, four in the middle. Half of the ids have one, whose loss no other message hides.
fn messages_of(id: u64) -> usize {
    [1, 1, 2, 12][usize::try_from(id % 4).expect("less than four")]
}

fn name(id: u64) -> String {
    format!("m-{id}")
}

/// Every 25th id always fails, every 7th one at first.
fn fate(name: &str) -> Fate {
    let id: u64 = name[2..].parse().expect("as it was sent");
    match (id % 25, id % 7) {
        (3, _) => Fate::Fails,
        (_, 2) => Fate::FailsOnce,
        _ => Fate::Charged,
    }
}

fn shuffled<T>(mut all: Vec<T>, seeded: &mut Seeded) -> Vec<T> {
    for last in (1..all.len()).rev() {
        let other = seeded.below(last as u64 + 1);
        all.swap(last, usize::try_from(other).expect("an index"));
    }
    all
}

/// The messages, in their order.
fn messages(ids: u64, seeded: &mut Seeded) -> Vec<String> {
    let all = (0..ids).flat_map(|id| std::iter::repeat_n(name(id), messages_of(id)));
    shuffled(all.collect(), seeded)
}

/// The faults, with the broker's in the middle.
fn faults<B: Broker>(counts: [usize; 3], seeded: &mut Seeded) -> Vec<Fault> {
    let kinds = [Fault::Kill, Fault::Stall, Fault::Leave].into_iter();
    let all = kinds
        .zip(counts)
        .flat_map(|(kind, count)| std::iter::repeat_n(kind, count));
    let mut all = shuffled(all.collect(), seeded);
    if B::RESTARTS {
        all.insert(all.len() / 2, Fault::RestartBroker);
    }
    all
}

/// Strikes the consumers until every message is settled, and checks the books.
async fn trial<B: Broker>(store: &str, tx: bool) {
    let (_, mut seeded) = Seeded::from_env();
    let ((ids, counts), began) = (sizes::<B>(), Instant::now());
    let faults = faults::<B>(counts, &mut seeded);
    // A fault after each share of the ids' first bodies.
    let share = ids / (faults.len() as u64 + 2);
    let bank = Bank::open(fate, share);
    let broker = Arc::new(B::start().await);
    let sent = messages(ids, &mut seeded);
    broker.send(&sent).await;
    let settings = ConsumerSettings {
        broker: B::NAME.to_owned(),
        url: broker.url(),
        store: store.to_owned(),
        bank: bank.addr(),
        name: 0,
        lease: Duration::from_secs(1),
        concurrency: 8,
        // A stalled consumer holds the record of its row, and until it goes on every other attempt fails.
        attempts: if tx { 8 } else { 5 },
        tx,
    };
    let (end, ended) = watch::channel(());
    let audit = tokio::spawn(audit(Arc::clone(&broker), bank.clone(), ended));
    let mut fleet = Fleet::start(&bank, &settings, B::SILENCE);
    for (fault, number) in faults.iter().zip(2..) {
        strike(*fault, &*broker, &mut fleet, &mut seeded, began).await;
        bank.proceed(share * number);
    }
    bank.proceed(u64::MAX);
    loop {
        let stalled = fleet.resume();
        let unsettled = broker.unsettled().await;
        if unsettled == 0 && !stalled {
            break;
        }
        let late = began.elapsed() > PATIENCE;
        assert!(!late, "{unsettled} messages are not settled");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fleet.end();
    assert_eq!(broker.unsettled().await, 0, "nothing is pending");
    drop(end);
    audit.await.expect("no message was settled early");

    let mut letters = Letters::new();
    for (id, reason) in broker.dead_letters().await {
        letters.entry(id).or_default().push(reason);
    }
    let books = bank.books();
    check::<B>(&settings, &books, letters);
}

/// Checks during the trial that every settled message had its effect.
async fn audit<B: Broker>(broker: Arc<B>, bank: Bank, mut ended: watch::Receiver<()>) {
    while let Some(settled) = broker.settled().await {
        // The effect of each settled message has happened by now.
        let early = {
            let books = bank.books();
            settled.into_iter().find(|id| match fate(id) {
                Fate::Fails => !books.bodies.contains_key(id),
                Fate::FailsOnce | Fate::Charged => !books.effects.contains_key(id),
            })
        };
        assert_eq!(
            early, None,
            "it is settled, and its effect has not happened"
        );
        let pause = tokio::time::timeout(Duration::from_millis(50), ended.changed());
        if pause.await.is_ok() {
            break;
        }
    }
}

async fn strike<B: Broker>(
    fault: Fault,
    broker: &B,
    fleet: &mut Fleet<'_>,
    seeded: &mut Seeded,
    began: Instant,
) {
    if fault == Fault::RestartBroker {
        fleet.wait_for_a_body();
        return block_in_place(|| {
            broker.kill();
            broker.revive();
        });
    }
    while !fleet.strike(fault, seeded) {
        assert!(began.elapsed() < PATIENCE, "the faults take too long");
        fleet.resume();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fleet.resume();
}

/// The reasons of the dead letters of each id.
type Letters = BTreeMap<String, Vec<String>>;

fn check<B: Broker>(settings: &ConsumerSettings, books: &Books, mut letters: Letters) {
    let (mut wrong, mut planned) = (Vec::new(), 0);
    let (ids, [kills, stalls, _]) = sizes::<B>();
    for id in 0..ids {
        let (name, fate) = (name(id), fate(&name(id)));
        let effects = books.effects.get(&name).map_or(0, BTreeSet::len);
        let bodies = books.bodies.get(&name).copied().unwrap_or_default();
        let letters = letters.remove(&name).unwrap_or_default();
        let attempts = u32::from(settings.attempts);
        let (expected, dead, least) = match fate {
            Fate::Fails => (0, messages_of(id), attempts),
            Fate::FailsOnce => (1, 0, 2),
            Fate::Charged => (1, 0, 1),
        };
        planned += least;
        if effects != expected {
            wrong.push(format!("{name}, {fate:?}: {effects} effects"));
        }
        let too_many = letters.len() > dead && (B::ONE_LETTER || dead == 0);
        let other = letters.iter().any(|reason| reason != "exhausted");
        if letters.len() < dead || too_many || other {
            wrong.push(format!(
                "{name}, {fate:?}: {dead} dead letters, not {letters:?}; {bodies} bodies"
            ));
        }
        if bodies > attempts {
            wrong.push(format!("{name}, {fate:?}: {bodies} bodies"));
        }
    }
    assert!(letters.is_empty(), "they were not sent: {letters:?}");
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
    // A fault interrupts at most the bodies of one consumer; the factor is for stalls of the machine.
    let interrupted = (kills + stalls) * settings.concurrency * 2;
    let (bodies, most) = (books.total(), u64::from(planned) + interrupted as u64);
    assert!(
        bodies <= most,
        "{bodies} bodies; {planned} were planned, and the faults interrupted at most {interrupted}"
    );
}

async fn on_redis<B: Broker>() {
    let store = RedisServer::builder().append_only_every_second().start();
    trial::<B>(&store.url(), false).await;
}

/// The row and the record of an id are committed together. No constraint keeps a second row out.
async fn in_a_transaction<B: Broker>() {
    let store = PostgresServer::builder().durable().start();
    let records = connect::<Postgres>(&store.url()).await;
    records.migrate().await.unwrap();
    let pool = PgPool::connect(&store.url()).await.unwrap();
    let create = sqlx::query("CREATE TABLE bills (id TEXT)");
    create.execute(&pool).await.unwrap();
    trial::<B>(&store.url(), true).await;
    let rows = sqlx::query_as("SELECT id, count(*) FROM bills GROUP BY id");
    let rows: BTreeMap<String, i64> = rows.fetch_all(&pool).await.unwrap().into_iter().collect();
    let expected = (0..sizes::<B>().0)
        .filter(|id| fate(&name(*id)) != Fate::Fails)
        .map(|id| (name(id), 1))
        .collect();
    assert_eq!(rows, expected);
}

/// Both trials of a broker.
macro_rules! trials {
    ($name:ident, $broker:ty) => {
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn killed_consumers_have_one_effect_of_each_id() {
                on_redis::<$broker>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn killed_consumers_write_one_row_of_each_id() {
                in_a_transaction::<$broker>().await;
            }
        }
    };
}

trials!(redis_streams, RedisStreams);
trials!(nats, Nats);
trials!(rabbitmq, Rabbit<false>);
#[cfg(feature = "kafka")]
trials!(kafka, idem_tests::brokers::Kafka);
