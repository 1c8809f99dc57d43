//! The fields of a record besides its answer: an unknown outcome, the fence, the request.

use super::{Call, Checker, End, Family, SLACK, Start, What};

impl Checker<'_, '_> {
    /// After a caller received an unknown outcome, no body starts. An operator's resolution or reset ends this.
    pub(super) fn unknowns(&mut self) {
        if self.family == Family::Reconciled {
            return;
        }
        let (faults, lapse) = (self.faults, self.promise.lapse());
        for call in &self.key.calls {
            let (told, read) = match &call.told {
                Some((told, End::Unknown)) => (*told, call.begun),
                // By the record, which the leader of its process may have read a moment before.
                Some((told, End::Error(kind))) if &**kind == "Unknown" => {
                    (*told, call.begun.saturating_sub(SLACK))
                }
                _ => continue,
            };
            // It could not be stored, or the attempt was overtaken.
            if faults.lapsed(call.begun, told)
                || !(faults.outages(call.process, call.begun, told, lapse)).is_empty()
            {
                continue;
            }
            for (later, start) in self.starts.clone() {
                if later.begun > told && !self.settled(read, start.at) {
                    let why = format!("{later} starts a body, and {call} returned `unknown`");
                    self.broken(What::StartedAfterUnknown, told, start.at, why);
                }
            }
        }
    }

    /// A body whose call begins after another's start has a greater fence. No two have the same.
    pub(super) fn fences(&mut self) {
        let starts = self.starts.iter();
        let starts = starts.filter_map(|(call, start)| Some((*call, start.at, start.fence?)));
        let starts: Vec<_> = starts.collect();
        for (at, (call, first, fence)) in starts.iter().enumerate() {
            for (later, second, other) in &starts[at + 1..] {
                if fence == other || (later.begun > *first && other < fence) {
                    let why =
                        format!("{call} has the fence {fence}, and the later {later} has {other}");
                    self.broken(What::Fence, *first, *second, why);
                }
            }
        }
    }

    /// An answer names its call's payload, and is one of its key.
    pub(super) fn payloads(&mut self) {
        for call in &self.key.calls {
            match &call.told {
                Some((_, End::Answer(text))) => {
                    let asked = text.rsplit('/').next().and_then(|word| word.parse().ok());
                    if asked != Some(call.payload) {
                        let why = format!("{call} asked {}, and got `{text}`", call.payload);
                        self.found(What::Payload, why);
                    } else if !self.is_given(text) {
                        let why = format!("{call} got `{text}`, which no body of the key gave");
                        self.found(What::Payload, why);
                    }
                }
                Some((told, End::Error(kind)))
                    if &**kind == "Mismatch" && self.family != Family::Corrected =>
                {
                    let why = format!("{call} is a Mismatch of none");
                    self.broken(What::Payload, call.begun, *told, why);
                }
                _ => {}
            }
        }
    }

    /// Whether a body or an operator may have given this answer.
    fn is_given(&self, text: &str) -> bool {
        let gives = |(_, start): &(&Call, &Start)| match &start.end {
            // It may have ended, and its process was killed.
            None => true,
            Some((_, End::Answer(answer))) => **answer == *text,
            // The hook finds the effect that it had.
            Some((_, how)) => self.family == Family::Reconciled && *how == End::Unknown,
        };
        let mut resolved = self.key.settlings.iter();
        self.starts.iter().any(gives) || resolved.any(|one| one.answer.as_deref() == Some(text))
    }
}
