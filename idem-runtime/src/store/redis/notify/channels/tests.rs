use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;
use crate::store::StoreErrorKind;

fn key(number: u8) -> RecordKey {
    let digest = KeyDigest::from_bytes([number; 32]);
    RecordKey::new("test".into(), Operation::new("watched"), digest)
}

/// A server's end of a connection: it executes the commands in their order, some time
/// later, and its replies arrive some time after that.
#[derive(Default)]
struct Server {
    sent: Vec<ChannelCommand>,
    done: usize,
    answered: usize,
    subscribed: BTreeSet<String>,
}

impl Server {
    fn work(&mut self) {
        if let Some(command) = self.sent.get(self.done) {
            self.done += 1;
            match command {
                ChannelCommand::Subscribe { name, .. } => {
                    assert!(self.subscribed.insert(name.clone()))
                }
                ChannelCommand::Unsubscribe { name } => assert!(self.subscribed.remove(name)),
            }
        }
    }

    fn answer(&mut self) -> Option<ChannelCommand> {
        let command = self.sent[..self.done].get(self.answered)?;
        self.answered += 1;
        Some(command.clone())
    }
}

/// A watch, and the progress of its subscription.
struct Guest {
    key: u8,
    progress: watch::Receiver<Progress>,
    /// It was confirmed on this connection.
    heard: bool,
    /// It was confirmed on an earlier connection, and not woken since.
    lapsed: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u8),
    Leave(usize),
    /// The watch is dropped now, and its notice arrives later.
    LeaveQuietly(usize),
    Word,
    Send,
    Work,
    Answer,
    Lose,
    Fail,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2u8).prop_map(Step::Arrive),
        3 => (0..8usize).prop_map(Step::Leave),
        3 => (0..8usize).prop_map(Step::LeaveQuietly),
        3 => Just(Step::Word),
        8 => Just(Step::Send),
        8 => Just(Step::Work),
        8 => Just(Step::Answer),
        1 => Just(Step::Lose),
        1 => Just(Step::Fail),
    ]
}

#[derive(Default)]
struct World {
    channels: Channels,
    guests: Vec<Guest>,
    /// Keys whose last watcher has left, with the notice still on its way.
    words: Vec<u8>,
    server: Server,
}

impl World {
    fn watched(&self) -> impl Fn(&RecordKey) -> bool + use<> {
        let keys: BTreeSet<_> = self.guests.iter().map(|guest| guest.key).collect();
        move |asked| keys.iter().any(|&number| key(number) == *asked)
    }

    fn leave(&mut self, guest: usize) -> Option<u8> {
        if self.guests.is_empty() {
            return None;
        }
        let guest = self.guests.swap_remove(guest % self.guests.len());
        let last = self.guests.iter().all(|other| other.key != guest.key);
        last.then_some(guest.key)
    }

    fn send(&mut self) -> bool {
        let watched = self.watched();
        let command = self.channels.next_command(watched);
        let sent = command.is_some();
        self.server.sent.extend(command);
        sent
    }

    fn answer(&mut self) -> bool {
        let Some(command) = self.server.answer() else {
            return false;
        };
        if let ChannelCommand::Subscribe { name, request } = command
            && let Some(woken) = self.channels.confirmed(&name, request)
        {
            let woken = |guest: &&mut Guest| key(guest.key) == woken;
            self.guests
                .iter_mut()
                .filter(woken)
                .for_each(|guest| guest.lapsed = false);
        }
        true
    }

    fn lose(&mut self) {
        self.channels.lost();
        self.server = Server::default();
        for guest in &mut self.guests {
            guest.lapsed |= std::mem::take(&mut guest.heard);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive(number) => self.guests.push(Guest {
                key: number,
                progress: self.channels.join(&key(number)),
                heard: false,
                lapsed: false,
            }),
            Step::Leave(guest) => {
                if let Some(number) = self.leave(guest) {
                    self.channels.left(&key(number));
                }
            }
            Step::LeaveQuietly(guest) => {
                let word = self.leave(guest);
                self.words.extend(word);
            }
            Step::Word => {
                if let Some(number) = self.words.pop() {
                    self.channels.left(&key(number));
                }
            }
            Step::Send => drop(self.send()),
            Step::Work => self.server.work(),
            Step::Answer => drop(self.answer()),
            Step::Lose => self.lose(),
            Step::Fail => {
                self.lose();
                let error = StoreError::new(StoreErrorKind::Unavailable, "down");
                self.channels.failed(&error);
                // A watcher whose subscription failed gives up.
                self.guests
                    .retain(|guest| !matches!(*guest.progress.borrow(), Progress::Failed(_)));
            }
        }
    }

    /// Every watcher with a confirmed subscription is subscribed at the server.
    fn check(&mut self) {
        for guest in &mut self.guests {
            if matches!(*guest.progress.borrow(), Progress::Confirmed) {
                guest.heard = true;
            }
            if guest.heard {
                let name = key(guest.key).name();
                assert!(
                    self.server.subscribed.contains(&name),
                    "a watch of key {} is lost; sent: {:?}",
                    guest.key,
                    self.server.sent
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn whoever_is_told_that_a_key_is_heard_hears_it(steps in vec(step(), 1..80)) {
        let mut world = World::default();
        for step in &steps {
            world.step(step);
            world.check();
        }
        // In the end every watcher is subscribed, none has been forgotten, and no other channel is subscribed.
        for number in std::mem::take(&mut world.words) {
            world.channels.left(&key(number));
        }
        while world.send() {}
        for _ in 0..world.server.sent.len() {
            world.server.work();
        }
        while world.answer() {}
        world.check();
        prop_assert!(world.guests.iter().all(|guest| guest.heard));
        let watched = world.watched();
        let wanted: BTreeSet<_> = (0..2).filter(|&n| watched(&key(n))).map(|n| key(n).name()).collect();
        prop_assert_eq!(&world.server.subscribed, &wanted);
        prop_assert!(!world.guests.iter().any(|guest| guest.lapsed), "somebody is never woken");
        prop_assert_eq!(world.channels.is_empty(), world.guests.is_empty());
    }
}

#[test]
fn ten_thousand_watches_of_a_key_are_one_order() {
    let mut channels = Channels::default();
    let receivers: Vec<_> = (0..10_000).map(|_| channels.join(&key(1))).collect();
    let Some(ChannelCommand::Subscribe { name, request }) = channels.next_command(|_| true) else {
        panic!("a subscription is asked for");
    };
    assert_eq!(channels.next_command(|_| true), None);
    assert_eq!(
        channels.confirmed(&name, request),
        None,
        "nothing was missed"
    );
    let heard = |progress: &watch::Receiver<_>| matches!(*progress.borrow(), Progress::Confirmed);
    assert!(receivers.iter().all(heard));
}

#[test]
fn a_refusal_is_told_and_forgotten() {
    let mut channels = Channels::default();
    let progress = channels.join(&key(1));
    let Some(ChannelCommand::Subscribe { name, request }) = channels.next_command(|_| true) else {
        panic!("a subscription is asked for");
    };
    channels.refused(&name, request);
    assert!(matches!(*progress.borrow(), Progress::Refused));
    assert!(channels.is_empty());
    channels.left(&key(1));
    assert_eq!(channels.next_command(|_| false), None, "nothing to give up");
}
