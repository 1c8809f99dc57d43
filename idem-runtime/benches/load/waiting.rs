//! Duplicates of one running call, and their delay after its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::driver::nanos;
use super::options::Options;
use super::order::{Order, merchant};
use super::row::Row;
use super::sample::Sample;
use super::shop::{Gate, Shop};

/// How often each round is repeated: one has as many latencies as there are waiters.
const TURNS: u64 = 5;
/// Time for the duplicates to find the running call.
const SETTLING: Duration = Duration::from_millis(15);

/// Two shops: the leader calls in one, its duplicates in the other.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) name: &'static str,
    pub(crate) running: Arc<Shop>,
    pub(crate) elsewhere: Arc<Shop>,
    pub(crate) merchant: u64,
}

/// The leader is in this process, or in another for idem.
pub(crate) fn waiting(options: &Options, [running, other]: &[Arc<Shop>; 2]) -> Vec<Waiting> {
    let case = |name, elsewhere| Waiting {
        name,
        running: Arc::clone(running),
        elsewhere: Arc::clone(elsewhere),
        merchant: merchant(),
    };
    let cases = [case("wait", other), case("wait_same_engine", running)];
    let wanted = |waiting: &Waiting| options.wants(waiting.name) && options.wants_impl("idem");
    cases.into_iter().filter(wanted).collect()
}

impl Waiting {
    /// Measures with so many duplicates.
    pub(crate) fn measure(
        &self,
        runtime: &Runtime,
        store: &str,
        duplicates: usize,
        value_bytes: usize,
        rounds: usize,
    ) -> Row {
        let mut samples = Vec::with_capacity(rounds);
        // The first round warms up.
        for round in 0..=rounds as u64 {
            let mut latencies = Vec::with_capacity(duplicates * TURNS as usize);
            let mut wall = Duration::ZERO;
            for turn in 0..TURNS {
                let turn = self.turn(round * TURNS + turn, duplicates);
                let taken = runtime.block_on(turn);
                wall += taken.iter().max().copied().unwrap_or_default();
                latencies.extend(taken.into_iter().map(nanos));
            }
            if round > 0 {
                samples.push(Sample::new(wall, latencies));
            }
        }
        Row::of(self.name, store, duplicates, value_bytes, &samples)
    }

    async fn turn(&self, number: u64, duplicates: usize) -> Vec<Duration> {
        let gate = Arc::new(Gate::default());
        let mut order = Order::of(self.merchant);
        order.number = number;
        let running = tokio::spawn({
            let (shop, gate, order) = (Arc::clone(&self.running), Arc::clone(&gate), order.clone());
            async move {
                shop.linger(&order, &gate).await.unwrap();
                Instant::now()
            }
        });
        gate.entered.notified().await;
        let mut waiting = JoinSet::new();
        for _ in 0..duplicates {
            let (shop, order) = (Arc::clone(&self.elsewhere), order.clone());
            waiting.spawn(async move {
                let receipt = shop.linger(&order, &Gate::default()).await.unwrap();
                assert_eq!(receipt.cents, 129_900);
                Instant::now()
            });
        }
        tokio::time::sleep(SETTLING).await;
        gate.open.notify_one();
        let finished = running.await.unwrap();
        let answered = waiting.join_all().await;
        // The notification may overtake the reply to the leader.
        let since = |at: Instant| at.saturating_duration_since(finished);
        answered.into_iter().map(since).collect()
    }
}
