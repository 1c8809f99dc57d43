//! One message of a batch: a text for some of its statements.

use std::sync::Arc;

use super::multi_row::MultiRowStatement;
use super::queued_statement::QueuedStatement;
use crate::store::sql::statement::StatementReply;
use crate::store::sql::statement::{MAX_CALLS, SqlText};

/// What a message does besides its statements. Combined, because each message is passed between threads twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) begins: bool,
    pub(super) commits: bool,
}

/// The result of a statement: the number of changed rows, and the fence that it returned.
pub(super) type StatementResult = (u64, Option<i64>);

/// Queued statements with the same text.
pub(super) struct BatchMessage {
    pub(super) members: Vec<usize>,
    /// One statement for all of them; each is expected to have its effect. Without it, one after the other.
    pub(super) multi_row: Option<Arc<MultiRowStatement>>,
}

impl BatchMessage {
    /// All messages of a batch, in the order in which they are sent.
    ///
    /// The last message can commit the transaction, unless it is strict. `at_once`: one statement does for many calls.
    pub(super) fn all(queued: &[QueuedStatement], at_once: bool) -> Vec<Self> {
        let mut messages = Vec::new();
        for members in by_text(queued) {
            let mut rest = &members[..];
            let multi_row = queued[members[0]].multi_row.as_ref();
            let multi_row = multi_row.filter(|_| at_once && members.len() > 1);
            while !rest.is_empty() {
                let width = match multi_row {
                    Some(_) => MAX_CALLS.min(rest.len()),
                    // Powers of two, because a text takes as many prepared statements as its width.
                    None => MAX_CALLS.min(1 << rest.len().ilog2()),
                };
                let (these, others) = rest.split_at(width);
                messages.push(Self {
                    members: these.to_vec(),
                    multi_row: multi_row.cloned(),
                });
                rest = others;
            }
        }
        messages.sort_by_key(|message| !message.is_strict());
        messages
    }

    /// Whether all members must have their effect, because the reply does not show which of them had.
    pub(super) fn is_strict(&self) -> bool {
        (self.multi_row.as_ref()).is_some_and(|multi_row| multi_row.is_strict)
    }

    /// The number of its statements.
    pub(super) fn statements(&self) -> usize {
        self.multi_row.as_ref().map_or(self.members.len(), |_| 1)
    }

    /// Whether the results of its statements determine the result of each queued statement.
    pub(super) fn is_enough(&self, done: &[StatementResult]) -> bool {
        let all = || done.iter().map(|(affected, _)| affected).sum::<u64>();
        !self.is_strict() || all() == self.members.len() as u64
    }

    /// Fills in the reply to each queued statement.
    pub(super) fn fill(&self, done: &[StatementResult], now: i64, replies: &mut [StatementReply]) {
        let all = done.iter().map(|(affected, _)| affected).sum::<u64>();
        for (index, &member) in self.members.iter().enumerate() {
            let (affected, granted) = match self.multi_row {
                None => done[index],
                Some(_) if all == self.members.len() as u64 => (1, Some(now)),
                // Not all of them had their effect. Each caller reads its record, which shows it.
                Some(_) => (0, None),
            };
            replies[member] = StatementReply {
                affected,
                granted,
                ..StatementReply::default()
            };
        }
    }
}

/// Groups the queued statements by their text.
fn by_text(queued: &[QueuedStatement]) -> Vec<Vec<usize>> {
    let mut all: Vec<(&SqlText, Vec<usize>)> = Vec::new();
    for (index, statement) in queued.iter().enumerate() {
        match all
            .iter_mut()
            .find(|(text, _)| Arc::ptr_eq(text, &statement.text))
        {
            Some((_, members)) => members.push(index),
            None => all.push((&statement.text, vec![index])),
        }
    }
    all.into_iter().map(|(_, members)| members).collect()
}

/// A cache of texts by statement, whether it is for all members, width and ends.
#[derive(Default)]
pub(super) struct MessageTexts(Vec<(SqlText, (bool, usize, Ends), SqlText)>);

impl MessageTexts {
    pub(super) fn of(
        &mut self,
        statement: &QueuedStatement,
        message: &BatchMessage,
        ends: Ends,
    ) -> SqlText {
        let width = message.members.len();
        let kind = (message.multi_row.is_some(), width, ends);
        for (of, with, text) in &self.0 {
            if *with == kind && Arc::ptr_eq(of, &statement.text) {
                return Arc::clone(text);
            }
        }
        let text = match &message.multi_row {
            Some(multi_row) => multi_row.text(width),
            None => vec![&statement.text[..]; width].join(";"),
        };
        // `IMMEDIATE`, because then it waits for other processes at its beginning, and nowhere else.
        let before = if ends.begins { "BEGIN IMMEDIATE;" } else { "" };
        let after = if ends.commits { ";COMMIT" } else { "" };
        let text: SqlText = format!("{before}{text}{after}").into();
        (self.0).push((Arc::clone(&statement.text), kind, Arc::clone(&text)));
        text
    }
}
