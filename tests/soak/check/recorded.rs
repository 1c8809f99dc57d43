//! What the record of a key remembers of its attempts, beside what their processes wrote down.

use super::{Checker, What};
use crate::history::{How, Start};
use crate::mix::Family;

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
            let of = |start: &&Start| start.fence == Some(*fence);
            let Some(start) = self.key.starts.iter().find(of) else {
                continue;
            };
            if !agrees(start, end) {
                let (process, id, how) = (start.process, start.id, &start.end);
                let why = format!("{process}/{id} ended {how:?}, and the record says `{end}`");
                self.found(What::Recorded, why);
                continue;
            }
            *self.findings.recorded.entry(end.to_string()).or_default() += 1;
        }
        let (Some((first, _)), Some((last, _))) = (recorded.first(), recorded.last()) else {
            return;
        };
        if recorded.len() >= REMEMBERED {
            return;
        }
        for start in &self.key.starts {
            let Some(fence) = start.fence else { continue };
            let is_between = (*first..*last).contains(&fence);
            if is_between && !recorded.iter().any(|(known, _)| *known == fence) {
                let (process, id) = (start.process, start.id);
                let why =
                    format!("{process}/{id} has the fence {fence}, and the record leaves it out");
                self.broken(What::Recorded, start.at, start.at, why);
            }
        }
    }
}

/// Whether the body may have had this end. The end of any may have been lost on its way, and its lease then lapsed.
fn agrees(start: &Start, end: &str) -> bool {
    matches!(
        (&start.end, end),
        (_, "lapsed")
            | (Some((_, How::Answer(_))), "value" | "business-error")
            | (Some((_, How::Down)), "system-error")
            | (Some((_, How::Unknown)), "unknown")
            | (Some((_, How::Panic)), "panicked" | "unknown")
            | (Some((_, How::Dropped)), "cancelled")
    )
}
