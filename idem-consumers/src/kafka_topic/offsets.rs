//! The offsets that a consumer of Kafka may commit.

use std::collections::{BTreeMap, VecDeque};

/// A message of one assignment of its partition. No two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    partition: i32,
    number: u64,
}

/// The messages of each assigned partition from the first unsettled one on.
///
/// A committed offset says that every message before it is done, so it never passes an unsettled one.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    partitions: BTreeMap<i32, Window>,
    tickets: u64,
    /// What the brokers have taken from this process, also for partitions that were revoked since.
    taken: BTreeMap<i32, i64>,
}

#[derive(Debug, Default)]
struct Window {
    /// Sorted by offset and by ticket; the first one is not settled.
    uncommitted: VecDeque<OffsetEntry>,
    /// Every message before this offset is settled.
    position: Option<i64>,
    /// The position that was last handed out to be committed.
    committed: Option<i64>,
    paused: bool,
}

#[derive(Debug)]
struct OffsetEntry {
    offset: i64,
    number: u64,
    settled: bool,
}

/// Partitions to pause and to resume.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) pause: Vec<i32>,
    pub(super) resume: Vec<i32>,
}

/// What is to be done for a partition before it is given up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Revoked {
    /// The position to commit: another consumer receives the messages from there on.
    pub(super) position: Option<i64>,
    /// It is to be resumed: the client would keep it paused when it is assigned again.
    pub(super) is_paused: bool,
}

impl Offsets {
    /// Records a received message.
    ///
    /// An offset that was received before means that the partition went back, for instance because its topic was
    /// created anew: the messages from there on are received again, so their earlier tickets are void.
    pub(super) fn received(&mut self, partition: i32, offset: i64) -> Ticket {
        self.tickets += 1;
        let number = self.tickets;
        let window = self.partitions.entry(partition).or_default();
        while window
            .uncommitted
            .back()
            .is_some_and(|it| it.offset >= offset)
        {
            window.uncommitted.pop_back();
        }
        if window.position.is_some_and(|position| position > offset) {
            window.position = Some(offset);
        }
        window.uncommitted.push_back(OffsetEntry {
            offset,
            number,
            settled: false,
        });
        window.advance();
        Ticket { partition, number }
    }

    /// Whether the message is unsettled and its partition has not been revoked since.
    pub(super) fn is_open(&self, ticket: Ticket) -> bool {
        self.partitions
            .get(&ticket.partition)
            .and_then(|window| window.find(ticket).map(|at| &window.uncommitted[at]))
            .is_some_and(|it| !it.settled)
    }

    /// Settles a message; false if it is not open.
    pub(super) fn settle(&mut self, ticket: Ticket) -> bool {
        if !self.is_open(ticket) {
            return false;
        }
        let Some(window) = self.partitions.get_mut(&ticket.partition) else {
            return false;
        };
        let Some(at) = window.find(ticket) else {
            return false;
        };
        window.uncommitted[at].settled = true;
        window.advance();
        true
    }

    /// The positions that are to be committed, and were not handed out before.
    pub(super) fn commit(&mut self) -> Vec<(i32, i64)> {
        let changed = self.partitions.iter_mut().filter_map(|(partition, it)| {
            let position = it.position.filter(|_| it.position != it.committed)?;
            it.committed = Some(position);
            Some((*partition, position))
        });
        changed.collect()
    }

    /// The brokers have taken these positions.
    pub(super) fn taken(&mut self, positions: &[(i32, i64)]) {
        self.taken.extend(positions.iter().copied());
    }

    /// The position of this partition that the brokers took last.
    pub(super) fn last_taken(&self, partition: i32) -> Option<i64> {
        self.taken.get(&partition).copied()
    }

    /// Hands the position of this partition out again: its commit failed.
    pub(super) fn not_committed(&mut self, partition: i32) {
        if let Some(window) = self.partitions.get_mut(&partition) {
            window.committed = None;
        }
    }

    /// Voids the tickets and the position of this partition, which has lost its offsets.
    pub(super) fn void(&mut self, partition: i32) {
        if let Some(window) = self.partitions.get_mut(&partition) {
            window.uncommitted.clear();
            (window.position, window.committed) = (None, None);
        }
    }

