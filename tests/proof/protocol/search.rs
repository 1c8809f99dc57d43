//! Breadth first through all that can happen, so that the counterexamples are the shortest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use crate::hasher::StateHash;
use crate::promise::{PROMISES, Promise};
use crate::scenario::Scenario;
use crate::step::Step;
use crate::world::World;

/// The result of a search.
pub(crate) struct Found {
    pub(crate) states: usize,
    /// For each promise that was broken, the shortest way there.
    pub(crate) broken: Vec<(Promise, Vec<Step>)>,
}

impl Found {
    pub(crate) fn way(&self, promise: Promise) -> Option<&[Step]> {
        let found = self.broken.iter().find(|(broken, _)| *broken == promise);
        found.map(|(_, way)| &way[..])
    }
}

/// Explores every state of a scenario. States are distinguished by 64-bit hashes; of a few million states, two
/// are taken for one with a probability below one in a million.
pub(crate) fn search(scenario: &Scenario) -> Found {
    let hasher = StateHash::default();
    let mut ways: HashMap<u64, Option<(u64, Step)>, StateHash> = HashMap::default();
    let mut broken: Vec<(Promise, u64)> = Vec::new();
    let world = World::new(scenario);
    let hash = hasher.hash_one(&world);
    ways.insert(hash, None);
    let (mut layer, mut next, mut steps) = (vec![(hash, world)], Vec::new(), Vec::new());
    while !layer.is_empty() {
        for (from, world) in layer.drain(..) {
            for promise in PROMISES {
                let known = broken.iter().any(|(known, _)| *known == promise);
                if !known && scenario.promises(promise) && world.broken.has(promise) {
                    broken.push((promise, from));
                }
            }
            world.steps(scenario, &mut steps);
            for step in steps.drain(..) {
                let mut world = world.clone();
                world.take(scenario, step);
                let hash = hasher.hash_one(&world);
                if let Entry::Vacant(entry) = ways.entry(hash) {
                    entry.insert(Some((from, step)));
                    next.push((hash, world));
                }
            }
        }
        std::mem::swap(&mut layer, &mut next);
    }
    let way = |mut at: u64| {
        let mut way = Vec::new();
        while let Some((from, step)) = ways[&at] {
            way.push(step);
            at = from;
        }
        way.reverse();
        way
    };
    Found {
        states: ways.len(),
        broken: broken
            .into_iter()
            .map(|(promise, at)| (promise, way(at)))
            .collect(),
    }
}
