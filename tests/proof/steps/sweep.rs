//! Every fault at every step of a path.

use std::pin::Pin;
use std::sync::Arc;

use idem_runtime::EngineBuilder;
use idem_runtime::testing::Fault;
use idem_tests::bounds::is_full;
use idem_tests::fixture::Fixture;

use crate::calls::Hook;
use crate::checker::{Rules, violations};
use crate::history::Ending;
use crate::parts::Part;
use crate::simulation::{End, Simulation, Strike, When};

type Script =
    dyn for<'a> Fn(&'a Simulation) -> Pin<Box<dyn Future<Output = ()> + 'a>> + Send + Sync;

/// How a path sets both engines.
pub(crate) type Set = dyn Fn(EngineBuilder) -> EngineBuilder + Send + Sync;

/// A path through the library: its calls and its promises.
#[derive(Clone)]
pub(crate) struct Path {
    pub(crate) name: &'static str,
    /// Few steps: it is swept with two faults as well.
    pub(crate) in_pairs: bool,
    script: Arc<Script>,
    set: Arc<Set>,
    /// How later calls reconcile earlier ones.
    hook: Option<Hook>,
    parts: &'static [Part],
    rules: Rules,
    at_worst: &'static [&'static str],
}

impl Path {
    /// A path whose last call gets one of these.
    pub(crate) fn new(
        name: &'static str,
        ends: &'static [&'static str],
        script: impl AsyncFn(&Simulation) + Send + Sync + 'static,
    ) -> Self {
        let script = Arc::new(script);
        Self {
            name,
            in_pairs: false,
            script: Arc::new(move |simulation| {
                let script = Arc::clone(&script);
                Box::pin(async move { script(simulation).await })
            }),
            set: Arc::new(|engine| engine),
            hook: None,
            parts: &[],
            rules: Rules {
                max_attempts: 5,
                ends: ends.to_vec(),
                unknown: &[Ending::Unknown],
                once: &[],
            },
            at_worst: &[],
        }
    }

    /// Swept with two faults as well.
    pub(crate) fn in_pairs(self) -> Self {
        Self {
            in_pairs: true,
            ..self
        }
    }

    /// With bodies of these steps. The effects of those in `once` happen once at most.
    pub(crate) fn parts(self, parts: &'static [Part], once: &'static [u8]) -> Self {
        let rules = Rules { once, ..self.rules };
        Self {
            parts,
            rules,
            ..self
        }
    }

    /// Or one of these, where an abandoned claim stays granted.
    pub(crate) fn at_worst(self, ends: &'static [&'static str]) -> Self {
        Self {
            at_worst: ends,
            ..self
        }
    }

    /// The outcome of a body that ended like this is unknown.
    pub(crate) fn unknown_after(self, unknown: &'static [Ending]) -> Self {
        let rules = Rules {
            unknown,
            ..self.rules
        };
        Self { rules, ..self }
    }

    /// What holds under these blows.
    fn rules(&self, strikes: &[Strike]) -> Rules {
        let mut rules = self.rules.clone();
        let has = |fault| strikes.iter().any(|strike| strike.fault == fault);
        // A call that receives an answer where none is stored gives its own up, and its key lapses.
        if has(Fault::TooLarge) {
            rules.unknown = &[];
        }
        if has(Fault::TooLarge) || has(Fault::Held) || strikes.len() > 1 {
            rules.ends = [&rules.ends, self.at_worst].concat();
        }
        rules
    }

    /// With engines that are set like this.
    pub(crate) fn set(
        self,
        set: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static,
    ) -> Self {
        let before = Arc::clone(&self.set);
        Self {
            set: Arc::new(move |engine| set(before(engine))),
            ..self
        }
    }

    /// With later calls that reconcile earlier ones like this.
    pub(crate) fn hook(self, hook: Option<Hook>) -> Self {
        Self { hook, ..self }
    }

    /// With so many attempts.
    pub(crate) fn attempts(self, max_attempts: u16) -> Self {
        let rules = Rules {
            max_attempts,
            ..self.rules
        };
        Self { rules, ..self }
    }
}

/// The faults: each that can strike, and for a held operation every moment at which it may arrive.
const BLOWS: [(Fault, When); 13] = [
    (Fault::Lost, When::Soon),
    (Fault::ReplyLost, When::Soon),
    (Fault::Hangs, When::Soon),
    (Fault::ReplyHangs, When::Soon),
    (Fault::Twice, When::Soon),
    (Fault::Refused, When::Soon),
    (Fault::TooLarge, When::Soon),
    (Fault::Held, When::Soon),
    (Fault::Held, When::Late),
    (Fault::Held, When::Last),
    (Fault::ReplyHeld, When::Soon),
    (Fault::ReplyHeld, When::Late),
    (Fault::ReplyHeld, When::Last),
];

