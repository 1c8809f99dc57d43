//! The expiry checks of a shard's records, by their times.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::identity::operation::RecordKey;

/// A due time at which to check a record's expiry. It does not move when the record's life is extended, so that a
/// completion, and every renewal, leaves it unchanged.
pub(super) struct Look {
    pub(super) at: Duration,
    pub(super) id: u64,
    pub(super) key: RecordKey,
}

/// The scheduled checks, the soonest first.
#[derive(Default)]
pub(super) struct Looks {
    /// In order. Records of equal life arrive in order, and appending is cheap.
    line: VecDeque<Look>,
    /// Checks that arrived too late for the line.
    heap: BinaryHeap<Look>,
}

impl Looks {
    pub(super) fn push(&mut self, look: Look) {
        match self.line.back() {
            Some(last) if look.at < last.at => self.heap.push(look),
            _ => self.line.push_back(look),
        }
    }

    /// Removes the soonest check, if it is due.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<Look> {
        let (first, top) = (self.line.front(), self.heap.peek());
        let heap = match (first, top) {
            (Some(first), Some(top)) => top.at < first.at,
            (first, _) => first.is_none(),
        };
        let next = if heap { top } else { first };
        if next?.at > now {
            return None;
        }
        if heap {
            self.heap.pop()
        } else {
            self.line.pop_front()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.line.len() + self.heap.len()
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Look) -> bool) {
        self.line.retain(&mut keep);
        self.heap.retain(keep);
    }
}

/// The soonest first, in a heap that yields the greatest first.
impl Ord for Look {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.id).cmp(&(self.at, self.id))
    }
}

impl PartialOrd for Look {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Look {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Look {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::key::KeyDigest;
    use crate::identity::operation::Operation;

    #[test]
    fn the_soonest_comes_first_however_they_came() {
        let digest = KeyDigest::from_bytes([7; 32]);
        let key = RecordKey::new("shop".into(), Operation::new("pay"), digest);
        let mut looks = Looks::default();
        for (id, second) in [3, 1, 4, 4, 2, 6, 5].into_iter().enumerate() {
            looks.push(Look {
                at: Duration::from_secs(second),
                id: id as u64,
                key: key.clone(),
            });
        }
        looks.retain(|look| look.id != 2);
        assert_eq!(looks.len(), 6);
        let now = Duration::from_secs(5);
        let due = std::iter::from_fn(|| looks.pop_due(now).map(|look| look.at.as_secs()));
        assert_eq!(due.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(looks.len(), 1);
    }
}
