//! Three consumer processes, and what befalls them.

use std::time::{Duration, Instant};

use idem_harness::Worker;
use idem_tests::brokers::ConsumerSettings;
use idem_tests::seeded::Seeded;

use super::HELD;
use super::bank::Bank;

/// Number of consumer processes.
const SEATS: usize = 3;

/// What befalls a consumer, or the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`, and another consumer takes its place.
    Kill,
    /// SIGSTOP for longer than the lease, and than the broker waits.
    Stall,
    /// It ends in order, and another one joins.
    Leave,
    RestartBroker,
}

#[derive(Debug)]
struct Seat {
    consumer: Worker,
    name: u32,
    /// When it is to go on.
    stalled: Option<Instant>,
}

/// Consumer processes of a broker.
#[derive(Debug)]
pub(super) struct Fleet<'a> {
    bank: &'a Bank,
    /// Of the consumer that was started last.
    settings: ConsumerSettings,
    silence: Duration,
    seats: Vec<Seat>,
}

impl<'a> Fleet<'a> {
    pub(super) fn start(bank: &'a Bank, settings: &ConsumerSettings, silence: Duration) -> Self {
        let mut fleet = Self {
            bank,
            settings: settings.clone(),
            silence,
            seats: Vec::new(),
        };
        for _ in 0..SEATS {
            let seat = fleet.seat();
            fleet.seats.push(seat);
        }
        fleet
    }

    fn seat(&mut self) -> Seat {
        self.settings.name += 1;
        let settings = serde_json::to_string(&self.settings).expect("settings");
        let mut consumer = Worker::sibling("idem-consumer").arg(settings).spawn();
        assert_eq!(consumer.line(), "ready");
        Seat {
            consumer,
            name: self.settings.name,
            stalled: None,
        }
    }

    /// Waits until the bank holds a request.
    pub(super) fn wait_for_a_body(&self) {
        self.bank.held(HELD);
    }

    /// A consumer that is not stalled. If there is one, it has a request that the bank holds.
    fn victim(&self, seeded: &mut Seeded) -> Option<usize> {
        let held = self.bank.held(HELD);
        let awake: Vec<_> = (0..SEATS)
            .filter(|seat| self.seats[*seat].stalled.is_none())
            .collect();
        let busy = awake.iter().copied();
        let busy: Vec<_> = busy
            .filter(|seat| held.contains(&self.seats[*seat].name))
            .collect();
        let from = if busy.is_empty() { awake } else { busy };
        let place = usize::try_from(seeded.below(from.len().max(1) as u64)).expect("a few seats");
        from.get(place).copied()
    }

    /// Strikes a consumer; false where all are stalled.
    pub(super) fn strike(&mut self, fault: Fault, seeded: &mut Seeded) -> bool {
        let Some(victim) = self.victim(seeded) else {
            return false;
        };
        let seat = &mut self.seats[victim];
        match fault {
            Fault::Kill => {
                seat.consumer.kill9();
                self.seats[victim] = self.seat();
            }
            Fault::Stall => {
                let percent = u32::try_from(150 + seeded.below(100)).expect("a few hundred");
                seat.consumer.pause();
                let stall = self.settings.lease * percent / 100 + self.silence;
                seat.stalled = Some(Instant::now() + stall);
            }
            Fault::Leave => {
                seat.consumer.close();
                self.bank.leaves(seat.name);
                assert!(seat.consumer.wait().success(), "it ends in order");
                self.seats[victim] = self.seat();
            }
            Fault::RestartBroker => unreachable!("no consumer is at fault"),
        }
        true
    }

    /// Lets consumers go on whose stall is over; true while one is stalled.
    pub(super) fn resume(&mut self) -> bool {
        for seat in &mut self.seats {
            if seat.stalled.is_some_and(|until| until <= Instant::now()) {
                seat.consumer.resume();
                seat.stalled = None;
            }
        }
        self.seats.iter().any(|seat| seat.stalled.is_some())
    }

    /// Ends all in order.
    pub(super) fn end(mut self) {
        for seat in &mut self.seats {
            seat.consumer.close();
        }
        for seat in &mut self.seats {
            assert!(seat.consumer.wait().success(), "it ends in order");
        }
    }
}