    /// Forgets a revoked partition.
    pub(super) fn revoked(&mut self, partition: i32) -> Revoked {
        let window = self.partitions.remove(&partition).unwrap_or_default();
        Revoked {
            position: window.position,
            is_paused: window.paused,
        }
    }

    /// Chooses the partitions to pause, with at least `limit` uncommitted messages, and those to resume, with half.
    pub(super) fn turn(&mut self, limit: usize) -> Turn {
        let mut turn = Turn::default();
        for (partition, window) in &mut self.partitions {
            let uncommitted = window.uncommitted.len();
            if !window.paused && uncommitted >= limit {
                window.paused = true;
                turn.pause.push(*partition);
            } else if window.paused && uncommitted <= limit / 2 {
                window.paused = false;
                turn.resume.push(*partition);
            }
        }
        turn
    }
}

impl Window {
    fn find(&self, ticket: Ticket) -> Option<usize> {
        self.uncommitted
            .binary_search_by_key(&ticket.number, |it| it.number)
            .ok()
    }

    fn advance(&mut self) {
        while let Some(first) = self.uncommitted.front().filter(|it| it.settled) {
            self.position = Some(first.offset + 1);
            self.uncommitted.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_settled_prefix_is_committed() {
        let mut offsets = Offsets::default();
        let tickets: Vec<_> = (0..4).map(|it| offsets.received(0, it)).collect();
        assert!(offsets.settle(tickets[1]) && offsets.settle(tickets[2]));
        assert_eq!(offsets.commit(), []);
        assert!(offsets.settle(tickets[0]));
        assert_eq!(offsets.commit(), [(0, 3)]);
        assert_eq!(offsets.commit(), [], "once");
        offsets.not_committed(0);
        assert_eq!(offsets.commit(), [(0, 3)], "again after a failure");
        assert!(!offsets.settle(tickets[0]), "settled before");
    }

    #[test]
    fn a_revoked_partition_takes_no_verdict_of_its_earlier_assignment() {
        let mut offsets = Offsets::default();
        let (first, second) = (offsets.received(0, 7), offsets.received(0, 8));
        assert!(offsets.settle(first));
        assert_eq!(offsets.revoked(0).position, Some(8));
        let again = offsets.received(0, 8);
        assert!(!offsets.is_open(second) && !offsets.settle(second));
        assert!(offsets.is_open(again));
        assert_eq!(offsets.commit(), []);
    }

    #[test]
    fn a_full_partition_is_paused_until_half_of_it_is_committed() {
        let mut offsets = Offsets::default();
        let tickets: Vec<_> = (0..4).map(|it| offsets.received(0, it)).collect();
        let (pause, resume) = (vec![0], Vec::new());
        assert_eq!(offsets.turn(4), Turn { pause, resume });
        assert!(offsets.settle(tickets[0]));
        assert_eq!(offsets.turn(4), Turn::default());
        assert!(offsets.settle(tickets[1]));
        let (pause, resume) = (Vec::new(), vec![0]);
        assert_eq!(offsets.turn(4), Turn { pause, resume });
        assert!(!offsets.revoked(0).is_paused);
    }

    #[derive(Clone, Debug)]
    enum OffsetStep {
        /// A message is received after so many offsets that the partition has not: compacted, or aborted.
        Receive {
            partition: i32,
            gap: i64,
        },
        /// One of the tickets of all times is settled.
        Settle(prop::sample::Index),
        Commit,
        /// The last commit failed.
        Fail(i32),
        Revoke(i32),
        /// The partition is fetched again from so many offsets before.
        Rewind {
            partition: i32,
            by: i64,
        },
    }

    fn step() -> impl Strategy<Value = OffsetStep> {
        let partition = 0..3;
        prop_oneof![
            8 => (partition.clone(), 0..3_i64).prop_map(|(partition, gap)| OffsetStep::Receive { partition, gap }),
            8 => any::<prop::sample::Index>().prop_map(OffsetStep::Settle),
            3 => Just(OffsetStep::Commit),
            1 => partition.clone().prop_map(OffsetStep::Fail),
            1 => partition.clone().prop_map(OffsetStep::Revoke),
            1 => (partition, 1..5_i64).prop_map(|(partition, by)| OffsetStep::Rewind { partition, by }),
        ]
    }

    /// What the broker has of a partition, and what its messages have been through.
    #[derive(Default)]
    struct Partition {
        committed: i64,
        /// The next offset to fetch.
        next: i64,
        /// Of the messages that were received: whether a verdict was ever taken.
        log: BTreeMap<i64, bool>,
        /// The last ticket of each message of the current assignment.
        open: BTreeMap<i64, Ticket>,
    }

    impl Partition {
        fn commit(&mut self, offset: i64) {
            self.committed = offset;
            let unsettled = self.open.range(..offset).next();
            assert_eq!(unsettled, None, "{offset} passes an unsettled message");
            let lost = self.log.range(..offset).find(|(_, settled)| !**settled);
            assert_eq!(
                lost, None,
                "{offset} passes a message that was never settled"
            );
        }
    }

    proptest! {
        #[test]
        fn no_commit_passes_an_unsettled_message(steps in prop::collection::vec(step(), 1..200)) {
            let mut offsets = Offsets::default();
            let mut partitions: BTreeMap<i32, Partition> = BTreeMap::new();
            let mut tickets = Vec::new();
            for step in steps {
                match step {
                    OffsetStep::Receive { partition, gap } => {
                        let broker = partitions.entry(partition).or_default();
                        // A message that is there is fetched; after the last one, a new one is sent.
                        let offset = broker.log.range(broker.next..).next().map(|(offset, _)| *offset);
                        let offset = offset.unwrap_or(broker.next + gap);
                        let ticket = offsets.received(partition, offset);
                        broker.log.entry(offset).or_default();
                        broker.next = offset + 1;
                        broker.open.insert(offset, ticket);
                        tickets.push((partition, offset, ticket));
                    }
                    OffsetStep::Settle(_) if tickets.is_empty() => {}
                    OffsetStep::Settle(index) => {
                        let (partition, offset, ticket) = *index.get(&tickets);
                        let broker = partitions.get_mut(&partition).expect("it has sent a message");
                        let open = broker.open.get(&offset) == Some(&ticket);
                        prop_assert_eq!(offsets.is_open(ticket), open);
                        prop_assert_eq!(offsets.settle(ticket), open);
                        if open {
                            broker.open.remove(&offset);
                            broker.log.insert(offset, true);
                        }
                    }
                    OffsetStep::Commit => {
                        for (partition, offset) in offsets.commit() {
                            partitions.get_mut(&partition).expect("it is known").commit(offset);
                        }
                    }
                    OffsetStep::Fail(partition) => offsets.not_committed(partition),
                    OffsetStep::Revoke(partition) => {
                        let position = offsets.revoked(partition).position;
                        let broker = partitions.entry(partition).or_default();
                        if let Some(position) = position {
                            broker.commit(position);
                        }
                        broker.open.clear();
                        broker.next = broker.committed;
                    }
                    OffsetStep::Rewind { partition, by } => {
                        let broker = partitions.entry(partition).or_default();
                        broker.next = (broker.next - by).max(0);
                        // Fetched again at once, so that no verdict comes between.
                        let Some((&offset, _)) = broker.log.range(broker.next..).next() else { continue };
                        drop(broker.open.split_off(&offset));
                        let ticket = offsets.received(partition, offset);
                        broker.next = offset + 1;
                        broker.open.insert(offset, ticket);
                        tickets.push((partition, offset, ticket));
                    }
                }
            }
            // With the rest settled, everything is committed.
            for (partition, broker) in &mut partitions {
                for ticket in std::mem::take(&mut broker.open).into_values() {
                    prop_assert!(offsets.settle(ticket));
                }
                broker.log.values_mut().for_each(|settled| *settled = true);
                if let Some(position) = offsets.revoked(*partition).position {
                    prop_assert_eq!(position, broker.next);
                }
            }
        }
    }
}
