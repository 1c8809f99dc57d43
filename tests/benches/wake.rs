//! How long a waiting call waits after the other has finished, in round trips of this machine.
//!
//! `cargo bench --bench wake`. Two clients of a Redis of their own: one finishes calls, the other
//! watches their keys on a thread of its own and fetches the answer with one more claim. Measured is
//! the time from the moment at which the finishing call has returned to the one at which the waiting
//! one has the answer. In between, in the same run, the same number of plain `GET`s on a warm
//! connection and of claims of a finished key, one round trip each.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use idem_harness::{RedisServer, RespConn};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, Header, OutcomeKind, Owner, RecordKey, State, Store, Watch,
};
use idem_runtime::{Fingerprint, KeyDigest, Operation};
use tokio::runtime::{Builder, Runtime};

const ROUNDS: usize = 7;
const CALLS: usize = 400;

fn key(number: usize) -> RecordKey {
    let mut digest = [7; 32];
    digest[24..].copy_from_slice(&(number as u64).to_be_bytes());
    let digest = KeyDigest::from_bytes(digest);
    RecordKey::new("idem".into(), Operation::new("bench.wake"), digest)
}

fn ask() -> ClaimRequest {
    ClaimRequest {
        owner: Owner::random(),
        fingerprint: Fingerprint::NONE,
        lease: Duration::from_secs(30),
        retain: Duration::from_mins(10),
        max_attempts: None,
        reconciles: false,
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.unwrap()
}

/// The one that waits. Says when it watches, and then when it had the answer.
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

/// The one that finishes a call. When that had returned.
async fn finish(store: &RedisStore, key: &RecordKey, claim: &Header) -> Instant {
    let done = Header {
        state: State::Done {
            outcome: OutcomeKind::Value,
            schema: 1,
        },
        ..*claim
    };
    let record = Bytes::copy_from_slice(&done.encode());
    store.complete(key, &record).await.unwrap();
    Instant::now()
}

async fn take(store: &RedisStore, key: &RecordKey) -> Header {
    let request = ask();
    let reply = store.claim(key, &request).await.unwrap();
    let ClaimReply::Granted { fence, attempt } = reply else {
        panic!("{reply:?}");
    };
    Header {
        state: State::Pending {
            lease: request.lease,
        },
        owner: request.owner,
        fence,
        attempts: attempt,
        retain: request.retain,
        fingerprint: request.fingerprint,
    }
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

fn main() {
    let server = RedisServer::start();
    let url = server.url();
    let (asks, keys) = channel();
    let (says, said) = channel();
    let waiter = thread::spawn({
        let url = url.clone();
        move || wait(&url, &keys, &says)
    });
    let mut plain = server.connect();
    let runtime = runtime();
    let store = runtime.block_on(RedisStore::connect(&url)).unwrap();
    let (mut wakes, mut gets, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    println!("medians of {CALLS} calls, in microseconds");
    println!("round   woken with the answer      GET    claim");
    for round in 0..ROUNDS {
        let (mut woken, mut got, mut claimed) = (Vec::new(), Vec::new(), Vec::new());
        for call in 0..CALLS {
            let key = key(round * CALLS + call);
            let claim = runtime.block_on(take(&store, &key));
            asks.send(key.clone()).unwrap();
            said.recv().unwrap();
            let finished = runtime.block_on(finish(&store, &key, &claim));
            // The message may overtake the reply of the finishing call.
            woken.push(said.recv().unwrap().saturating_duration_since(finished));
            got.push(get(&mut plain, &key));
            let began = Instant::now();
            runtime.block_on(store.claim(&key, &ask())).unwrap();
            claimed.push(began.elapsed());
        }
        let (woken, got, claimed) = (median(&mut woken), median(&mut got), median(&mut claimed));
        println!(
            "{round:>5} {:>23.1} {:>8.1} {:>8.1}",
            micros(woken),
            micros(got),
            micros(claimed)
        );
        wakes.push(woken);
        gets.push(got);
        claims.push(claimed);
    }
    drop(asks);
    waiter.join().unwrap();
    let (woken, got, claimed) = (median(&mut wakes), median(&mut gets), median(&mut claims));
    println!(
        "woken with the answer {:.1} µs after the call had returned: {:.2} round trips of a GET \
         ({:.1} µs), {:.2} of a claim ({:.1} µs)",
        micros(woken),
        micros(woken) / micros(got),
        micros(got),
        micros(woken) / micros(claimed),
        micros(claimed)
    );
}
