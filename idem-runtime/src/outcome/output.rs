//! The output of a call: its value, encoder and decoder.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::chosen_life::LifeOf;
use super::codec::{Body, Encoded, Format, Undecodable, Unencodable};
use super::outcome::Outcome;
use super::provenance::AnswerSource;
use super::stored::StoredAnswer;
use crate::error::Error;
use crate::record::OutcomeKind;
use crate::record::transition::Remains;

/// The output of a call, `None` until it is known. Holds its encoder and decoder, so that the bounds of the return type
/// are needed only where it is constructed.
///
/// `P` decides about it: the treatment of errors, and the choice of a value's life.
pub struct Output<O, P> {
    pub(crate) value: Option<O>,
    decides: P,
    refuse: fn(Error) -> O,
    any: for<'a> fn(&'a mut Self) -> &'a mut (dyn AnyOutput + 'a),
}

/// A type-erased output. The rest of a call uses only this trait, so that it is compiled once and not per function.
pub(crate) trait AnyOutput {
    /// The encoding to store. Without an output nothing is stored. A stored value or error takes the form of every
    /// replay.
    fn encode(&mut self, format: &Format) -> Encoded;
    fn decode(&mut self, outcome: OutcomeKind, body: &Body<'_>) -> Result<(), Undecodable>;
    /// Passes the answer's provenance to a type that records it: see [`Answer`](crate::Answer).
    fn set_provenance(&mut self, how: AnswerSource, attempt: u16, age: Duration);
    /// Whether the type exposes its age.
    fn tells_age(&self) -> bool;
    fn refuse(&mut self, error: Error);
    fn succeeded(&self) -> bool;
    /// The schemas of the value and of a kept error; 0 if none is kept.
    fn schemas(&self) -> [u32; 2];
}

// `match` instead of `?`, `map` or closures: this is compiled with each function.
impl<O: Outcome<P>, P, L: LifeOf<O>> AnyOutput for Output<O, (P, L)> {
    fn encode(&mut self, format: &Format) -> Encoded {
        match &mut self.value {
            Some(output) => {
                let (on_error, life) = &self.decides;
                let mut encoded = output.encode(on_error, format);
                encoded.choose_life(life.life_of(output));
                encoded
            }
            None => Encoded::Release(Remains::Request),
        }
    }

    fn decode(&mut self, outcome: OutcomeKind, body: &Body<'_>) -> Result<(), Undecodable> {
        match O::decode(outcome, body) {
            Ok(output) => self.value = Some(output),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn set_provenance(&mut self, how: AnswerSource, attempt: u16, age: Duration) {
        if let Some(output) = &mut self.value {
            output.set_provenance(how, attempt, age);
        }
    }

    fn tells_age(&self) -> bool {
        O::tells_age()
    }

    fn refuse(&mut self, error: Error) {
        self.value = Some(O::refuse(error));
    }

    fn succeeded(&self) -> bool {
        match &self.value {
            Some(output) => output.succeeded(),
            None => false,
        }
    }

    fn schemas(&self) -> [u32; 2] {
        O::schemas()
    }
}

impl<O: Outcome<P>, P, L: LifeOf<O>> Output<O, (P, L)> {
    pub(crate) fn new(on_error: P, life: L) -> Self {
        Self {
            value: None,
            decides: (on_error, life),
            refuse: O::refuse,
            any: Self::erased,
        }
    }

    fn erased<'a>(&'a mut self) -> &'a mut (dyn AnyOutput + 'a) {
        self
    }
}

impl<O, P> Output<O, P> {
    pub(crate) fn any(&mut self) -> &mut dyn AnyOutput {
        (self.any)(self)
    }

    /// Takes the output; panics if there is none.
    pub(crate) fn take(&mut self) -> O {
        match self.value.take() {
            Some(output) => output,
            None => taken(),
        }
    }

    /// The constructor of a refusal, for an output that has moved.
    pub(crate) fn refusal_constructor(&self) -> fn(Error) -> O {
        self.refuse
    }
}

#[cold]
fn taken() -> ! {
    panic!("a call is not polled after its output was taken")
}

impl dyn AnyOutput + '_ {
    /// Replaces the output by the stored answer.
    pub(crate) fn read(&mut self, stored: &StoredAnswer) -> Result<(), Undecodable> {
        self.decode(stored.outcome(), &stored.open()?)?;
        let attempt = stored.record.header.attempts;
        self.set_provenance(stored.how(), attempt, stored.age());
        Ok(())
    }

    /// The encoding of a body's output, which takes its replayed form.
    pub(crate) fn write(&mut self, format: &Format) -> Encoded {
        // As in `Encoded::store`; here only a classification can have panicked.
        catch_unwind(AssertUnwindSafe(|| self.encode(format))).unwrap_or_else(|_| {
            Encoded::empty(OutcomeKind::Unknown, Some(Unencodable::Unclassified))
        })
    }
}

debug_fields!([O, P] Output<O, P> {});
