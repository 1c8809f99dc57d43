//! Calls that are interrupted at points of their steps, process by process: five steps in sequence, 28 in parallel, or
//! three of which one writes a row in a transaction.
//!
//! A process's reports are checked as they come; [`books`](crate::books) checks them together.

use std::collections::{BTreeSet, VecDeque};

use idem_tests::seeded::Seeded;

use crate::books::once;
use crate::fleet::{Fleet, Process, Said};
use crate::site::Leases;

const STEPS: [(&str, &[&str]); 5] = [
    ("charge", PLAIN),
    // Runs at most once.
    ("mail", BEGUN),
    // Is asked about.
    ("label", BEGUN),
    ("stock", PLAIN),
    ("ship", PLAIN),
];

const PLAIN: &[&str] = &["part", "effect", "ending", "appended", "recorded"];

/// Before its beginning is sent, and between its record and the reply.
const BEGUN: &[&str] = &[
    "beginning",
    "begun",
    "part",
    "effect",
    "ending",
    "appended",
    "recorded",
];

/// The points that an undisturbed call passes, in their order.
pub(crate) fn points() -> Vec<String> {
    let steps = STEPS.iter().flat_map(|(step, places)| {
        let places = places.iter();
        places.map(move |place| format!("{step}/{place}"))
    });
    let begins = ["claiming", "claimed", "start"].map(str::to_owned);
    let ends = ["completing", "completed"].map(str::to_owned);
    begins.into_iter().chain(steps).chain(ends).collect()
}

/// The step of one run at most, open after kills here: the outcome is unknown.
fn opens<'p>(key: &str, point: &'p str) -> Option<&'p str> {
    let (step, place) = point.split_once('/')?;
    let is_open = ["begun", "part", "effect", "ending"].contains(&place);
    (is_open && once(key).iter().any(|once| once == step)).then_some(step)
}

/// The points of five steps where kills leave no unknown outcome.
pub(crate) fn known_points() -> Vec<String> {
    let mut points = points();
    points.retain(|point| opens("k", point).is_none());
    points
}

/// The number of steps of a call in parallel.
pub(crate) const MANY: usize = 28;

/// What befalls a process whose calls stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill,
    /// It goes on when the next process's calls stop or have ended.
    Stall,
}

/// The points at which a key's calls stop, attempt by attempt.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// At these points, if they pass them.
    At(VecDeque<String>),
    /// At each of these, each once.
    Each(Vec<String>),
    /// At any point, in so many attempts.
    Random(usize),
    /// Stops at points of about half of the parallel steps, repeatedly.
    Parallel(usize),
}

impl Plan {
    pub(crate) fn at(points: &[&str]) -> Self {
        Self::At(points.iter().copied().map(str::to_owned).collect())
    }

    /// The points of which the next attempt stops at the first.
    fn next(&mut self, seeded: &mut Seeded) -> Vec<String> {
        match self {
            Self::At(points) => points.pop_front().into_iter().collect(),
            Self::Each(points) => points.clone(),
            Self::Random(0) | Self::Parallel(0) => Vec::new(),
            Self::Random(left) => {
                *left -= 1;
                let mut points = points();
                points.retain(|_| seeded.percent(15));
                points
            }
            Self::Parallel(left) => {
                *left -= 1;
                let mut stops = Vec::new();
                for step in 0..MANY {
                    let place = usize::try_from(seeded.below(6)).expect("below six");
                    if let Some(place) = ["part", "effect", "asked"].get(place) {
                        stops.push(format!("s{step}/{place}"));
                    }
                }
                stops
            }
        }
    }
}

/// A key, its plan, and what its calls said. The name of the key says which body it has.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) key: String,
    plan: Plan,
    told: Vec<String>,
    /// Where the last attempt has stopped.
    stopped: BTreeSet<String>,
    /// Where the attempt of a stalled process has stopped.
    zombie: BTreeSet<String>,
    recorded: BTreeSet<String>,
    /// The steps that run once, have begun, and are not recorded.
    open: BTreeSet<String>,
    pub(crate) end: Option<Said>,
}

impl Story {
    pub(crate) fn new(key: impl Into<String>, plan: Plan) -> Self {
        Self {
            key: key.into(),
            plan,
            told: Vec::new(),
            stopped: BTreeSet::new(),
            zombie: BTreeSet::new(),
            recorded: BTreeSet::new(),
            open: BTreeSet::new(),
            end: None,
        }
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!("{why}: {self:#?}");
    }

    /// Calls the key; the call stops at these points.
    pub(crate) fn call(&self, process: &mut Process, stops: &[String], seeded: &mut Seeded) {
        let body = match &*self.key {
            key if key.starts_with('k') => "five",
            key if key.starts_with("many") => "many",
            key if key.starts_with("once") => "many-once",
            _ => "book",
        };
        let (key, seed) = (&self.key, seeded.below(u64::MAX));
        let line = format!("call {key} {body} {seed} {}", stops.join(" "));
        process.send(line.trim_end());
    }

