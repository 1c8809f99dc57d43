//! Why bodies start a second time.

use super::{Call, Checker, End, Family, Start, What};

/// The percentage of a lease after which it may have lapsed: clocks of servers are slewed.
const LEAST: u64 = 95;

type Run<'a> = (&'a Call, &'a Start);

impl Checker<'_, '_> {
    pub(super) fn second_starts(&mut self) {
        // Which of the earlier starts may have had the claim last.
        let mut holders: Vec<Run<'_>> = Vec::new();
        for run in self.starts.clone() {
            let (call, start) = run;
            let [(_, first), ..] = holders[..] else {
                holders.push(run);
                continue;
            };
            if self.family == Family::Once && !self.settled(first.at, start.at) {
                let why = format!("{call} starts a second body");
                self.broken(What::Twice, first.at, start.at, why);
            }
            let mut earlier = holders.iter().rev();
            let explained = earlier.find_map(|holder| self.explained(*holder, run));
            let late = explained.as_ref().is_some_and(|(_, late)| *late);
            if let Some((why, _)) = explained {
                *self.findings.second_starts.entry(why).or_default() += 1;
            } else {
                let (other, last) = holders[holders.len() - 1];
                let after = (start.at - last.at) / 1_000;
                let why = format!("{call} starts a body {after} ms after {other}");
                self.broken(What::Unexplained, last.at, start.at, why);
            }
            // The claim of a late body may be older than that of the body before.
            if !late {
                holders.clear();
            }
            holders.push(run);
        }
    }

    /// Why a body starts after another one, and its claim's order.
    fn explained(
        &self,
        (owner, holder): Run<'_>,
        (call, start): Run<'_>,
    ) -> Option<(String, bool)> {
        let of = |why: &str| Some((why.to_owned(), false));
        let late = |least| {
            let outages = (self.faults).outages(call.process, call.begun, start.at, least);
            let outage = outages.first()?;
            Some((format!("late: {}", outage.kind), true))
        };
        if self.family == Family::Booked {
            return if owner.answer().is_none() {
                // Its transaction was not committed.
                of("rolled back")
            } else if call.answer().is_none() {
                // Its own claim was older, and is gone with its connection, which a cut of any length ends.
                late(0)
            } else {
                None
            };
        }
        let least = owner.begun + self.promise.lease / 100 * LEAST;
        if let Some((ended, how)) = &holder.end
            && *ended <= start.at
        {
            match how {
                End::Down => return of("system error"),
                End::Panic => return of("panic"),
                // The claim lapses with its lease, unless it becomes an unknown outcome.
                End::Gone if self.family != Family::Unknown && start.at >= least => {
                    return of("dropped");
                }
                End::Unknown if call.reconciled => return of("reconciled"),
                End::Gone | End::Unknown | End::Answer(_) | End::Error(_) => {}
            }
        }
        let mut settlings = self.settlings(owner.begun, start.at).peekable();
        if settlings.peek().is_some() {
            let told = settlings.any(|one| !one.failed);
            return of(if told {
                "reset"
            } else {
                "reset told as failed"
            });
        }
        if self.faults.lapsed(owner.begun, start.at) {
            return of("lapse");
        }
        if start.at >= least && self.faults.killed(owner.process, owner.begun, start.at) {
            return of("killed");
        }
        // It lapses in an outage, or before connections are made anew.
        let near = (holder.at).max(call.begun.saturating_sub(self.promise.lease));
        let lapse = self.promise.lapse();
        let outages = (self.faults).outages(owner.process, near, start.at, lapse);
        let lapsed = outages.iter().find(|outage| outage.to >= owner.begun);
        lapsed.map_or_else(|| late(lapse), |outage| of(&outage.kind))
    }
}