/// Of the later calls the first operations are struck as well.
const BEYOND: usize = 3;

/// The steps that are worth a blow: of operations that are sent again and again the first two and the
/// last.
fn steps(operations: &[String], sent: usize) -> Vec<usize> {
    let same = |one: usize, other: usize| operations.get(one) == operations.get(other);
    let many = |step: usize| step > 1 && same(step, step - 1) && same(step, step - 2);
    let last = |step: usize| !same(step, step + 1);
    let steps = 0..(sent + BEYOND).min(operations.len());
    steps.filter(|&step| !many(step) || last(step)).collect()
}

/// A path, the faults that strike it, and the result.
struct Case {
    end: End,
    /// How many operations the path itself sent.
    sent: usize,
}

impl Case {
    async fn run(fixture: Fixture, ticks: bool, path: &Path, strikes: &[Strike]) -> Self {
        let simulation = Simulation::new(fixture, ticks, (&*path.set, path.parts), strikes);
        (path.script)(&simulation).await;
        simulation.settle().await;
        let sent = simulation.sent();
        simulation.later(path.hook).await;
        let end = simulation.close().await;
        Self { end, sent }
    }

    /// Panics with everything that there is to know, if something is wrong.
    fn check(&self, path: &Path, strikes: &[Strike]) {
        let found = violations(&self.end.history.all(), &path.rules(strikes));
        let operations = &self.end.operations;
        let strikes: Vec<_> = strikes
            .iter()
            .map(|strike| {
                let operation = operations.get(strike.step);
                format!("{strike:?} ({operation:?})")
            })
            .collect();
        assert!(
            found.is_empty(),
            "{found:#?}\nstruck by {strikes:#?}\nsent {operations:?}\n{:?}",
            self.end.history
        );
    }
}

/// Whether a fault is worth combining with another one. Not a held operation that arrives in time; and not a store that
/// reports an answer as too large where no answer is: the call believes it and gives its own answer up. In an ordinary
/// run, held operations arrive as late as they can, and nothing hangs: to the store, a hanging command is a lost one.
fn is_one_of_two(strike: &Strike) -> bool {
    let held_for = [When::Late, When::Last];
    let held_for = if is_full() {
        &held_for[..]
    } else {
        &held_for[1..]
    };
    let matters = is_full() || !hangs(strike);
    strike.fault != Fault::TooLarge
        && matters
        && (!strike.is_held() || held_for.contains(&strike.when))
}

/// Whether an ordinary run repeats a fault on another store. Not a hanging command, because to the store it is lost,
/// nor a held one in time, because that is undisturbed.
fn differs_by_store(strike: &Strike) -> bool {
    is_full() || !(hangs(strike) || strike.is_held() && strike.when == When::Soon)
}

fn hangs(strike: &Strike) -> bool {
    matches!(strike.fault, Fault::Hangs | Fault::ReplyHangs)
}

fn strikes(step: usize) -> impl Iterator<Item = Strike> {
    let strike = move |(fault, when)| Strike { step, fault, when };
    BLOWS.into_iter().map(strike)
}

/// Goes through a path once for every single blow. `ticks` is said of a store beside the one in memory.
pub(crate) async fn once(path: &Path, fixture: impl AsyncFn() -> Fixture, ticks: bool) {
    let calm = Case::run(fixture().await, ticks, path, &[]).await;
    calm.check(path, &[]);
    for step in steps(&calm.end.operations, calm.sent) {
        for strike in strikes(step).filter(|strike| !ticks || differs_by_store(strike)) {
            let case = Case::run(fixture().await, ticks, path, &[strike]).await;
            case.check(path, &[strike]);
        }
    }
}

/// Goes through a path once for every two blows, in memory.
pub(crate) async fn twice(path: &Path) {
    let calm = Case::run(Fixture::memory(), false, path, &[]).await;
    let steps = steps(&calm.end.operations, calm.sent);
    for (place, second) in steps.iter().enumerate() {
        for first in &steps[..place] {
            for first in strikes(*first).filter(is_one_of_two) {
                for second in strikes(*second).filter(is_one_of_two) {
                    let both = [first, second];
                    let case = Case::run(Fixture::memory(), false, path, &both).await;
                    case.check(path, &both);
                }
            }
        }
    }
}
