//! The progress of a process, to resume a lost subscription.

use std::collections::BTreeSet;

use idem_runtime::__private::Lock;

use crate::subscription::OnLostSubscription;

/// The progress of a process in a stream with these positions.
pub(super) struct ReadProgress<P>(Lock<Received<P>>);

struct Received<P> {
    last: Option<P>,
    unsettled: BTreeSet<P>,
}

/// Where a new subscription continues.
#[derive(Debug, PartialEq)]
pub(super) enum Begin<P> {
    With(P),
    After(P),
    /// With the next message that is sent.
    Now,
    Start,
}

impl<P: Copy + Ord> ReadProgress<P> {
    pub(super) fn new() -> Self {
        Self(Lock::new(Received {
            last: None,
            unsettled: BTreeSet::new(),
        }))
    }

    /// The process has received a message.
    pub(super) fn received(&self, position: P) {
        self.0.lock().unsettled.insert(position);
    }

    /// The subscription has delivered all messages up to this one.
    pub(super) fn delivered(&self, position: P) {
        let mut received = self.0.lock();
        received.last = received.last.max(Some(position));
    }

    /// The broker has taken the verdict on a message.
    pub(super) fn settled(&self, position: P) {
        self.0.lock().unsettled.remove(&position);
    }

    /// Every process has settled the messages before this one.
    pub(super) fn settled_before(&self, position: P) {
        let mut received = self.0.lock();
        received.unsettled = received.unsettled.split_off(&position);
    }

    /// The messages were created anew: no position is one of theirs. The subscription is before the first one.
    #[cfg(any(feature = "nats", feature = "redis-streams"))]
    pub(super) fn void(&self, before: P) {
        let mut received = self.0.lock();
        received.last = Some(before);
        received.unsettled.clear();
    }

    /// Where a subscription continues that the broker has lost; `None`: the source fails.
    pub(super) fn begin(&self, on_lost: OnLostSubscription) -> Option<Begin<P>> {
        match on_lost {
            OnLostSubscription::Fail => None,
            OnLostSubscription::FromNow => Some(Begin::Now),
            OnLostSubscription::FromStart => Some(Begin::Start),
            OnLostSubscription::Resume => {
                let received = self.0.lock();
                let first = received.unsettled.first().copied().map(Begin::With);
                first.or(received.last.map(Begin::After))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_subscription_resumes_with_the_first_unsettled_message() {
        let progress = ReadProgress::new();
        let resumed = || progress.begin(OnLostSubscription::Resume);
        assert_eq!(resumed(), None);
        for position in [3, 4, 5] {
            progress.received(position);
            progress.delivered(position);
        }
        progress.settled(4);
        assert_eq!(resumed(), Some(Begin::With(3)));
        progress.settled_before(3);
        assert_eq!(resumed(), Some(Begin::With(3)));
        progress.settled_before(4);
        assert_eq!(resumed(), Some(Begin::With(5)));
        progress.settled(5);
        assert_eq!(resumed(), Some(Begin::After(5)));
        let of = |on_lost| progress.begin(on_lost);
        assert_eq!(of(OnLostSubscription::Fail), None);
        assert_eq!(of(OnLostSubscription::FromNow), Some(Begin::Now));
        assert_eq!(of(OnLostSubscription::FromStart), Some(Begin::Start));
    }
}
