//! Why bodies start a second time.

use super::{Checker, What};
use crate::history::{Call, How, Start, Told};
use crate::mix::Family;

impl Checker<'_, '_> {
    pub(super) fn second_starts(&mut self) {
        let starts = &self.key.starts;
        // Which of the earlier starts may have had the claim last.
        let mut holders: Vec<&Start> = Vec::new();
        for start in starts {
            if holders.is_empty() {
                holders.push(start);
                continue;
            }
            let previous = holders[0].at;
            if self.family == Family::Once && !self.settled(previous, start.at) {
                let why = format!("call {}/{} starts a second body", start.process, start.id);
                self.broken(What::Twice, previous, start.at, why);
            }
            let explained = holders
                .iter()
                .rev()
                .find_map(|holder| self.explained(holder, start));
            let late = explained.as_ref().is_some_and(|(_, late)| *late);
            if let Some((why, _)) = explained {
                *self.findings.second_starts.entry(why).or_default() += 1;
            } else {
                let last = holders[holders.len() - 1];
                let why = format!(
                    "call {}/{} starts a body {} ms after {}/{}",
                    start.process,
                    start.id,
                    (start.at - last.at) / 1_000,
                    last.process,
                    last.id
                );
                self.broken(What::Unexplained, last.at, start.at, why);
            }
            // The claim of one that starts late may be older than that of the one before.
            if !late {
                holders.clear();
            }
            holders.push(start);
        }
    }

    /// Why a body starts though another one had started, and whether it may have had its claim before that.
    fn explained(&self, holder: &Start, start: &Start) -> Option<(String, bool)> {
        let of = |why: &str| Some((why.to_owned(), false));
        let late = |least| {
            let outages = (self.faults).outages(start.process, start.begun, start.at, least);
            let outage = outages.first()?;
            Some((format!("late: {}", outage.kind), true))
        };
        if self.family == Family::Booked {
            let rolled_back = self.rolled_back(holder);
            return if rolled_back {
                of("rolled back")
            } else if self.rolled_back(start) {
                // Its own claim was older, and is gone with its connection, which a cut of any length ends.
                late(0)
            } else {
                None
            };
        }
        if let Some((ended, how)) = &holder.end
            && *ended <= start.at
        {
            match how {
                How::Down => return of("system error"),
                How::Panic => return of("panic"),
                How::Dropped => return of("dropped"),
                How::Unknown if start.reconciled => return of("reconciled"),
                How::Unknown | How::Answer(_) => {}
            }
        }
        if self.settled(holder.begun, start.at) {
            let mut settlings = self.settlings(holder.begun, start.at);
            let told = settlings.any(|one| !one.failed);
            return of(if told {
                "reset"
            } else {
                "reset told as failed"
            });
        }
        if (self.faults).killed(holder.process, holder.begun, start.at) {
            return of("killed");
        }
        // It lapses in an outage, or before connections are made anew.
        let near = (holder.at).max(start.begun.saturating_sub(self.promise.lease));
        let lapse = self.promise.lapse();
        let outages = (self.faults).outages(holder.process, near, start.at, lapse);
        let lapsed = outages.iter().find(|outage| outage.to >= holder.begun);
        lapsed.map_or_else(|| late(lapse), |outage| of(&outage.kind))
    }

    /// Whether the transaction of this body was not committed.
    fn rolled_back(&self, start: &Start) -> bool {
        let ours = |call: &&Call| (call.process, call.id) == (start.process, start.id);
        let call = self.key.calls.iter().find(ours);
        !call.is_some_and(|call| matches!(call.told, Some((_, Told::Answer(_)))))
    }
}
