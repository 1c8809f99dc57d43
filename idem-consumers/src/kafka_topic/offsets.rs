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
    /// Commits that the brokers took from this process. Includes revoked partitions.
    taken: BTreeMap<i32, i64>,
}

#[derive(Debug, Default)]
struct Window {
    /// Sorted by offset and by ticket; the first one is not settled.
    uncommitted: VecDeque<OffsetEntry>,
    /// Every message before this offset is settled.
    position: Option<i64>,
    /// The position that the brokers took last.
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

/// The obligations of a partition before its revocation.
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

    /// Whether the message is unsettled and its partition still assigned.
    pub(super) fn is_open(&self, ticket: Ticket) -> bool {
        let window = self.partitions.get(&ticket.partition);
        window.is_some_and(|window| window.find(ticket).is_some())
    }

    /// Settles a message; false if it is not open.
    pub(super) fn settle(&mut self, ticket: Ticket) -> bool {
        let window = self.partitions.get_mut(&ticket.partition);
        let Some((window, at)) = window.and_then(|it| it.find(ticket).map(|at| (it, at))) else {
            return false;
        };
        window.uncommitted[at].settled = true;
        window.advance();
        true
    }

    /// The positions to commit: all that no broker has confirmed.
    pub(super) fn uncommitted(&self) -> Vec<(i32, i64)> {
        let changed = self.partitions.iter().filter_map(|(partition, it)| {
            let position = it.position.filter(|_| it.position != it.committed)?;
            Some((*partition, position))
        });
        changed.collect()
    }

    /// The brokers have taken these positions.
    pub(super) fn taken(&mut self, positions: &[(i32, i64)]) {
        for (partition, position) in positions {
            self.taken.insert(*partition, *position);
            if let Some(window) = self.partitions.get_mut(partition) {
                window.committed = Some(*position);
            }
        }
    }

    /// The position of this partition that the brokers took last.
    pub(super) fn last_taken(&self, partition: i32) -> Option<i64> {
        self.taken.get(&partition).copied()
    }

    /// Voids the tickets and the position of a partition without offsets.
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

    /// Chooses the partitions to pause and to resume. A partition is paused with `limit` uncommitted messages, and
    /// resumed with half.
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
    /// The place of an unsettled message.
    fn find(&self, ticket: Ticket) -> Option<usize> {
        let found = self
            .uncommitted
            .binary_search_by_key(&ticket.number, |it| it.number);
        found.ok().filter(|at| !self.uncommitted[*at].settled)
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
        /// A message is received behind so many missing offsets: compacted, or aborted.
        Receive {
            partition: i32,
            gap: i64,
        },
        /// One of the tickets of all times is settled.
        Settle(prop::sample::Index),
        /// The brokers take the commit, or refuse it.
        Commit(bool),
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
            4 => any::<bool>().prop_map(OffsetStep::Commit),
            1 => partition.clone().prop_map(OffsetStep::Revoke),
            1 => (partition, 1..5_i64).prop_map(|(partition, by)| OffsetStep::Rewind { partition, by }),
        ]
    }

    /// The broker's messages of a partition, and their states.
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
                    OffsetStep::Commit(is_taken) => {
                        let uncommitted = offsets.uncommitted();
                        for (partition, offset) in uncommitted.iter().filter(|_| is_taken) {
                            partitions.get_mut(partition).expect("it is known").commit(*offset);
                        }
                        if is_taken {
                            offsets.taken(&uncommitted);
                        }
                        prop_assert_eq!(offsets.uncommitted().is_empty(), is_taken || uncommitted.is_empty());
                    }
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
