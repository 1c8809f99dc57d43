//! Whether a history of one key keeps the promises.

pub(crate) mod tests;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use idem_runtime::store::OutcomeKind;

use crate::history::{Ending, Event, Said, What};

/// The promises of a path besides those of every path.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) max_attempts: u16,
    /// The possible outcomes of the last call: `Value`, `Business`, or the kind of a refusal.
    pub(crate) ends: Vec<&'static str>,
    /// The endings of a body whose outcome is unknown.
    pub(crate) unknown: &'static [Ending],
    /// The steps whose effect happens once at most.
    pub(crate) once: &'static [u8],
}

/// The patience of a duplicate, and twice the `claim_deadline`: a call that has reconciled an earlier attempt
/// claims again.
const BEFORE_THE_BODY: Duration = Duration::from_secs(5 + 2 * 2);

/// The patience of an overtaken call, and the `complete_deadline`.
const AFTER_THE_BODY: Duration = Duration::from_secs(5 + 2);

pub(crate) fn violations(events: &[Event], rules: &Rules) -> Vec<String> {
    let checks = [
        overlap(events),
        fences(events),
        answers(events),
        lost(events),
        attempts(events, rules),
        unknown(events, rules),
        steps_again(events),
        steps_twice(events, rules),
        steps_differ(events),
        steps_unstored(events),
        steps_without_a_lease(events),
        budgets(events),
        idle(events),
        end(events, rules),
        granted_twice(events),
        released(events, rules),
    ];
    checks.into_iter().flatten().collect()
}

/// 1. At most one valid claim: a body starts beside another only when the lease of that one is over.
fn overlap(events: &[Event]) -> Option<String> {
    let mut leases = HashMap::new();
    let mut running: Vec<(u32, u64)> = Vec::new();
    for event in events {
        match event.what {
            What::Granted { fence, until, .. } => {
                leases.insert(fence, until);
            }
            What::Start { call, fence, .. } => {
                for (other, held) in &running {
                    if leases.get(held).is_none_or(|until| *until > event.store) {
                        return Some(format!(
                            "call {call} starts while the lease of call {other} lasts"
                        ));
                    }
                }
                running.push((call, fence));
            }
            What::End { call, .. } => running.retain(|(other, _)| *other != call),
            _ => {}
        }
    }
    None
}

/// 2. A body starts with the fence of a claim to run it, and the fences of starts grow.
fn fences(events: &[Event]) -> Option<String> {
    let mut last = 0;
    let mut granted = Vec::new();
    for event in events {
        match event.what {
            What::Granted {
                fence,
                reconciling: false,
                ..
            } => granted.push(fence),
            What::Start { call, fence, .. } if !granted.contains(&fence) => {
                return Some(format!("call {call} starts without a claim"));
            }
            What::Start { call, fence, .. } if fence <= last => {
                return Some(format!(
                    "call {call} starts with fence {fence} after {last}"
                ));
            }
            What::Start { fence, .. } => last = fence,
            _ => {}
        }
    }
    None
}

/// 3. All answers are one, except a caller's own answer whose storing was reported to have failed; every answer
///    is that of a body that ran; and no caller whose body succeeded receives an error of another.
fn answers(events: &[Event]) -> Option<String> {
    let mut first: Option<(u32, &Said)> = None;
    let mut far = HashMap::new();
    let mut unsaved = HashMap::new();
    let (mut started, mut succeeded) = (Vec::new(), Vec::new());
    for event in events {
        match &event.what {
            What::Called { call, far: is_far } => {
                far.insert(*call, *is_far);
            }
            What::Start { call, .. } => started.push(*call),
            What::End { call, how } => {
                unsaved.insert(*call, false);
                if *how == Ending::Value {
                    succeeded.push(*call);
                }
            }
            What::Unsaved { far: is_far } => {
                for (call, unsaved) in &mut unsaved {
                    *unsaved |= far.get(call) == Some(is_far);
                }
            }
            What::Returned { call, said } => {
                let own = unsaved.remove(call);
                let (Said::Value(run) | Said::Business(run)) = said else {
                    continue;
                };
                if !started.contains(run) {
                    return Some(format!("call {call} got {said:?}, and no such body ran"));
                }
                if matches!(said, Said::Business(_)) && succeeded.contains(call) {
                    return Some(format!("call {call} succeeded, and got {said:?}"));
                }
                if run == call && own == Some(true) {
                    continue;
                }
                match first {
                    Some((other, answer)) if answer != said => {
                        return Some(format!(
                            "call {call} got {said:?}, and call {other} {answer:?}"
                        ));
                    }
                    Some(_) => {}
                    None => first = Some((*call, said)),
                }
            }
            _ => {}
        }
    }
    None
}

fn is_answer(outcome: OutcomeKind) -> bool {
    outcome != OutcomeKind::Unknown
}