    /// The number of its lines that show a call at rest: it stops in one step, or in each that is not recorded.
    fn width(&self) -> usize {
        if self.is_parallel() { MANY } else { 1 }
    }

    fn is_parallel(&self) -> bool {
        self.key.starts_with("many") || self.key.starts_with("once")
    }

    /// The end of the call is the same for all callers. It is unknown where a step that runs once may have run.
    fn ends(&mut self, end: &Said) {
        let unknown = Said::End("Unknown".to_owned());
        if !matches!(end, Said::Answer(_)) && *end != unknown {
            self.fail("it neither stops nor ends");
        }
        if (*end == unknown) == self.open.is_empty() {
            self.fail("its end does not follow from its stops");
        }
        if self.end.get_or_insert_with(|| end.clone()) != end {
            self.fail("it has another end");
        }
    }

    /// A result of a step of the attempt that holds the claim: it reads recorded steps, and runs the rest.
    fn result(&mut self, said: &Said) {
        let (step, read) = match said {
            Said::Kept(step, _) => (step, false),
            Said::Read(step, _) => (step, true),
            // The call ends, and on a busy machine its body is still being polled after the moment of that step.
            Said::Refused(step, kind) if kind == "Unknown" && self.open.contains(step) => return,
            _ => self.fail("a step is refused"),
        };
        if self.recorded.insert(step.clone()) == read {
            self.fail("a recorded step runs again, or one is read that is not recorded");
        }
        self.open.remove(step);
    }

    /// A new attempt's reports: it stops at these points, or the call ends.
    pub(crate) fn attempt(&mut self, number: usize, said: &[Said], stops: &[String]) {
        let is_first = self.told.is_empty();
        let told = format!("process {number}, to stop at {stops:?}: {said:?}");
        self.told.push(told);
        self.stopped.clear();
        let mut has_ended = false;
        let mut is_refused = false;
        for line in said {
            is_refused |= matches!(line, Said::Refused(..));
            match line {
                Said::At(point) if stops.contains(point) => {
                    self.stopped.insert(point.clone());
                }
                Said::Answer(_) | Said::End(_) => {
                    self.ends(line);
                    has_ended = true;
                }
                line => self.result(line),
            }
        }
        if has_ended {
            // A step that is unknown ends a call whose other steps stop.
            self.stopped.clear();
        } else if self.stopped.is_empty() || is_refused {
            self.fail("it neither stops nor ends");
        }
        let mut passes = points().into_iter().filter(|point| stops.contains(point));
        if is_first
            && passes
                .next()
                .is_some_and(|point| !self.stopped.contains(&point))
        {
            self.fail("an undisturbed call passes all points");
        }
        let must_stop = is_first && stops.len() == 1 || stops == ["label/asked"];
        if must_stop && has_ended {
            self.fail("it passes the point");
        }
        for point in &self.stopped {
            self.open.extend(opens(&self.key, point).map(str::to_owned));
            if let Some(step) = point.strip_suffix("/appended") {
                self.recorded.insert(step.to_owned());
            }
        }
        if let Plan::Each(points) = &mut self.plan {
            points.retain(|point| !self.stopped.contains(point));
        }
    }

    /// The reports of a stalled process that stopped there and woke up. If its call has been taken over, no step
    /// starts, and no result is recorded.
    fn wakes(&mut self, number: usize, mut said: &[Said], at: &BTreeSet<String>) {
        let told = format!("process {number} wakes up: {said:?}");
        self.told.push(told);
        // The store had recorded it.
        if let [Said::Kept(step, _), rest @ ..] = said
            && at.contains(&format!("{step}/appended"))
        {
            said = rest;
        }
        let (last, steps) = said.split_last().expect("it ends");
        if !self.is_taken_over() {
            for step in steps {
                self.result(step);
            }
            return self.ends(last);
        }
        let running = "Running".to_owned();
        let mut refused = 0;
        for step in steps {
            match step {
                Said::Refused(_, kind) if *kind == running => refused += 1,
                // It had read them with its claim.
                Said::Read(step, _) if self.recorded.contains(step) => {}
                _ => self.fail("its call is taken over"),
            }
        }
        if self.is_parallel() && refused < at.len() {
            self.fail("a step that stopped is not refused");
        }
        let answered =
            self.end.is_some() || at.contains("completed") || self.stopped.contains("completed");
        // A body that was refused a step returns the refusal.
        if refused == 0 && answered {
            self.ends(last);
        } else if *last != Said::End(running) {
            self.fail("its call is taken over");
        }
    }

    /// Whether the call was granted to the stalled process's successor, or ended.
    fn is_taken_over(&self) -> bool {
        !self.stopped.contains("claiming")
    }

