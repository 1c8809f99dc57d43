//! The store's record of a key, beside the journals of its processes.

use super::{Checker, End, Family, Start, What};

/// So many attempts are remembered.
const REMEMBERED: usize = 16;

impl Checker<'_, '_> {
    /// Each remembered end is that of the body, or a lapse; and between two remembered attempts none is missing.
    pub(super) fn recorded(&mut self) {
        let recorded = &self.key.recorded;
        // Calls in transactions remember nothing.
        if self.family == Family::Booked {
            return;
        }
        for (fence, end) in recorded {
            let mut starts = self.starts.iter();
            let Some((call, start)) = starts.find(|(_, start)| start.fence == Some(*fence)) else {
                continue;
            };
            if agrees(start, end) {
                *self.findings.recorded.entry(end.to_string()).or_default() += 1;
            } else {
                let how = &start.end;
                let why = format!("{call} ended {how:?}, and the record says `{end}`");
                self.found(What::Recorded, why);
            }
        }
        let [(first, _), .., (last, _)] = &recorded[..] else {
            return;
        };
        if recorded.len() >= REMEMBERED {
            return;
        }
        for (call, start) in self.starts.clone() {
            let Some(fence) = start.fence else { continue };
            let is_between = (*first..*last).contains(&fence);
            if is_between && !recorded.iter().any(|(known, _)| *known == fence) {
                let why = format!("{call} has the fence {fence}, and the record leaves it out");
                self.broken(What::Recorded, start.at, start.at, why);
            }
        }
    }

    /// The ledger has a row of each answer, and one otherwise.
    pub(super) fn ledger(&mut self) {
        let rows = &self.key.rows;
        if rows.len() > 1 {
            self.found(What::Ledger, format!("{} rows: {rows:?}", rows.len()));
        }
        if self.family != Family::Booked {
            return;
        }
        let booked = |text: &str| match text.split_once(' ') {
            Some(("ok", answer)) => rows.first().is_some_and(|row| **row == *answer),
            _ => rows.is_empty(),
        };
        let mut calls = self.key.calls.iter();
        let wrong = calls.find_map(|call| {
            let (_, text) = call.answer()?;
            (!booked(text)).then(|| format!("{call} returned `{text}`, and the rows are {rows:?}"))
        });
        if let Some(why) = wrong {
            self.found(What::Ledger, why);
        }
    }
}

/// Whether the body may have had this end. The end of any may have been lost on its way, and its lease then lapsed.
fn agrees(start: &Start, end: &str) -> bool {
    let how = start.end.as_ref().map(|(_, how)| how);
    matches!(
        (how, end),
        (_, "lapsed")
            | (Some(End::Answer(_)), "value" | "business-error")
            | (Some(End::Down), "system-error")
            | (Some(End::Unknown), "unknown")
            | (Some(End::Panic), "panicked" | "unknown")
            | (Some(End::Gone), "cancelled")
    )
}