/// 4. No lost answer: after a stored answer no body starts, and a caller's answer is stored in the end.
fn lost(events: &[Event]) -> Option<String> {
    let (mut stored, mut had, mut left) = (false, false, None);
    for event in events {
        match &event.what {
            What::Stored(outcome) => stored |= is_answer(*outcome),
            What::Reset => (stored, had) = (false, false),
            What::Start { call, .. } if stored => {
                return Some(format!("call {call} starts after an answer was stored"));
            }
            What::Returned { said, .. } => had |= said.is_answer(),
            What::Left(outcome) => left = Some(*outcome),
            _ => {}
        }
    }
    let kept = left.is_some_and(|left| left.is_some_and(is_answer));
    (had && !kept).then(|| format!("an answer was given, and what is left is {left:?}"))
}

/// 5. No more attempts than allowed; and where one is allowed, no more starts. A claim may count and start
///    nothing: it arrived after its caller had given up.
fn attempts(events: &[Event], rules: &Rules) -> Option<String> {
    let max = rules.max_attempts;
    let mut starts = 0;
    for event in events {
        match event.what {
            What::Reset => starts = 0,
            What::Start { call, attempt, .. } => {
                starts += 1;
                if attempt > max || (max == 1 && starts > 1) {
                    return Some(format!(
                        "call {call} starts as attempt {attempt} of {max}, start {starts}"
                    ));
                }
            }
            _ => {}
        }
    }
    None
}

/// 6. After an unknown outcome, from the end of the body on and not only when it is stored, a claim to run is
///    granted only to an owner whose reconcile found that nothing landed, or after a reset.
fn unknown(events: &[Event], rules: &Rules) -> Option<String> {
    let mut is_unknown = false;
    let (mut riddles, mut solved) = (HashMap::new(), Vec::new());
    for event in events {
        match event.what {
            What::Stored(outcome) => is_unknown = !is_answer(outcome),
            What::Reset => is_unknown = false,
            What::Verdict {
                fence,
                not_landed: true,
            } => solved.push(riddles.get(&fence).copied()),
            What::End { how, .. } => is_unknown |= rules.unknown.contains(&how),
            What::Granted {
                owner,
                fence,
                reconciling: true,
                ..
            } => {
                riddles.insert(fence, owner);
                is_unknown = true;
            }
            What::Granted { owner, fence, .. } if is_unknown => {
                if !solved.contains(&Some(owner)) {
                    return Some(format!(
                        "fence {fence} is granted, and the outcome is unknown"
                    ));
                }
                is_unknown = false;
            }
            _ => {}
        }
    }
    None
}

/// 7. A claim that is granted when a step was stored never runs it, until a reset drops the steps.
fn steps_again(events: &[Event]) -> Option<String> {
    let (mut stored, mut handed_over) = (HashSet::new(), HashMap::new());
    for event in events {
        match event.what {
            What::StepStored { step } => {
                stored.insert(step);
            }
            What::StepsDropped => stored.clear(),
            What::Granted { fence, .. } => {
                handed_over.entry(fence).or_insert_with(|| stored.clone());
            }
            What::StepStart { call, step, fence }
                if (handed_over.get(&fence)).is_some_and(|steps| steps.contains(&step)) =>
            {
                return Some(format!("call {call} runs step {step}, which is stored"));
            }
            _ => {}
        }
    }
    None
}

/// 8. A step that runs once, or that is asked about, has its effect once at most, until a reset drops the steps.
fn steps_twice(events: &[Event], rules: &Rules) -> Option<String> {
    let mut first = HashMap::new();
    for event in events {
        match event.what {
            What::StepsDropped => first.clear(),
            What::StepEffect { call, step } if rules.once.contains(&step) => {
                if let Some(other) = first.insert(step, call) {
                    return Some(format!(
                        "step {step} has its effect in call {other} and in call {call}"
                    ));
                }
            }
            _ => {}
        }
    }
    None
}

/// 9. All bodies get the same result of a step, until a reset drops the steps.
fn steps_differ(events: &[Event]) -> Option<String> {
    let mut first = HashMap::new();
    for event in events {
        match event.what {
            What::StepsDropped => first.clear(),
            What::StepGot { call, step, run } => {
                let (other, same) = *first.entry(step).or_insert((call, run));
                if run != same {
                    return Some(format!(
                        "call {call} gets run {run} of step {step}, and call {other} run {same}"
                    ));
                }
            }
            _ => {}
        }
    }
    None
}

/// 10. A body goes on behind a step only when the store has its result.
fn steps_unstored(events: &[Event]) -> Option<String> {
    let mut stored = HashSet::new();
    for event in events {
        match event.what {
            What::StepStored { step } => {
                stored.insert(step);
            }
            What::StepGot { call, step, .. } if !stored.contains(&step) => {
                return Some(format!(
                    "call {call} goes on, and step {step} is not stored"
                ));
            }
            _ => {}
        }
    }
    None
}

