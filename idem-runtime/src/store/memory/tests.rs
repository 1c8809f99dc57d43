use std::collections::HashSet;
use std::time::SystemTime;

use super::*;
use crate::env::clock::Sleep;
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;

const HOUR: Duration = Duration::from_hours(1);

/// A clock whose calendar the test sets.
#[derive(Debug, Default)]
struct Set {
    now_us: AtomicU64,
    calendar_us: AtomicU64,
}

impl Clock for Arc<Set> {
    fn now(&self) -> Duration {
        Duration::from_micros(self.now_us.load(Ordering::Relaxed))
    }

    fn calendar(&self) -> SystemTime {
        let us = self.calendar_us.load(Ordering::Relaxed);
        SystemTime::UNIX_EPOCH + Duration::from_micros(us)
    }

    fn sleep_until(&self, _: Duration) -> Sleep {
        Box::pin(std::future::pending())
    }
}

async fn fence(store: &MemoryStore, number: u8) -> u64 {
    let digest = KeyDigest::from_bytes([number; 32]);
    let key = RecordKey::new("shop".into(), Operation::new("pay"), digest);
    let request = ClaimRequest::new(store.new_owner(&key), HOUR, HOUR);
    match store.claim(&key, &request, &Admission::new(HOUR)).await {
        Ok(ClaimReply::Granted { fence, .. }) => fence.get(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn fences_begin_with_the_calendar_and_grow_though_it_is_set_back() {
    let clock = Arc::new(Set::default());
    clock.now_us.store(5_000_000, Ordering::Relaxed);
    clock
        .calendar_us
        .store(1_800_000_000_000_000, Ordering::Relaxed);
    let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
    assert_eq!(fence(&store, 1).await, 1_800_000_000_000_000);
    clock.now_us.fetch_add(250, Ordering::Relaxed);
    clock
        .calendar_us
        .store(1_700_000_000_000_000, Ordering::Relaxed);
    assert_eq!(fence(&store, 2).await, 1_800_000_000_000_250);
}

#[test]
fn no_two_owners_are_equal_and_their_first_bytes_differ_in_a_log() {
    let owners = [Owners::default(), Owners::default()];
    let all: Vec<_> = (owners.iter())
        .flat_map(|owners| (0..1000).map(|_| owners.new_owner()))
        .collect();
    let whole: HashSet<_> = all.iter().map(Owner::as_bytes).collect();
    let shown: HashSet<_> = all.iter().map(|owner| &owner.as_bytes()[..4]).collect();
    assert_eq!(whole.len(), 2000);
    // Of two thousand random numbers of 32 bits hardly two are the same.
    assert!(shown.len() > 1990, "{}", shown.len());
}
