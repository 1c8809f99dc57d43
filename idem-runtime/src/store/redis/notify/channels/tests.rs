use std::collections::BTreeSet;
use std::mem;

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
struct SubscribedServer {
    sent: Vec<ChannelCommand>,
    done: usize,
    answered: usize,
    subscribed: BTreeSet<String>,
}

impl SubscribedServer {
    fn work(&mut self) {
        if let Some(command) = self.sent.get(self.done) {
            self.done += 1;
            match command {
                ChannelCommand::Subscribe { name, .. } => {
                    assert!(self.subscribed.insert(name.clone()));
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
struct Watcher {
    key: u8,
    progress: watch::Receiver<Progress>,
    /// It was confirmed on this connection.
    heard: bool,
    /// It was confirmed on an earlier connection, and not woken since.
    lapsed: bool,
}

#[derive(Clone, Debug)]
enum ChannelStep {
    Arrive(u8),
    Leave(usize),
    /// The watch is dropped now, and its notice arrives later.
    LeaveQuietly(usize),
    Notice,
    Send,
    Work,
    Answer,
    /// The server executes a command, and refuses a subscription.
    Refuse,
    Lose,
    Fail,
}

fn step() -> impl Strategy<Value = ChannelStep> {
    prop_oneof![
        6 => (0..2u8).prop_map(ChannelStep::Arrive),
        3 => (0..8usize).prop_map(ChannelStep::Leave),
        3 => (0..8usize).prop_map(ChannelStep::LeaveQuietly),
        3 => Just(ChannelStep::Notice),
        8 => Just(ChannelStep::Send),
        8 => Just(ChannelStep::Work),
        8 => Just(ChannelStep::Answer),
        1 => Just(ChannelStep::Refuse),
        1 => Just(ChannelStep::Lose),
        1 => Just(ChannelStep::Fail),
    ]
}

#[derive(Default)]
struct World {
    channels: Channels,
    watchers: Vec<Watcher>,
    /// Keys whose last watcher has left; the notice is on its way.
    notices: Vec<u8>,
    server: SubscribedServer,
}

impl World {
    fn watched(&self) -> impl Fn(&RecordKey) -> bool + use<> {
        let keys: BTreeSet<_> = self.watchers.iter().map(|watcher| watcher.key).collect();
        move |asked| keys.iter().any(|&number| key(number) == *asked)
    }

    fn leave(&mut self, watcher: usize) -> Option<u8> {
        if self.watchers.is_empty() {
            return None;
        }
        let watcher = self.watchers.swap_remove(watcher % self.watchers.len());
        let last = self.watchers.iter().all(|other| other.key != watcher.key);
        last.then_some(watcher.key)
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
            let woken = |watcher: &&mut Watcher| key(watcher.key) == woken;
            self.watchers
                .iter_mut()
                .filter(woken)
                .for_each(|watcher| watcher.lapsed = false);
        }
        true
    }

    /// Refuses the next subscription, if its reply is next and current.
    fn refuse(&mut self) {
        let server = &mut self.server;
        if server.answered < server.done {
            return;
        }
        let Some(ChannelCommand::Subscribe { name, request }) = server.sent.get(server.done) else {
            return;
        };
        let channel = self.channels.wanted.get(name);
        if channel.and_then(|channel| channel.request) != Some(*request) {
            return;
        }
        let woken = self.channels.refused(name, *request);
        server.done += 1;
        server.answered += 1;
        for watcher in &mut self.watchers {
            watcher.lapsed &= woken != Some(key(watcher.key));
        }
        self.give_up(|progress| matches!(progress, Progress::Refused));
    }

    /// The watchers leave whose subscription has failed. No earlier connection has confirmed it, or they are woken.
    fn give_up(&mut self, has_failed: fn(&Progress) -> bool) {
        let (failed, rest): (Vec<_>, Vec<_>) = mem::take(&mut self.watchers)
            .into_iter()
            .partition(|watcher| has_failed(&watcher.progress.borrow()));
        assert!(
            !failed.iter().any(|watcher| watcher.lapsed),
            "it is never woken"
        );
        self.watchers = rest;
    }

    fn lose(&mut self) {
        self.channels.lost();
        self.server = SubscribedServer::default();
        for watcher in &mut self.watchers {
            watcher.lapsed |= mem::take(&mut watcher.heard);
        }
    }

    fn step(&mut self, step: &ChannelStep) {
        match *step {
            ChannelStep::Arrive(number) => self.watchers.push(Watcher {
                key: number,
                progress: self.channels.join(&key(number)),
                heard: false,
                lapsed: false,
            }),
            ChannelStep::Leave(watcher) => {
                if let Some(number) = self.leave(watcher) {
                    self.channels.left(&key(number));
                }
            }
            ChannelStep::LeaveQuietly(watcher) => {
                let notice = self.leave(watcher);
                self.notices.extend(notice);
            }
            ChannelStep::Notice => {
                if let Some(number) = self.notices.pop() {
                    self.channels.left(&key(number));
                }
            }
            ChannelStep::Send => drop(self.send()),
            ChannelStep::Work => self.server.work(),
            ChannelStep::Answer => drop(self.answer()),
            ChannelStep::Refuse => self.refuse(),
            ChannelStep::Lose => self.lose(),
            ChannelStep::Fail => {
                self.lose();
                let error = StoreError::new(StoreErrorKind::Unavailable, "down");
                self.channels.failed(&error);
                self.give_up(|progress| matches!(progress, Progress::Failed(_)));
            }
        }
    }

    /// Every watcher with a confirmed subscription is subscribed at the server.
    fn check(&mut self) {
        for watcher in &mut self.watchers {
            if matches!(*watcher.progress.borrow(), Progress::Confirmed) {
                watcher.heard = true;
            }
            if watcher.heard {
                let name = key(watcher.key).name();
                assert!(
                    self.server.subscribed.contains(&name),
                    "a watch of key {} is lost; sent: {:?}",
                    watcher.key,
                    self.server.sent
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn a_confirmed_watch_is_subscribed_at_the_server(steps in vec(step(), 1..80)) {
        let mut world = World::default();
        for step in &steps {
            world.step(step);
            world.check();
        }
        // In the end every watcher is subscribed, none has been forgotten, and no other channel is subscribed.
        for number in mem::take(&mut world.notices) {
            world.channels.left(&key(number));
        }
        while world.send() {}
        for _ in 0..world.server.sent.len() {
            world.server.work();
        }
        while world.answer() {}
        world.check();
        prop_assert!(world.watchers.iter().all(|watcher| watcher.heard));
        let watched = world.watched();
        let wanted: BTreeSet<_> = (0..2).filter(|&n| watched(&key(n))).map(|n| key(n).name()).collect();
        prop_assert_eq!(&world.server.subscribed, &wanted);
        prop_assert!(!world.watchers.iter().any(|watcher| watcher.lapsed), "a watcher is never woken");
        prop_assert_eq!(world.channels.is_empty(), world.watchers.is_empty());
    }
}
