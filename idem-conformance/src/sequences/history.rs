//! The shortest history on which a store and the model do not agree, printed as the code of a test.

use std::fmt;

use idem_runtime::store::ClaimReply;

use super::call::{Call, Reply};
use super::model::Expected;
use super::operation::Operation;
use super::setting::Setting;

/// A call, and the reply that the model expects.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) call: Call,
    pub(super) expected: Expected,
}

/// The shortest history found in which a store replies otherwise than the contract says.
///
/// Its [`Display`](fmt::Display) is the code of a function that makes the same calls by [`replay`](crate::replay), with
/// the calls and the expected replies as comments. It fails on the store in which it was found.
#[derive(Debug)]
pub struct History {
    theme: &'static str,
    operations: Vec<Operation>,
    comments: Vec<String>,
    calls: usize,
}

impl History {
    pub(super) fn new(
        (theme, operations): (&'static str, &[Operation]),
        setting: &Setting,
        steps: &[Step],
        observed: &str,
    ) -> Self {
        let (mut comments, mut names) = (Vec::new(), Vec::new());
        for (n, owner) in setting.owners.iter().enumerate() {
            names.push((format!("{owner:?}"), format!("owners[{n}]")));
        }
        let readable = |names: &[(String, String)], text: String| {
            let replaced = |text: String, (from, to): &(String, String)| text.replace(from, to);
            names.iter().fold(text, replaced)
        };
        for (n, Step { call, expected }) in steps.iter().enumerate() {
            comments.push(readable(&names, format!("Step {}: {call:?}", n + 1)));
            if let Reply::Claim(
                ClaimReply::Granted { fence, .. } | ClaimReply::Reconcile { fence, .. },
            ) = &expected.reply
            {
                names.push((format!("{fence:?}"), format!("fence{}", n + 1)));
            }
            if !matches!(expected.reply, Reply::Nothing) {
                comments.push(readable(&names, format!("expected {:?}", expected.reply)));
            }
        }
        comments.push(readable(&names, format!("observed {observed}")));
        Self {
            theme,
            operations: operations.to_vec(),
            comments,
            calls: steps.len(),
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
        writeln!(
            f,
            "/// The shortest history found by `idem_conformance::sequences`.\n\
             async fn history(fixture: &std::sync::Arc<dyn idem_conformance::Fixture>) {{"
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
             let replayed = idem_conformance::replay(fixture.clone(), {:?}, &operations).await;\n    \
             assert!(replayed.is_ok(), \"{{}}\", replayed.unwrap_err());\n}}",
            self.theme
        )
    }
}

impl std::error::Error for History {}