    /// The effects of a woken process on an overtaken call: those of the steps in which it stopped, and, if it does not
    /// know that its lease is lost, that of the next plain one, before the store refuses to record it.
    fn check_effects(&self, leases: Leases, mut new: Vec<&str>, at: &BTreeSet<String>) {
        let expected: Vec<_> = (at.iter())
            .filter_map(|at| at.strip_suffix("/begun").or(at.strip_suffix("/part")))
            .collect();
        if expected.is_empty() && leases == Leases::Aged && new.len() == 1 {
            new.retain(|step| !STEPS.contains(&(*step, PLAIN)));
        }
        new.sort_unstable_by_key(|step| expected.iter().position(|other| other == step));
        if new != expected {
            self.fail(&format!("it had effects behind {at:?}: {new:?}"));
        }
    }
}

/// Stories of calls with five steps. Their keys are their own: the fleet has had processes with other calls.
pub(crate) fn five(fleet: &Fleet, plans: Vec<Plan>) -> Vec<Story> {
    let named = plans.into_iter().enumerate();
    let key = |number| format!("k{}-{number}", fleet.processes());
    named
        .map(|(number, plan)| Story::new(key(number), plan))
        .collect()
}

/// Stories of calls with parallel steps. In every other one some run at most once.
pub(crate) fn parallel(of_each: usize, faults: usize) -> Vec<Story> {
    let numbers = 0..of_each;
    let keys = numbers.flat_map(|number| ["many", "once"].map(|kind| format!("{kind}{number}")));
    keys.map(|key| Story::new(key, Plan::Parallel(faults)))
        .collect()
}

/// Interrupts each story's calls with these faults until none stops any more; then calls each key again, in the last
/// process and in one more.
pub(crate) fn tell(
    fleet: &mut Fleet,
    stories: &mut [Story],
    faults: &[Fault],
    seeded: &mut Seeded,
) {
    let aged = fleet.leases == Leases::Aged;
    let mut stalled = None;
    for fault in faults.iter().cycle() {
        // Calls of a process that follows a stalled one wait until its leases have lapsed.
        let mut process = fleet.spawn(!aged && stalled.is_some());
        let stopped = call_all(fleet, &mut process, stories, seeded);
        if let Some(mut zombie) = stalled.take() {
            wake(fleet, &mut zombie, stories);
        }
        if stopped == 0 {
            return duplicates(fleet, &mut process, stories, seeded);
        }
        match fault {
            Fault::Kill => fleet.kill(&mut process),
            Fault::Stall => process.stall(),
        }
        for story in &mut *stories {
            story.told.push(format!("{fault:?}"));
            // Its reports before its end are exactly the checked ones.
            assert_eq!(process.said_of(&story.key), [], "{story:#?}");
            if *fault == Fault::Stall {
                story.zombie.clone_from(&story.stopped);
            }
        }
        if *fault == Fault::Stall {
            stalled = Some(process);
        }
        if aged {
            fleet.site.age();
        }
    }
}

/// Calls each key again, in this process and another. This process may have the answers. Nothing happens.
fn duplicates(
    fleet: &mut Fleet,
    process: &mut Process,
    stories: &mut [Story],
    seeded: &mut Seeded,
) {
    let (effects, mut other) = (fleet.effects(), fleet.spawn(false));
    for process in [process, &mut other] {
        assert_eq!(call_all(fleet, process, stories, seeded), 0);
    }
    assert_eq!(fleet.effects(), effects, "a duplicate has an effect");
}

/// Calls each key. Returns the number of stopping calls.
fn call_all(
    fleet: &mut Fleet,
    process: &mut Process,
    stories: &mut [Story],
    seeded: &mut Seeded,
) -> usize {
    let mut all_stops = Vec::new();
    for story in &mut *stories {
        let stops = story.plan.next(seeded);
        story.call(process, &stops, seeded);
        all_stops.push(stops);
    }
    let calls = stories.iter().map(|story| (&story.key, story.width()));
    fleet.rests(process, calls);
    for (story, stops) in stories.iter_mut().zip(&all_stops) {
        let said = process.said_of(&story.key);
        story.attempt(process.number, &said, stops);
    }
    let stops = stories.iter().filter(|story| !story.stopped.is_empty());
    stops.count()
}

/// Wakes a stalled process, ends its calls, kills it before background work.
fn wake(fleet: &mut Fleet, zombie: &mut Process, stories: &mut [Story]) {
    let before = fleet.effects();
    zombie.wake();
    let mut woken = Vec::new();
    for story in stories {
        let at = std::mem::take(&mut story.zombie);
        if at.is_empty() {
            continue;
        }
        zombie.send(&format!("go {}", story.key));
        woken.push((story, at));
    }
    fleet.rests(zombie, woken.iter().map(|(story, _)| (&story.key, 1)));
    let after = fleet.effects();
    for (story, at) in woken {
        let said = zombie.said_of(&story.key);
        if story.is_taken_over() {
            let new = after.iter().flat_map(|(of, had)| {
                let more = had.len() - before.get(of).map_or(0, Vec::len);
                let (key, step) = of;
                std::iter::repeat_n(step.as_str(), if *key == story.key { more } else { 0 })
            });
            story.check_effects(fleet.leases, new.collect(), &at);
        }
        story.wakes(zombie.number, &said, &at);
    }
    fleet.kill(zombie);
}
