//! The shortest history on which store and model differ, as a test.

use std::fmt;
use std::ops::Range;

use idem_runtime::store::author::ClaimReply;

use super::call::{Call, Reply};
use super::model::Expected;
use super::operation::Operation;
use super::setting::Setting;

/// A call, and the reply that the model expects.
pub(super) struct Step {
    pub(super) call: Call,
    pub(super) expected: Expected,
}

/// The observation in place of the last expected reply.
pub(super) enum Observed {
    /// Another reply.
    Reply(Reply),
    /// The watch of this step was not notified.
    NoWatch(usize),
    NoListener,
}

/// The shortest history found that breaks the contract of a store.
///
/// Its [`Display`](fmt::Display), and its `Debug`, is the code of a function that repeats the calls by
/// [`replay`](crate::replay). Comments give the calls with the expected replies, and the seed.
///
/// In the store in which it was found it failed twice more: on keys without a record, or else on the same keys after
/// the life of their records. A fault that needs more than that, such as a number of calls before, does not show on an
/// empty store; the code then repeats the seeds up to this one, or a comment at its end has the call that does.
pub struct History {
    theme: &'static str,
    /// The number of the keys on which it failed.
    pub(super) keys: u64,
    pub(super) operations: Vec<Operation>,
    comments: Vec<String>,
    pub(super) calls: usize,
    /// The panic's text in place of the last reply, without numbers.
    pub(super) panic: Option<Box<str>>,
    /// The seeds up to the failing one, unless the history was replayed.
    pub(super) seeds: Range<u64>,
    /// Whether it failed again.
    pub(super) recurs: bool,
}

impl History {
    pub(super) fn new(
        (theme, keys, operations): (&'static str, u64, Vec<Operation>),
        setting: &Setting,
        steps: &[Step],
        observed: &Observed,
    ) -> Self {
        let (mut comments, mut names) = (Vec::new(), Vec::new());
        for (n, owner) in setting.owners.iter().enumerate() {
            names.push((format!("{owner:?}"), format!("owners[{n}]")));
        }
        let readable = |names: &[(String, String)], text: String| {
            let replaced = |text: String, (from, to): &(String, String)| text.replace(from, to);
            names.iter().fold(text, replaced)
        };
        let mut last = String::new();
        for (n, Step { call, expected }) in steps.iter().enumerate() {
            comments.push(readable(&names, format!("Step {}: {call:?}", n + 1)));
            if let Reply::Claim(
                ClaimReply::Granted { fence, .. } | ClaimReply::Reconcile { fence, .. },
            ) = &expected.reply
            {
                names.push((format!("{fence:?}"), format!("fence{}", n + 1)));
            }
            last = format!("{:?}", expected.reply);
            if !matches!(expected.reply, Reply::Nothing) {
                comments.push(readable(&names, format!("expected {last}")));
            }
        }
        let mut panic = None;
        let mut text = match observed {
            Observed::Reply(reply) => {
                if let Reply::Panicked(text) = reply {
                    panic = Some(text.replace(|c: char| c.is_ascii_hexdigit(), "").into());
                }
                format!("{reply:?}")
            }
            Observed::NoWatch(step) => format!("no notification of the watch of step {step}"),
            Observed::NoListener => "no notification of the listener".to_owned(),
        };
        if text == last {
            text += ", with a fence that did not grow, or other bytes in its body or journal";
        }
        comments.push(readable(&names, format!("observed {text}")));
        Self {
            theme,
            keys,
            operations,
            comments,
            calls: steps.len(),
            panic,
            seeds: 0..0,
            recurs: false,
        }
    }

    /// The number of its calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (theme, keys, seeds) = (self.theme, self.keys, &self.seeds);
        let by = |seed| format!(", by seed {seed} of {theme:?}");
        let by = seeds.end.checked_sub(1).map(by).unwrap_or_default();
        writeln!(
            f,
            "/// The shortest history found by `idem_conformance::sequences`{by}."
        )?;
        writeln!(
            f,
            "async fn history(fixture: &std::sync::Arc<dyn idem_conformance::Fixture>) {{"
        )?;
        for line in self.comments.iter().flat_map(|comment| comment.lines()) {
            writeln!(f, "    // {line}")?;
        }
        writeln!(f, "    let operations = [")?;
        for operation in &self.operations {
            writeln!(f, "        {operation:?},")?;
        }
        writeln!(
            f,
            "    ];\n    \
             let replayed = idem_conformance::replay(fixture.clone(), {theme:?}, {keys}, &operations).await;\n    \
             assert!(replayed.is_ok(), \"{{}}\", replayed.unwrap_err());"
        )?;
        if !seeds.is_empty() {
            let call = format!("idem_conformance::sequences(fixture.clone(), {seeds:?})");
            if self.recurs {
                writeln!(
                    f,
                    "    // A fault that needs more than these calls is repeated by `{call}`."
                )?;
            } else {
                writeln!(
                    f,
                    "    // It did not fail again, so the seeds before it are repeated as well.\n    \
                     let repeated = {call}.await;\n    \
                     assert!(repeated.is_ok(), \"{{}}\", repeated.unwrap_err());"
                )?;
            }
        }
        writeln!(f, "}}")
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for History {}
