//! How long a waiting call waits after the other has finished, in round trips.
//!
//! `cargo bench -p idem-tests --bench wake`. Two clients of a Redis of their own: one finishes calls, the other
//! waits for them on a thread of its own. Measured is the time from the moment at which the finishing call has
//! returned to the one at which the waiting one has the answer: at the store, by a watch and one more claim;
//! and through two engines, where the engine's own thread is notified and reads. In between, in the same run,
//! as many plain `GET`s on a warm connection and claims of a finished key, one round trip each. Once on
//! loopback, where a round trip costs little but processor time, and once behind a proxy that delays every
//! reply by a millisecond, as a network does.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use idem_harness::{RedisServer, RespConn, TcpProxy};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, Header, OutcomeKind, Owner, RecordKey, State, Store, Watch,
};
use idem_runtime::{
    Engine, Error,
    key::{KeyBuilder, KeyDigest, Operation},
};
use tokio::runtime::{Builder, Runtime};

const ROUNDS: usize = 7;

fn key(number: usize) -> RecordKey {
    let mut digest = [7; 32];
    digest[24..].copy_from_slice(&(number as u64).to_be_bytes());
    let digest = KeyDigest::from_bytes(digest);
    RecordKey::new("idem".into(), Operation::new("bench.wake"), digest)
}

fn ask() -> ClaimRequest {
    ClaimRequest::new(
        Owner::random(),
        Duration::from_secs(30),
        Duration::from_mins(10),
    )
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.unwrap()
}

/// The waiting client. Reports when it watches, and then when it had the answer.
fn wait(url: &str, keys: &Receiver<RecordKey>, says: &Sender<Instant>) {
    runtime().block_on(async {
        let store = RedisStore::connect(url).await.unwrap();
        for key in keys {
            let mut watch: Watch = store.watch(&key).await.unwrap().unwrap();
            let before = store.claim(&key, &ask()).await.unwrap();
            assert!(matches!(before, ClaimReply::Running { .. }), "{before:?}");
            says.send(Instant::now()).unwrap();
            watch.changed().await;
            let after = store.claim(&key, &ask()).await.unwrap();
            says.send(Instant::now()).unwrap();
            assert!(matches!(after, ClaimReply::Done { .. }), "{after:?}");
        }
    });
}

/// The same through an engine.
fn wait_in_a_call(url: &str, keys: &Receiver<usize>, says: &Sender<Instant>) {
    runtime().block_on(async {
        let engine = Engine::new(RedisStore::connect(url).await.unwrap());
        for key in keys {
            let call = engine.operation("bench.call").key(&key);
            let answer = call.run(|_| async { Ok::<usize, Error>(usize::MAX) }).await;
            says.send(Instant::now()).unwrap();
            assert_eq!(answer, Ok(key));
        }
    });
}

/// A call that ends when another engine waits for it. When it had returned.
async fn call(engine: &Engine, key: usize, asks: &Sender<usize>, server: &mut RespConn) -> Instant {
    let digest = KeyBuilder::new("bench.call", 1024).key(&key).unwrap();
    let place = RecordKey::new("idem".into(), Operation::new("bench.call"), digest);
    let body = async |_| {
        asks.send(key).unwrap();
        let waits = |server: &mut RespConn| {
            let told = server.command(&["PUBSUB", "NUMSUB", &place.name()]);
            told.unwrap().to_string().ends_with('1')
        };
        while !waits(server) {
            tokio::task::yield_now().await;
        }
        // It polls once more, and then it waits.
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok::<_, Error>(key)
    };
    let answer = engine.operation("bench.call").key(&key).run(body).await;
    let finished = Instant::now();
    assert_eq!(answer, Ok(key));
    finished
}

/// The client that finishes a call. Returns the moment at which that had returned.
async fn finish(store: &RedisStore, key: &RecordKey, claim: &Header) -> Instant {
    let mut done = *claim;
    done.state = State::Done {
        outcome: OutcomeKind::Value,
        schema: 1,
    };
    let record = Bytes::copy_from_slice(&done.encode());
    store.complete(key, &record).await.unwrap();
    Instant::now()
}

async fn take(store: &RedisStore, key: &RecordKey) -> Header {
    let request = ask();
    let reply = store.claim(key, &request).await.unwrap();
    let ClaimReply::Granted { fence, attempt, .. } = reply else {
        panic!("{reply:?}");
    };
    let mut header = Header::new(
        State::Pending {
            lease: request.lease,
        },
        request.owner,
        fence,
        request.retain,
    );
    header.attempts = attempt;
    header.fingerprint = request.fingerprint;
    header
}

fn get(connection: &mut RespConn, key: &RecordKey) -> Duration {
    let began = Instant::now();
    connection.command(&["GET", &key.name()]).unwrap();
    began.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Measures through this address.
fn measure(server: &RedisServer, url: &str, mut plain: RespConn, calls_of_a_round: usize) {
    let (asks, keys) = channel();
    let (says, said) = channel();
    let (calls, called) = channel();
    let (answers, answered) = channel();
    let (at_store, at_engine) = (url.to_owned(), url.to_owned());
    let by_store = thread::spawn(move || wait(&at_store, &keys, &says));
    let by_engine = thread::spawn(move || wait_in_a_call(&at_engine, &called, &answers));
    let mut direct = server.connect();
    let runtime = runtime();
    let store = runtime.block_on(RedisStore::connect(url)).unwrap();
    let engine = Engine::new(runtime.block_on(RedisStore::connect(url)).unwrap());
    let mut medians: [Vec<Duration>; 4] = Default::default();
    println!("round     store   engines       GET     claim");
    for round in 0..ROUNDS {
        let mut times: [Vec<Duration>; 4] = Default::default();
        for number in 0..calls_of_a_round {
            let number = round * calls_of_a_round + number;
            let key = key(number);
            let claim = runtime.block_on(take(&store, &key));
            asks.send(key.clone()).unwrap();
            said.recv().unwrap();
            let finished = runtime.block_on(finish(&store, &key, &claim));
            // The message may overtake the reply of the finishing call.
            times[0].push(said.recv().unwrap().saturating_duration_since(finished));
            let finished = runtime.block_on(call(&engine, number, &calls, &mut direct));
            times[1].push(answered.recv().unwrap().saturating_duration_since(finished));
            times[2].push(get(&mut plain, &key));
            let began = Instant::now();
            runtime.block_on(store.claim(&key, &ask())).unwrap();
            times[3].push(began.elapsed());
        }
        print!("{round:>5}");
        for (times, medians) in times.iter_mut().zip(&mut medians) {
            let median = median(times);
            print!(" {:>9.1}", micros(median));
            medians.push(median);
        }
        println!();
    }
    drop((asks, calls));
    by_store.join().unwrap();
    by_engine.join().unwrap();
    let [store, engines, got, claimed] = medians.map(|mut times| micros(median(&mut times)));
    println!(
        "store {store:.1} µs after the call had returned: {:.2} round trips of a GET, {:.2} of a claim; \
         engines {engines:.1} µs: {:.2} and {:.2}",
        store / got,
        store / claimed,
        engines / got,
        engines / claimed,
    );
}

fn main() {
    println!("medians in microseconds: on loopback");
    let server = RedisServer::start();
    measure(&server, &server.url(), server.connect(), 300);
    println!("with a network whose replies take a millisecond");
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.addr());
    proxy.delay(Duration::from_millis(1));
    let plain = RespConn::open(proxy.addr()).unwrap();
    measure(&server, &proxy.url(), plain, 50);
}
