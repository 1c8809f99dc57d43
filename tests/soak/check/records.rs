//! The fields of a record besides its answer: an unknown outcome, the fence, the request.

use super::{Checker, What};
use crate::history::Told;
use crate::mix::Family;

impl Checker<'_, '_> {
    /// After a caller received an unknown outcome, no body starts until an operator resolves or resets it.
    pub(super) fn unknowns(&mut self) {
        if self.family == Family::Reconciled {
            return;
        }
        for call in &self.key.calls {
            let Some((told, Told::Unknown)) = &call.told else {
                continue;
            };
            // It could not be stored, or the attempt was overtaken.
            let lapse = self.promise.lapse();
            let outages = (self.faults).outages(call.process, call.begun, *told, lapse);
            if !outages.is_empty() {
                continue;
            }
            for start in &self.key.starts {
                if start.begun > *told && !self.settled(call.begun, start.at) {
                    let why = format!(
                        "call {}/{} starts a body, and {}/{} was told `unknown`",
                        start.process, start.id, call.process, call.id
                    );
                    self.broken(What::StartedAfterUnknown, *told, start.at, why);
                }
            }
        }
    }

    /// A body whose call begins after another body has started has a greater fence, and no two have the same.
    pub(super) fn fences(&mut self) {
        for start in &self.key.starts {
            let Some(fence) = start.fence else { continue };
            for later in &self.key.starts {
                let Some(other) = later.fence else { continue };
                let itself = (start.process, start.id) == (later.process, later.id);
                if !itself && (fence == other || (later.begun > start.at && other < fence)) {
                    let why = format!(
                        "{}/{} has the fence {fence}, and the later {}/{} has {other}",
                        start.process, start.id, later.process, later.id
                    );
                    self.broken(
                        What::Fence,
                        start.at.min(later.at),
                        later.at.max(start.at),
                        why,
                    );
                }
            }
        }
    }

    /// An answer names the payload of its call.
    pub(super) fn payloads(&mut self) {
        for call in &self.key.calls {
            match &call.told {
                Some((_, Told::Answer(text))) => {
                    let asked = text.rsplit('/').next().and_then(|word| word.parse().ok());
                    if asked != Some(call.payload) {
                        let (process, id, payload) = (call.process, call.id, call.payload);
                        let why = format!("call {process}/{id} asked {payload}, and got `{text}`");
                        self.found(What::Payload, why);
                    }
                }
                Some((told, Told::Error(kind)))
                    if &**kind == "Mismatch" && self.family != Family::Corrected =>
                {
                    let why = format!("call {}/{} is a Mismatch of none", call.process, call.id);
                    self.broken(What::Payload, call.begun, *told, why);
                }
                _ => {}
            }
        }
    }
}
