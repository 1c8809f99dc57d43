//! Claims and answers that a failover under Sentinel keeps or loses.
//!
//! Clients call with fresh keys while the primary is lost. Then another process repeats, on the new primary, every call
//! whose body ran. With a lease of a minute, a body that runs a second time is one whose claim was lost.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use idem_harness::{Partition, SentinelSetup, TcpProxy};
use idem_runtime::store::redis::{Durability, RedisStore};
use idem_runtime::{Engine, Error, ErrorKind, OnRunning};
use idem_tests::events::Events;
use idem_tests::sentinel_url;
use idem_tests::shop::{PATIENCE, chain, connect, connected, patient, patiently, until};
use tokio::task::{JoinSet, block_in_place};

const ONE: Durability = Durability::Replicated(1);

/// Deadline of a client's call, although too few replicas have its answer.
const DEADLINE: Duration = Duration::from_millis(500);

/// Minimum of a client's calls of each kind, for a significant zero.
const ENOUGH: usize = 100;

/// Way of losing a primary. Kills and stalls are in `groups`.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Separated from its replicas and from the sentinels, not from clients.
    Parted(Partition),
    /// Separated together with one of its two replicas.
    PartedWithReplica,
}

/// Reply of the lost primary to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claims {
    Granted,
    Refused,
}

/// A call and its end.
#[derive(Clone, Debug)]
struct Call {
    key: u64,
    began: Instant,
    ended: Instant,
    ran: bool,
    answer: Result<u64, Error>,
}

impl Call {
    /// Calls once. Each body that runs has another answer.
    async fn make(engine: &Engine, key: u64) -> Self {
        static ANSWERS: AtomicU64 = AtomicU64::new(0);
        let (ran, began) = (AtomicBool::new(false), Instant::now());
        let call = engine.operation("trial").key(&key).run(|_| async {
            ran.store(true, Ordering::Relaxed);
            Ok::<u64, Error>(ANSWERS.fetch_add(1, Ordering::Relaxed))
        });
        let answer = call.await;
        Self {
            key,
            began,
            ended: Instant::now(),
            ran: ran.into_inner(),
            answer,
        }
    }

    /// Calls with a key that no call has used.
    async fn fresh(engine: &Engine) -> Self {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        Self::make(engine, KEYS.fetch_add(1, Ordering::Relaxed)).await
    }

    fn is_refused_as(&self, why: &str) -> bool {
        (self.answer.as_ref()).is_err_and(|error| chain(error).contains(why))
    }
}

/// A process, and its calls.
#[derive(Clone, Debug)]
struct Client {
    name: &'static str,
    engine: Engine,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// The second calls of keys whose body ran.
#[derive(Debug, Default)]
struct Tally {
    executed: usize,
    /// The body ran once more.
    again: usize,
    /// The caller has another answer than the first one.
    differ: usize,
    /// The claim is on the new primary, and the answer is not.
    held: usize,
    /// The same, though enough replicas had the answer before the fault.
    lost: usize,
}

/// A group of three servers and three clients, without its primary.
struct Trial {
    /// Has the address of the first primary alone.
    stays: Client,
    /// Has the addresses of the sentinels.
    follows: Client,
    /// The same, on the primary's side of a partition.
    cut_off: Client,
    /// Another process, on the new primary.
    other: Engine,
    /// Just before the loss.
    healthy: Instant,
    struck: Instant,
    group: SentinelSetup,
    /// The network between the client that is cut off and the sentinels.
    ways: Vec<TcpProxy>,
}

fn engine(store: RedisStore, patience: Duration) -> Engine {
    // Longer than any trial.
    let engine = Engine::builder(store).lease(Duration::from_hours(1));
    let engine = engine
        .on_running(OnRunning::Reject)
        .observer(Events::default());
    let engine = engine.claim_deadline(patience).complete_deadline(patience);
    engine.build().unwrap()
}

impl Client {
    async fn connect(
        name: &'static str,
        url: String,
        durability: Durability,
        claims: Claims,
    ) -> Self {
        let store = RedisStore::builder(url).durability(durability);
        // A client that is cut off makes no connection anew, so a time-out would end its calls.
        let (store, deadline) = match claims {
            Claims::Granted => (patient(store), PATIENCE),
            Claims::Refused => (store, DEADLINE),
        };
        Self {
            name,
            engine: engine(connected(store).await, deadline),
            calls: Arc::default(),
        }
    }

    async fn call_until(self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            let call = Call::fresh(&self.engine).await;
            self.calls.lock().unwrap().push(call);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn those(&self, is_one: impl Fn(&Call) -> bool) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| is_one(call)).cloned().collect()
    }