/// 11. No step starts in a body whose process knows that its lease is lost.
fn steps_without_a_lease(events: &[Event]) -> Option<String> {
    let (mut far, mut running, mut lost) = (HashMap::new(), Vec::new(), HashSet::new());
    for event in events {
        match &event.what {
            What::Called { call, far: is_far } => {
                far.insert(*call, *is_far);
            }
            What::Start { call, .. } => running.push(*call),
            What::End { call, .. } => running.retain(|other| other != call),
            What::LeaseLost { far: is_far } => {
                let here = running.iter().filter(|call| far.get(call) == Some(is_far));
                // It is that of the first, if there are two.
                lost.extend(here.copied().next());
            }
            What::StepStart { call, step, .. } if lost.contains(call) => {
                return Some(format!(
                    "call {call} starts step {step}, and has lost its lease"
                ));
            }
            _ => {}
        }
    }
    None
}

/// 12. Every call ends, and in time.
fn budgets(events: &[Event]) -> Option<String> {
    let mut open = HashMap::new();
    for event in events {
        let (call, budget) = match &event.what {
            What::Called { call, .. } => {
                open.insert(*call, Some((event.at, BEFORE_THE_BODY)));
                continue;
            }
            // A body may outlive its call.
            What::End { call, .. } => {
                (open.entry(*call)).and_modify(|since| *since = Some((event.at, AFTER_THE_BODY)));
                continue;
            }
            What::Start { call, .. } => (call, open.insert(*call, None)),
            What::Returned { call, .. } => (call, open.remove(call)),
            What::Stuck => return Some("it does not settle".to_owned()),
            _ => continue,
        };
        if let Some(Some((since, budget))) = budget {
            let took = event.at.saturating_sub(since);
            if took > budget {
                return Some(format!("call {call} took {took:?} of {budget:?}"));
            }
        }
    }
    let open = open.keys().min()?;
    Some(format!("call {open} never ended"))
}

/// 13. Nothing leaks: both engines are idle in the end, and nothing holds them when they are let go.
fn idle(events: &[Event]) -> Option<String> {
    for engine in [false, true] {
        let idle = What::Idle {
            far: engine,
            idle: true,
        };
        if !events.iter().any(|event| event.what == idle) {
            return Some(format!("an engine (far: {engine}) is not idle"));
        }
    }
    let gone = events.iter().any(|event| event.what == What::Gone);
    (!gone).then(|| "something holds an engine".to_owned())
}

/// 14. The last call gets one of the outcomes of its path.
fn end(events: &[Event], rules: &Rules) -> Option<String> {
    let last = events.iter().rev().find_map(|event| match &event.what {
        What::Returned { said, .. } => Some(said),
        _ => None,
    });
    let word = match last? {
        Said::Value(_) => "Value",
        Said::Business(_) => "Business",
        Said::Refused(kind) => kind,
        Said::Failed => "Failed",
        Said::Nothing => "Nothing",
    };
    (!rules.ends.contains(&word)).then(|| format!("the last call got {word}"))
}

/// 15. Another owner is granted a claim only when the lease of the last one is over, or when its owner has sent its end.
fn granted_twice(events: &[Event]) -> Option<String> {
    let (mut held, mut ended) = (None, HashSet::new());
    for event in events {
        match event.what {
            What::Granted { owner, until, .. } => match held {
                Some((other, lasts)) if other != owner && lasts > event.store => {
                    return Some(format!(
                        "owner {owner} is granted the claim of owner {other}"
                    ));
                }
                // The reply to a renewal may follow the end.
                _ => held = Some((owner, until)).filter(|_| !ended.contains(&owner)),
            },
            What::Ends(owner, _) => {
                ended.insert(owner);
                held = held.filter(|(other, _)| *other != owner);
            }
            _ => {}
        }
    }
    None
}

/// 16. No owner releases the key after its body gave an answer, or ended with an unknown outcome.
fn released(events: &[Event], rules: &Rules) -> Option<String> {
    let (mut owners, mut calls, mut ended) = (HashMap::new(), HashMap::new(), HashSet::new());
    let is_effect = |how| how == Ending::Value || how == Ending::Business;
    for event in events {
        match event.what {
            What::Granted { owner, fence, .. } => {
                owners.insert(fence, owner);
            }
            What::Start { call, fence, .. } => {
                calls.extend(owners.get(&fence).map(|by| (call, *by)));
            }
            What::End { call, how } if is_effect(how) || rules.unknown.contains(&how) => {
                ended.extend(calls.remove(&call));
            }
            What::Ends(owner, true) if ended.contains(&owner) => {
                return Some(format!("owner {owner} releases the key after its body"));
            }
            _ => {}
        }
    }
    None
}
