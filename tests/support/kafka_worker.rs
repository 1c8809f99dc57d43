//! A consumer of a Kafka topic as a process, to be killed.
//!
//! Its arguments are the brokers, the topic, the group, the milliseconds of a session, and the URL of a Redis. It
//! prints `body <payload>` for each body that begins, and stops at the end of its input.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::time::Duration;
use std::{env, thread};

use idem_runtime::consumer::{Consumer, KafkaTopic, Raw};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Context, Engine, Error, Policy};
use tokio::sync::oneshot;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [brokers, topic, group, session, redis] = &arguments[..] else {
        panic!("worker <brokers> <topic> <group> <session ms> <redis>");
    };
    let properties = [
        ("session.timeout.ms", &**session),
        ("heartbeat.interval.ms", "200"),
    ];
    let source = KafkaTopic::connect_with(brokers, topic, group, properties).await;
    let source = source.expect("the cluster answers");
    let store = RedisStore::connect(redis)
        .await
        .expect("the server answers");
    let (stop, stopped) = oneshot::channel::<Infallible>();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        drop(stop);
    });
    let handler = async |message: Raw, _: Context| {
        let text = String::from_utf8_lossy(&message.0);
        writeln!(io::stdout().lock(), "body {text}").expect("the test listens");
        Ok::<(), Error>(())
    };
    let summary = Consumer::new(Engine::new(store), "bills.collect")
        .policy(Policy::new().lease(Duration::from_secs(2)))
        .run_until(source, handler, async { drop(stopped.await) })
        .await;
    summary.expect("the consumer runs until its input ends");
}