    /// Waits for so many calls of this kind.
    async fn makes(&self, number: usize, what: &str, is_one: impl Fn(&Call) -> bool) {
        let what = format!("{}: {number} calls {what}", self.name);
        until(&what, || self.those(&is_one).len() >= number).await;
    }

    /// Calls until this is the reason of a refusal.
    async fn is_refused_in_the_end(&self, why: &str) {
        let calls = async { while !Call::fresh(&self.engine).await.is_refused_as(why) {} };
        patiently(&format!("{}: {why}", self.name), calls).await;
    }
}

impl Trial {
    /// Calls in so many tasks of each client, and loses the primary. Allows the promotion of another one after the former
    /// one has granted or refused enough claims of each client, and continues to call.
    async fn run(fault: Fault, durability: Durability, tasks: usize, claims: Claims) -> Self {
        let group = block_in_place(|| SentinelSetup::builder().partitions().start());
        let ways = group.sentinel_addrs().into_iter().map(TcpProxy::start);
        let ways: Vec<_> = ways.collect();
        let addrs: Vec<_> = ways.iter().map(|way| way.addr().to_string()).collect();
        let direct = format!("redis://{}", group.announced_addr(&group.servers()[0]));
        let behind = format!(
            "redis+sentinel://{}/{}",
            addrs.join(","),
            SentinelSetup::NAME
        );
        let stays = Client::connect("stays", direct, durability, claims).await;
        let follows = Client::connect("follows", sentinel_url(&group), durability, claims).await;
        let cut_off = Client::connect("cut off", behind, durability, claims).await;
        let (stop, mut calling) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        let clients = [&stays, &follows, &cut_off];
        let mut call_in = |tasks| {
            for client in clients.repeat(tasks) {
                calling.spawn(client.clone().call_until(Arc::clone(&stop)));
            }
        };
        // One task at first: on a busy machine, the calls of many tasks would all exceed their deadline.
        call_in(1);
        for client in clients {
            let is_answered = |call: &Call| call.answer.is_ok();
            client.makes(ENOUGH, "are answered", is_answered).await;
        }
        let healthy = Instant::now();
        call_in(tasks - 1);
        for client in clients {
            let is_new = |call: &Call| call.began > healthy;
            client.makes(tasks, "are made by all tasks", is_new).await;
        }
        let struck = block_in_place(|| {
            group.forbid_failover();
            let old = &group.servers()[0];
            let how = match fault {
                Fault::Parted(how) => {
                    group.isolate(&[old], how);
                    how
                }
                Fault::PartedWithReplica => {
                    group.isolate(&[old, &group.servers()[1]], Partition::Cut);
                    Partition::Cut
                }
            };
            for way in &ways {
                way.separate(IpAddr::V4(Ipv4Addr::LOCALHOST), how);
            }
            Instant::now()
        });
        for client in clients {
            let granted = claims == Claims::Granted;
            let is_late = |call: &Call| call.began > struck && call.ran == granted;
            client.makes(ENOUGH, "follow the fault", is_late).await;
        }
        let new = block_in_place(|| {
            group.allow_failover();
            group.await_new_primary(&group.servers()[0]).url()
        });
        let promoted = Instant::now();
        for client in clients {
            let is_later = |call: &Call| call.began > promoted;
            client.makes(tasks, "follow the promotion", is_later).await;
        }
        stop.store(true, Ordering::Relaxed);
        calling.join_all().await;
        Self {
            stays,
            follows,
            cut_off,
            other: engine(connect(new).await.unwrap(), PATIENCE),
            healthy,
            struck,
            group,
            ways,
        }
    }

    /// Ends the fault, and waits until the former primary is a replica.
    fn heal(&self) {
        let old = &self.group.servers()[0];
        self.group.heal();
        self.ways.iter().for_each(TcpProxy::rejoin);
        block_in_place(|| self.group.await_replica(old));
    }

    async fn tally(&self, client: &Client) -> Tally {
        let both = stream::iter(client.those(|call| call.ran)).map(|first| async {
            let second = Call::make(&self.other, first.key).await;
            (first, second)
        });
        let mut tally = Tally::default();
        for (first, second) in both.buffer_unordered(64).collect::<Vec<_>>().await {
            tally.executed += 1;
            tally.again += usize::from(second.ran);
            let in_time = first.ended - first.began < DEADLINE && first.ended < self.healthy;
            match (&first.answer, second.answer) {
                (Ok(first), Ok(second)) => tally.differ += usize::from(*first != second),
                (_, Err(error)) if matches!(error.kind(), ErrorKind::Running { .. }) => {
                    tally.held += 1;
                    tally.lost += usize::from(in_time && first.answer.is_ok());
                }
                (Err(_), Ok(_)) => {}
                (_, Err(error)) => panic!("the new primary is well: {error}"),
            }
        }
        tally
    }

