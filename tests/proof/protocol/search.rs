//! A breadth-first search of all events, so that counterexamples are the shortest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;

/// The result of a search.
pub(crate) struct Found<P, S> {
    pub(crate) states: usize,
    /// For each promise that was broken, the shortest way there.
    pub(crate) broken: Vec<(P, Vec<S>)>,
}

impl<P: Copy + PartialEq, S> Found<P, S> {
    pub(crate) fn way(&self, promise: P) -> Option<&[S]> {
        let found = self.broken.iter().find(|(broken, _)| *broken == promise);
        found.map(|(_, way)| &way[..])
    }
}

/// Explores every state from this one on, by steps and their effects. `breaks` is called with each state and its steps,
/// and reports promises that were broken on the way to it. States are distinguished by 64-bit hashes; of a few million
/// states, two are taken for one with a probability below one in a million.
pub(crate) fn search<W: Clone + Hash, P: Copy + PartialEq, S: Copy>(
    world: W,
    possible: impl Fn(&W, &mut Vec<S>),
    take: impl Fn(&mut W, S),
    breaks: impl Fn(&W, &[S], &mut dyn FnMut(P)),
) -> Found<P, S> {
    let hasher = FixedState::default();
    let mut ways: HashMap<u64, Option<(u64, S)>, FixedState> = HashMap::default();
    let mut broken: Vec<(P, u64)> = Vec::new();
    let hash = hasher.hash_one(&world);
    ways.insert(hash, None);
    let (mut layer, mut next, mut steps) = (vec![(hash, world)], Vec::new(), Vec::new());
    while !layer.is_empty() {
        for (from, world) in layer.drain(..) {
            possible(&world, &mut steps);
            breaks(&world, &steps, &mut |promise| {
                if !broken.iter().any(|(known, _)| *known == promise) {
                    broken.push((promise, from));
                }
            });
            for step in steps.drain(..) {
                let mut world = world.clone();
                take(&mut world, step);
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
    let broken = broken.into_iter().map(|(promise, at)| (promise, way(at)));
    Found {
        broken: broken.collect(),
        states: ways.len(),
    }
}
