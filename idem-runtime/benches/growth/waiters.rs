//! The more calls wait for one that runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::line::Line;
use super::load::driver;
use super::load::order::{Order, merchant};
use super::load::sample::median;
use super::load::shop::{Gate, Shop};
use super::options::Growth;
use super::server::Measured;

const VALUE_BYTES: usize = 200;
/// Two looks at the server that find it idle are as far apart as this.
const LOOK: Duration = Duration::from_millis(10);
/// It is never idle for long where calls ask again and again.
const LONGEST: Duration = Duration::from_secs(2);

pub(crate) fn run(growth: &Growth, server: &mut Measured) {
    let counts: &[usize] = growth.pick(&[1, 10, 100, 1_000, 10_000], &[1, 100, 1_000]);
    let runtime = driver::current_thread();
    let shop = || Shop::new(server.engine(&runtime), VALUE_BYTES);
    let running = shop();
    let elsewhere: Vec<_> = (0..4).map(|_| shop()).collect();
    for engines in [1, 4] {
        for &waiters in counts {
            let round = Round {
                running: &running,
                elsewhere: &elsewhere[..engines],
                waiters,
            };
            round.measure(growth, server, &runtime);
        }
    }
}

/// One shop runs the call; those who wait call in the others, by turns.
struct Round<'a> {
    running: &'a Arc<Shop>,
    elsewhere: &'a [Arc<Shop>],
    waiters: usize,
}

impl Round<'_> {
    fn measure(&self, growth: &Growth, server: &mut Measured, runtime: &Runtime) {
        let merchant = merchant();
        let mut next = 0;
        let mut order = || {
            let mut order = Order::of(merchant);
            order.number = next;
            next += 1;
            order
        };
        // The first turn warms up.
        let (mut settling, _) = runtime.block_on(self.turn(&order(), async || quiet(server).await));
        let (mut first, mut middle, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..growth.load.rounds {
            let (settled, mut taken) =
                runtime.block_on(self.turn(&order(), async || quiet(server).await));
            settling = settling.max(settled);
            taken.sort_unstable();
            let micros = |at: usize| taken[at].as_secs_f64() * 1e6;
            first.push(micros(0));
            middle.push(micros(taken.len() / 2));
            last.push(micros(taken.len() - 1));
        }
        // A look at the server would be counted: long enough instead.
        let commands = server.meter().commands(&mut || {
            let settle = async || tokio::time::sleep(settling * 2).await;
            runtime.block_on(self.turn(&order(), settle));
        });
        Line::new(growth, "waiters")
            .count("engines", self.elsewhere.len() as u64)
            .count("waiters", self.waiters as u64)
            .figure("first_us", Some(median(first)), 0)
            .figure("middle_us", Some(median(middle)), 0)
            .figure("last_us", Some(median(last)), 0)
            .figure("commands", commands.map(|commands| commands as f64), 0)
            .print();
    }

    /// How long it took until all wait, and how long after the end of the call that ran each of them
    /// has its answer.
    async fn turn(&self, order: &Order, settle: impl AsyncFnOnce()) -> (Duration, Vec<Duration>) {
        let gate = Arc::new(Gate::default());
        let running = tokio::spawn({
            let (shop, gate, order) = (Arc::clone(self.running), Arc::clone(&gate), order.clone());
            async move {
                shop.linger(&order, &gate).await.unwrap();
                Instant::now()
            }
        });
        gate.entered.notified().await;
        let began = Instant::now();
        let mut waiting = JoinSet::new();
        for (_, shop) in (0..self.waiters).zip(self.elsewhere.iter().cycle()) {
            let (shop, order) = (Arc::clone(shop), order.clone());
            waiting.spawn(async move {
                let receipt = shop.linger(&order, &Gate::default()).await.unwrap();
                assert_eq!(receipt.cents, 129_900);
                Instant::now()
            });
        }
        settle().await;
        let settling = began.elapsed();
        gate.open.notify_one();
        let finished = running.await.unwrap();
        let answered = waiting.join_all().await;
        // The news of the end may be faster than the reply of the one that ended it.
        let since = |at: Instant| at.saturating_duration_since(finished);
        (settling, answered.into_iter().map(since).collect())
    }
}

/// Until nobody asks the server anything.
async fn quiet(server: &mut Measured) {
    let began = Instant::now();
    let mut idle = 0;
    let mut before = server.commands();
    while idle < 5 && began.elapsed() < LONGEST {
        tokio::time::sleep(LOOK).await;
        let now = server.commands();
        // One of them is the look itself.
        idle = if now - before <= 1 { idle + 1 } else { 0 };
        before = now;
    }
}
