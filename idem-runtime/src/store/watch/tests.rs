use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll, Wake, Waker};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;

fn key(number: u8) -> RecordKey {
    let digest = KeyDigest::from_bytes([number; 32]);
    RecordKey::new("test".into(), Operation::new("watched"), digest)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

type WatchFuture = Pin<Box<dyn Future<Output = Watch>>>;

/// A watcher, and the changes that it must see.
struct Guest {
    key: u8,
    /// Changes of the key since the last notification.
    changes: u32,
    waits: Waits,
}

enum Waits {
    No(Watch),
    /// With the number of wakes at the last poll of the future.
    Yes(WatchFuture, Arc<Bell>, u32),
    Gone,
}

impl Guest {
    fn arrive(watchers: &Watchers, number: u8) -> Self {
        Self {
            key: number,
            changes: 0,
            waits: Waits::No(watchers.watch(&key(number))),
        }
    }

    /// Polls: ready exactly if the key has changed.
    fn poll(&mut self) {
        let (mut waiting, bell) = match std::mem::replace(&mut self.waits, Waits::Gone) {
            Waits::No(mut watch) => {
                let waiting: WatchFuture = Box::pin(async move {
                    watch.changed().await;
                    watch
                });
                (waiting, Arc::<Bell>::default())
            }
            Waits::Yes(waiting, bell, _) => (waiting, bell),
            Waits::Gone => return,
        };
        let waker = Waker::from(Arc::clone(&bell));
        match waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(watch) => {
                assert!(self.changes > 0, "told of nothing");
                self.changes = 0;
                self.waits = Waits::No(watch);
            }
            Poll::Pending => {
                assert_eq!(self.changes, 0, "not told");
                let rung = bell.0.load(Ordering::SeqCst);
                self.waits = Waits::Yes(waiting, bell, rung);
            }
        }
    }

    fn changed(&mut self) {
        self.changes += 1;
        if let Waits::Yes(_, bell, rung) = &self.waits {
            let rings = bell.0.load(Ordering::SeqCst);
            assert!(rings > *rung, "a change that nobody is woken by");
        }
    }

    /// Drops the future half-way and keeps watching.
    fn give_up(&mut self, watchers: &Watchers) {
        *self = Self::arrive(watchers, self.key);
    }
}

#[derive(Clone, Debug)]
enum WatchStep {
    Arrive(u8),
    Poll(usize),
    Wake(u8),
    GiveUp(usize),
    Leave(usize),
}

fn step() -> impl Strategy<Value = WatchStep> {
    prop_oneof![
        2 => (0..3u8).prop_map(WatchStep::Arrive),
        6 => (0..6usize).prop_map(WatchStep::Poll),
        4 => (0..3u8).prop_map(WatchStep::Wake),
        1 => (0..6usize).prop_map(WatchStep::GiveUp),
        2 => (0..6usize).prop_map(WatchStep::Leave),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_change_is_told_to_everybody_who_watches(steps in vec(step(), 1..60)) {
        let watchers = Watchers::default();
        let mut guests: Vec<Guest> = Vec::new();
        for step in steps {
            let pick = |number: usize, guests: &[Guest]| number % guests.len().max(1);
            match step {
                WatchStep::Arrive(key) => guests.push(Guest::arrive(&watchers, key)),
                WatchStep::Wake(number) => {
                    watchers.wake(&key(number));
                    guests.iter_mut().filter(|guest| guest.key == number).for_each(Guest::changed);
                }
                _ if guests.is_empty() => {}
                WatchStep::Poll(number) => {
                    let guest = pick(number, &guests);
                    guests[guest].poll();
                }
                WatchStep::GiveUp(number) => {
                    let guest = pick(number, &guests);
                    guests[guest].give_up(&watchers);
                }
                WatchStep::Leave(number) => {
                    let guest = pick(number, &guests);
                    guests.swap_remove(guest);
                }
            }
            for number in 0..3 {
                let expected = guests.iter().any(|guest| guest.key == number);
                prop_assert_eq!(watchers.is_watched(&key(number)), expected);
            }
        }
        guests.iter_mut().for_each(Guest::poll);
    }
}

#[test]
fn a_change_is_not_lost_with_the_future_that_waited_for_it() {
    let watchers = Watchers::default();
    let mut watch = watchers.watch(&key(1));
    let bell = Waker::from(Arc::<Bell>::default());
    let mut cx = Context::from_waker(&bell);
    {
        let mut waiting = pin!(watch.changed());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        watchers.wake(&key(1));
    }
    assert!(pin!(watch.changed()).poll(&mut cx).is_ready());
    assert!(pin!(watch.changed()).poll(&mut cx).is_pending());
}

/// Threads that race. A lost message would leave a task waiting for ever.
#[test]
fn no_message_is_lost_between_threads() {
    const ROUNDS: u32 = 2_000;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap();
    let watchers = Watchers::default();
    let round = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let (watchers, round) = (watchers.clone(), Arc::clone(&round));
            runtime.spawn(async move {
                loop {
                    // Some keep their watch, some begin a new one each time and read the record then.
                    let mut watch = watchers.watch(&key(1));
                    let mut seen = round.load(Ordering::SeqCst);
                    while seen < ROUNDS {
                        watch.changed().await;
                        seen = round.load(Ordering::SeqCst);
                        if number % 2 == 0 {
                            break;
                        }
                    }
                    if seen == ROUNDS {
                        return;
                    }
                }
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        round.fetch_add(1, Ordering::SeqCst);
        watchers.wake(&key(1));
        std::thread::yield_now();
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert!(!watchers.is_watched(&key(1)));
}

#[derive(Default)]
struct RecordedFeed {
    left: Lock<Vec<RecordKey>>,
    missed: AtomicU32,
}

impl Feed for RecordedFeed {
    fn left(&self, key: &RecordKey) {
        self.left.lock().push(key.clone());
    }

    fn missed(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_feed_hears_who_left_and_what_was_missed() {
    let listener = Arc::new(RecordedFeed::default());
    let feed: Arc<dyn Feed> = listener.clone();
    let watchers = Watchers::fed_by(Arc::downgrade(&feed));
    let (first, second) = (watchers.watch(&key(1)), watchers.watch(&key(1)));
    first.missed();
    drop(first);
    assert!(listener.left.lock().is_empty(), "one still does");
    drop(second);
    assert_eq!(*listener.left.lock(), [key(1)]);
    drop(watchers.watch(&key(1)));
    assert_eq!(listener.left.lock().len(), 2);
    assert_eq!(listener.missed.load(Ordering::SeqCst), 1);
    let late = watchers.watch(&key(3));
    watchers.wake(&key(3));
    late.missed();
    assert_eq!(
        listener.missed.load(Ordering::SeqCst),
        1,
        "its notification is there"
    );
    let watch = watchers.watch(&key(2));
    drop((feed, listener));
    // A dropped feed receives nothing.
    watch.missed();
}