    fn clients(&self) -> [&Client; 3] {
        [&self.stays, &self.follows, &self.cut_off]
    }

    async fn nothing_is_forgotten(&self) {
        for client in self.clients() {
            let (name, tally) = (client.name, self.tally(client).await);
            assert!(tally.executed >= ENOUGH, "{name}: {tally:?}");
            let broken = (tally.again, tally.differ, tally.lost);
            assert_eq!(broken, (0, 0, 0), "{name}: {tally:?}");
        }
    }

    /// Since the fault the client starts no body, and reports the reason.
    async fn nothing_is_granted(&self, client: &Client, why: &str) {
        let late = client.those(|call| call.began > self.struck);
        assert!(!late.is_empty(), "{} called on", client.name);
        let granted: Vec<_> = late.iter().filter(|call| call.ran).collect();
        assert!(granted.is_empty(), "{}: {granted:?}", client.name);
        // On a busy machine the deadline of each call of the trial may have come first.
        if !late.iter().any(|call| call.is_refused_as(why)) {
            client.is_refused_in_the_end(why).await;
        }
    }

    /// The new primary has the answers of the client.
    async fn calls_work_again(&self, client: &Client) {
        let work = async {
            while Call::fresh(&client.engine).await.answer.is_err() {}
            loop {
                let (name, tally) = (client.name, self.tally(client).await);
                assert_eq!((tally.again, tally.differ), (0, 0), "{name}: {tally:?}");
                if tally.held == 0 {
                    return;
                }
            }
        };
        patiently("calls are answered, and all answers stored", work).await;
    }
}

/// Error of a client that needs a connection and reaches no sentinel.
const NO_SENTINEL: &str = "asking the sentinel at ";

async fn a_partition_forgets_nothing_that_is_replicated(how: Partition, cut_off: &str) {
    let trial = Trial::run(Fault::Parted(how), ONE, 16, Claims::Refused).await;
    trial.nothing_is_forgotten().await;
    trial
        .nothing_is_granted(&trial.stays, "0 of 1 replicas have it")
        .await;
    trial.nothing_is_granted(&trial.cut_off, cut_off).await;
    trial.calls_work_again(&trial.follows).await;
    trial.heal();
    trial.calls_work_again(&trial.cut_off).await;
    trial.calls_work_again(&trial.follows).await;
    // A URL of one server always means that server, even after its role has changed.
    let stays = &trial.stays;
    stays
        .is_refused_in_the_end("this server is a replica")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_cuts_links_forgets_nothing_that_is_replicated() {
    a_partition_forgets_nothing_that_is_replicated(Partition::Cut, NO_SENTINEL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_partition_forgets_nothing_that_is_replicated() {
    let why = "no reply to a claim";
    a_partition_forgets_nothing_that_is_replicated(Partition::Silent, why).await;
}

/// With [`Durability::Acknowledged`] all claims granted by a former primary are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_loses_acknowledged_records() {
    for how in [Partition::Cut, Partition::Silent] {
        // These calls wait for no replica, and all of them are executed again.
        let (fault, durability) = (Fault::Parted(how), Durability::Acknowledged);
        let trial = Trial::run(fault, durability, 4, Claims::Granted).await;
        for client in trial.clients() {
            let (name, tally) = (client.name, trial.tally(client).await);
            assert!(tally.again >= ENOUGH, "{how:?}, {name}: {tally:?}");
            assert!(tally.differ >= ENOUGH, "{how:?}, {name}: {tally:?}");
        }
    }
}

/// The limit of [`Durability::Replicated`]: that replica must be promotable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_lost_with_the_primary_does_not_count() {
    let trial = Trial::run(Fault::PartedWithReplica, ONE, 16, Claims::Granted).await;
    let tally = trial.tally(&trial.stays).await;
    assert!(tally.again >= ENOUGH, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_replicas_forget_nothing_when_one_is_lost_with_the_primary() {
    let both = Durability::Replicated(2);
    let trial = Trial::run(Fault::PartedWithReplica, both, 16, Claims::Refused).await;
    trial.nothing_is_forgotten().await;
    trial
        .nothing_is_granted(&trial.stays, "1 of 2 replicas have it")
        .await;
    trial.nothing_is_granted(&trial.cut_off, NO_SENTINEL).await;
    // The group is one replica short, so the new primary cannot grant a claim either.
    trial
        .nothing_is_granted(&trial.follows, "of 2 replicas have it")
        .await;
    trial.heal();
    for client in [&trial.follows, &trial.cut_off] {
        trial.calls_work_again(client).await;
    }
}
