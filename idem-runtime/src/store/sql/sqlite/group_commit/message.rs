//! One message of a batch: a text for some of its statements.

use std::sync::Arc;

use super::queued_statement::QueuedStatement;
use crate::store::sql::reply::StatementReply;
use crate::store::sql::statement::SqlText;

/// The maximum number of repetitions of a statement in a text.
pub(super) const MAX_WIDTH: usize = 64;

/// How the statements of a batch are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// One statement for many queued ones; each of them is expected to have its effect.
    AtOnce,
    /// One statement after the other.
    InTurn,
}

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
    pub(super) mode: Mode,
    /// All of them must have their effect, because the reply does not show which of them had.
    pub(super) is_strict: bool,
}

impl BatchMessage {
    /// All messages of a batch, in the order in which they are sent.
    ///
    /// The last message can commit the transaction, unless it is strict.
    pub(super) fn all(queued: &[QueuedStatement], mode: Mode) -> Vec<Self> {
        let mut messages = Vec::new();
        for members in by_text(queued) {
            let mut rest = &members[..];
            let multi_row = queued[members[0]].multi_row.as_ref();
            let multi_row = multi_row.filter(|_| mode == Mode::AtOnce && members.len() > 1);
            while !rest.is_empty() {
                let width = match multi_row {
                    Some(_) => MAX_WIDTH.min(rest.len()),
                    // Powers of two, because a text takes as many prepared statements as its width.
                    None => MAX_WIDTH.min(1 << rest.len().ilog2()),
                };
                let (these, others) = rest.split_at(width);
                messages.push(Self {
                    members: these.to_vec(),
                    mode: multi_row.map_or(Mode::InTurn, |_| Mode::AtOnce),
                    is_strict: multi_row.is_some_and(|multi_row| multi_row.is_strict),
                });
                rest = others;
            }
        }
        messages.sort_by_key(|message| !message.is_strict);
        messages
    }

    /// The number of its statements.
    pub(super) fn statements(&self) -> usize {
        match self.mode {
            Mode::AtOnce => 1,
            Mode::InTurn => self.members.len(),
        }
    }

    /// Whether the results of its statements determine the result of each queued statement.
    pub(super) fn is_enough(&self, done: &[StatementResult]) -> bool {
        let all = || done.iter().map(|(affected, _)| affected).sum::<u64>();
        !self.is_strict || all() == self.members.len() as u64
    }

    /// Fills in the reply to each queued statement.
    pub(super) fn fill(&self, done: &[StatementResult], now: i64, replies: &mut [StatementReply]) {
        let all = done.iter().map(|(affected, _)| affected).sum::<u64>();
        for (index, &member) in self.members.iter().enumerate() {
            let (affected, granted) = match self.mode {
                Mode::InTurn => done[index],
                Mode::AtOnce if all == self.members.len() as u64 => (1, Some(now)),
                // Not all of them had their effect. Each caller reads its record, which shows it.
                Mode::AtOnce => (0, None),
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

/// A cache of texts by statement, mode, width and ends.
#[derive(Default)]
pub(super) struct MessageTexts(Vec<(SqlText, Mode, usize, Ends, SqlText)>);

impl MessageTexts {
    pub(super) fn of(
        &mut self,
        queued: &[QueuedStatement],
        message: &BatchMessage,
        ends: Ends,
    ) -> SqlText {
        let (statement, width) = (&queued[message.members[0]], message.members.len());
        for (of, sent, times, with, text) in &self.0 {
            let is_it = *times == width && *sent == message.mode && *with == ends;
            if is_it && Arc::ptr_eq(of, &statement.text) {
                return Arc::clone(text);
            }
        }
        let text = match &statement.multi_row {
            Some(multi_row) if message.mode == Mode::AtOnce => multi_row.text(width),
            _ => vec![&statement.text[..]; width].join(";"),
        };
        // `IMMEDIATE`, because then it waits for other processes at its beginning, and nowhere else.
        let before = if ends.begins { "BEGIN IMMEDIATE;" } else { "" };
        let after = if ends.commits { ";COMMIT" } else { "" };
        let text: SqlText = format!("{before}{text}{after}").into();
        let of = Arc::clone(&statement.text);
        (self.0).push((of, message.mode, width, ends, Arc::clone(&text)));
        text
    }
}
