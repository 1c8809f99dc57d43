//! One transaction for the writes of several calls.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::sql::argument::SqlArgument;
use crate::store::sql::collision::{collided, pause};
use crate::store::sql::dialect::StatementKind;
use crate::store::sql::error::SqlError;
use crate::store::sql::queue::{BatchMember, Turn};
use crate::store::sql::session::{SqlClient, SqlReply, SqlSession, SqlStatement};
use crate::store::sql::statement::{BatchStatement, MAX_CALLS, SqlText, Statement, StatementReply};
use crate::store::sql::template::{Repeated, for_calls};

/// The maximum number of calls of a transaction.
///
/// Other writers of the file wait for it.
pub(super) const MAX_BATCH: usize = 512;

/// The connection that batches are written on, and the texts of their messages.
pub(super) struct Writer {
    client: Arc<dyn SqlClient>,
    session: Option<Box<dyn SqlSession>>,
    texts: Vec<(Arc<BatchStatement>, MessageShape, SqlText)>,
}

/// The number of calls of a message, and whether it begins and commits the transaction.
///
/// Combined with its statements, because each message is passed between threads twice.
type MessageShape = (usize, bool, bool);

impl Writer {
    pub(super) fn new(client: Arc<dyn SqlClient>) -> Self {
        Self {
            client,
            session: None,
            texts: Vec::new(),
        }
    }

    /// Writes a batch in one transaction, which is on disk before any caller receives its reply.
    ///
    /// After an error no call of it has a reply, and each is sent alone: one may have failed the others. None was
    /// committed, as far as is known, and each may be sent again.
    pub(super) async fn write(&mut self, mut batch: Vec<BatchMember>) {
        let mut collisions = 1;
        loop {
            batch.retain(|member| !member.reply.is_closed());
            match self.together(&batch).await {
                Err(error) if collided(&error, collisions) => {
                    pause(collisions).await;
                    collisions += 1;
                }
                Err(_) => return,
                Ok(replies) => {
                    for (member, reply) in batch.into_iter().zip(replies) {
                        // The caller may have been dropped.
                        let _ = member.reply.send(Turn::Outcome(Ok(reply)));
                    }
                    return;
                }
            }
        }
    }

    /// The reply to each call.
    async fn together(&mut self, batch: &[BatchMember]) -> Result<Vec<StatementReply>, SqlError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.client.connect(None).await?,
        };
        let (now, messages) = (now_us(), messages(batch));
        let mut replies = Vec::new();
        replies.resize_with(batch.len(), StatementReply::default);
        for (number, message) in messages.iter().enumerate() {
            // One statement is a transaction without more.
            let begins = batch.len() > 1 && number == 0;
            let commits = batch.len() > 1 && number + 1 == messages.len();
            let of = &batch[message[0]].call.batch;
            let text = self.text(of, (message.len(), begins, commits));
            let arguments = arguments(batch, message, now);
            let mut done = Vec::new();
            let sent = send(&mut *session, of.of(1).kind, (&text, &arguments), &mut done).await;
            let statements = if is_joined(of.of(1)) {
                message.len()
            } else {
                1
            };
            let ends = usize::from(begins) + usize::from(commits);
            match sent {
                Ok(()) if done.len() == statements + ends => {}
                Ok(()) => return Err(SqlError::lost("a statement gave nothing back")),
                // After an error within the transaction the connection is closed, and the transaction with it.
                Err(error) => {
                    if number == 0 && done.is_empty() && error.is_collision() {
                        self.session = Some(session);
                    }
                    return Err(error);
                }
            }
            let mut done = done.into_iter().skip(usize::from(begins));
            if is_joined(of.of(1)) {
                for (&member, reply) in message.iter().zip(done) {
                    replies[member] = reply;
                }
            } else if let Some(mut reply) = done.next() {
                reply.sort();
                for &member in message {
                    replies[member] = reply.part(batch[member].call.primary_key(), message.len());
                }
            }
        }
        self.session = Some(session);
        Ok(replies)
    }

    fn text(&mut self, of: &Arc<BatchStatement>, shape: MessageShape) -> SqlText {
        let mut texts = self.texts.iter();
        let known = texts.find(|(batch, with, _)| *with == shape && Arc::ptr_eq(batch, of));
        if let Some((.., text)) = known {
            return Arc::clone(text);
        }
        let (calls, begins, commits) = shape;
        let text = for_calls(&Repeated::of(&of.of(1).text), calls);
        // `IMMEDIATE`, because then it waits for other processes at its beginning, and nowhere else.
        let before = if begins { "BEGIN IMMEDIATE;" } else { "" };
        let after = if commits { ";COMMIT" } else { "" };
        let text: SqlText = format!("{before}{text}{after}").into();
        (self.texts).push((Arc::clone(of), shape, Arc::clone(&text)));
        text
    }
}

/// Microseconds since 1970, by the machine's clock, which is the database's.
fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

/// Whether its text for several calls is a statement for each of them.
fn is_joined(statement: &Statement) -> bool {
    Repeated::of(&statement.text).separator == ";"
}

/// The calls of each message of a batch.
fn messages(batch: &[BatchMember]) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    for (index, member) in batch.iter().enumerate() {
        let joins = |other: &usize| member.call.joins(&batch[*other].call);
        let has_room = |message: &&mut Vec<usize>| message.len() < MAX_CALLS;
        let mut open = all.iter_mut().filter(has_room);
        match open.find(|message| message.iter().all(joins)) {
            Some(message) => message.push(index),
            None => all.push(vec![index]),
        }
    }
    let mut index = 0;
    while index < all.len() {
        // Powers of two, because a text takes as many prepared statements as it has.
        let message = &mut all[index];
        if is_joined(batch[message[0]].call.batch.of(1)) {
            let rest = message.split_off(1 << message.len().ilog2());
            if !rest.is_empty() {
                all.insert(index + 1, rest);
            }
        }
        index += 1;
    }
    all
}

/// The arguments of these calls in the order of the parameters; the index after the last one is the time.
fn arguments<'a>(batch: &'a [BatchMember], message: &[usize], now: i64) -> Vec<SqlArgument<'a>> {
    let order = &batch[message[0]].call.batch.of(1).order;
    let mut all = Vec::with_capacity(message.len() * order.len());
    for &member in message {
        let argument = |&index: &usize| batch[member].call.argument(index);
        all.extend((order.iter()).map(|index| argument(index).unwrap_or(SqlArgument::Int(now))));
    }
    all
}

/// Sends a text of statements of a kind, and adds the reply to each.
async fn send(
    session: &mut dyn SqlSession,
    kind: StatementKind,
    (text, arguments): (&SqlText, &[SqlArgument<'_>]),
    done: &mut Vec<StatementReply>,
) -> Result<(), SqlError> {
    let mut reply = StatementReply::default();
    let is_known = AtomicBool::new(false);
    let statement = SqlStatement::new(text, true, (&[], arguments), &is_known);
    let mut receive = |part: SqlReply<'_>| {
        let is_end = matches!(part, SqlReply::Done { .. });
        reply.receive(kind, part)?;
        if is_end {
            done.push(std::mem::take(&mut reply));
        }
        Ok(())
    };
    session.send(statement, &mut receive).await
}
