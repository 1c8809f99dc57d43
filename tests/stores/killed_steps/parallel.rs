//! Calls with 32 steps at once, interrupted at random.

use std::collections::{BTreeMap, BTreeSet};

use idem_tests::seeded::Seeded;

use crate::fleet::{Fleet, Process, Said};

/// The number of steps of a call.
pub(crate) const MANY: usize = 32;

/// Calls that have not ended yet.
#[derive(Debug)]
struct Open {
    /// All keys: those whose names begin with `once` have steps that run at most once.
    all: Vec<String>,
    open: BTreeSet<String>,
}

impl Open {
    fn new(of_each: usize) -> Self {
        let numbers = 0..of_each;
        let all: Vec<_> = numbers
            .flat_map(|number| ["many", "once"].map(|kind| format!("{kind}{number}")))
            .collect();
        let open = all.iter().cloned().collect();
        Self { all, open }
    }

    /// Calls each of these keys; `stops`: the points at which a call stops.
    fn call(
        process: &mut Process,
        keys: impl Iterator<Item = String>,
        seeded: &mut Seeded,
        mut stops: impl FnMut(&mut Seeded) -> String,
    ) {
        for key in keys {
            let body = if key.starts_with("once") {
                "many-once"
            } else {
                "many"
            };
            let seed = seeded.below(u64::MAX);
            let line = format!("call {key} {body} {seed} {}", stops(seeded));
            process.send(line.trim_end());
        }
    }

    /// A call ends with an answer, or is unknown. It is not over when another one seems to run: the last command of a
    /// killed process may have been executed after its lease was ended.
    fn end(&mut self, key: &str, said: &Said) {
        if said.is_end() && *said != Said::End("Running".to_owned()) {
            self.open.remove(key);
        }
    }

    /// Calls each key in two more processes: all have their answers, and nothing happens.
    fn duplicates(&self, fleet: &mut Fleet, seeded: &mut Seeded) {
        let effects = fleet.ledger.effects();
        for _ in 0..2 {
            let mut process = fleet.spawn(false);
            Self::call(&mut process, self.all.iter().cloned(), seeded, |_| {
                String::new()
            });
            fleet.rests(&mut process, self.all.iter().map(|key| &**key));
            for key in &self.all {
                let said = process.said_of(key);
                let is_end = |said: &Said| {
                    matches!(said, Said::Answer(_)) || *said == Said::End("Unknown".to_owned())
                };
                assert!(
                    said.len() == 1 && said.iter().all(is_end),
                    "a duplicate of {key} gets {said:?}"
                );
            }
        }
        assert_eq!(fleet.ledger.effects(), effects, "a duplicate has an effect");
    }
}

/// Kills each process when so many steps have been recorded in it, until all calls have ended. Returns the number of
/// kills.
pub(crate) fn kill(fleet: &mut Fleet, of_each: usize, seeded: &mut Seeded) -> usize {
    let (mut calls, mut kills) = (Open::new(of_each), 0);
    while !calls.open.is_empty() {
        let mut process = fleet.spawn(false);
        let mut open = calls.open.clone();
        Open::call(&mut process, open.iter().cloned(), seeded, |_| {
            String::new()
        });
        let mut left = seeded.below(8);
        while !open.is_empty() {
            let (key, said) = fleet.line(&mut process);
            calls.end(&key, &said);
            if said.is_end() {
                open.remove(&key);
            }
            match said {
                Said::Kept(..) if left == 0 => break,
                Said::Kept(..) => left -= 1,
                _ => {}
            }
        }
        let said = fleet.said.len();
        fleet.kill(&mut process);
        for (_, key, said) in &fleet.said[said..] {
            calls.end(key, said);
        }
        kills += 1;
        fleet.site.age();
    }
    calls.duplicates(fleet, seeded);
    kills
}

/// Stalls each process when each of its steps is recorded or stops, and lets it go on when the next one has come as
/// far. Returns the number of steps that it then refused.
pub(crate) fn stall(
    fleet: &mut Fleet,
    of_each: usize,
    stalls: usize,
    seeded: &mut Seeded,
) -> usize {
    let mut calls = Open::new(of_each);
    let (mut stalled, mut refused): (Option<Process>, _) = (None, 0);
    for round in 0..=stalls {
        let mut process = fleet.spawn(false);
        let open: Vec<_> = calls.open.iter().cloned().collect();
        Open::call(&mut process, open.iter().cloned(), seeded, |seeded| {
            if round == stalls {
                return String::new();
            }
            let points = (0..MANY).filter_map(|step| {
                // About half of them, so that each attempt records some.
                let place = ["part", "effect", "asked", "", "", ""];
                let place = place[usize::try_from(seeded.below(6)).expect("below six")];
                (!place.is_empty()).then(|| format!("s{step}/{place}"))
            });
            points.collect::<Vec<_>>().join(" ")
        });
        rest(fleet, &mut process, &mut calls, &open);
        if let Some(mut zombie) = stalled.take() {
            refused += wake(fleet, &mut zombie);
        }
        process.stall();
        fleet.site.age();
        stalled = Some(process);
    }
    assert!(calls.open.is_empty(), "the last attempt ends: {calls:?}");
    calls.duplicates(fleet, seeded);
    refused
}

/// Reads until each step of these calls is recorded or stops, or the call has ended.
fn rest(fleet: &mut Fleet, process: &mut Process, calls: &mut Open, keys: &[String]) {
    let mut rested: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    let moves = |calls: &Open, rested: &BTreeMap<String, BTreeSet<String>>| {
        keys.iter().any(|key| {
            let steps = rested.get(key).map_or(0, BTreeSet::len);
            // With all of its steps recorded, the call ends.
            calls.open.contains(key) && steps < MANY
        })
    };
    let mut stops = BTreeSet::new();
    while moves(calls, &rested)
        || keys
            .iter()
            .any(|key| calls.open.contains(key) && !stops.contains(key))
    {
        let (key, said) = fleet.line(process);
        calls.end(&key, &said);
        let step = match said {
            Said::At(point) => {
                stops.insert(key.clone());
                let (step, _) = point.split_once('/').expect("a point of a step");
                step.to_owned()
            }
            Said::Kept(step, _) | Said::Read(step, _) => step,
            other => {
                assert!(!calls.open.contains(&key), "{key}: {other:?}");
                continue;
            }
        };
        rested.entry(key).or_default().insert(step);
    }
    // Read from here on: what it says when it has woken up.
    for key in keys {
        process.said_of(key);
    }
    process.stopped = stops;
}

/// Wakes a stalled process up, whose calls have been taken over. Returns the number of steps that it refused.
fn wake(fleet: &mut Fleet, zombie: &mut Process) -> usize {
    zombie.wake();
    let stopped = std::mem::take(&mut zombie.stopped);
    let ended: BTreeSet<_> = fleet
        .said
        .iter()
        .filter(|(process, _, said)| *process == zombie.number && said.is_end())
        .map(|(_, key, _)| key.clone())
        .collect();
    let keys: Vec<_> = stopped.difference(&ended).cloned().collect();
    for key in &keys {
        zombie.send(&format!("go {key}"));
    }
    fleet.rests(zombie, keys.iter().map(|key| &**key));
    let mut refused = 0;
    for key in &keys {
        for said in zombie.said_of(key) {
            match said {
                Said::Refused(_, kind) => {
                    assert_eq!(kind, "Running", "{key}");
                    refused += 1;
                }
                said => assert!(
                    said.is_end() && !matches!(said, Said::Answer(_)),
                    "a zombie says of {key}: {said:?}"
                ),
            }
        }
    }
    fleet.kill(zombie);
    refused
}
