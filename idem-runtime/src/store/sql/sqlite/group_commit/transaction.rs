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

/// The connection of the batches, and the texts of their messages.
pub(super) struct Writer {
    client: Arc<dyn SqlClient>,
    session: Option<Box<dyn SqlSession>>,
    texts: Vec<(Arc<BatchStatement>, MessageShape, SqlText)>,
}

/// Whether statements are joined, the calls, whether it begins and commits.
///
/// Combined with its statements, because each message is passed between threads twice.
type MessageShape = (bool, usize, bool, bool);

/// Some calls of a batch, and their statement.
struct BatchMessage<'b> {
    members: Vec<usize>,
    statement: &'b Statement,
    is_joined: bool,
    /// All calls must have an effect: the reply does not distinguish them.
    is_strict: bool,
}

impl Writer {
    pub(super) fn new(client: Arc<dyn SqlClient>) -> Self {
        Self {
            client,
            session: None,
            texts: Vec::new(),
        }
    }

    /// Writes a batch in one transaction, on disk before any reply.
    ///
    /// After an error no call of it has a reply, and each is sent alone: one may have failed the others. None was
    /// committed, as far as is known, and each may be sent again.
    pub(super) async fn write(&mut self, mut batch: Vec<BatchMember>) {
        let (mut collisions, mut at_once) = (1, true);
        loop {
            batch.retain(|member| !member.reply.is_closed());
            match self.together(&batch, at_once).await {
                Ok(None) => at_once = false,
                Err(error) if collided(&error, collisions) => {
                    pause(collisions).await;
                    collisions += 1;
                }
                Err(_) => return,
                Ok(Some(replies)) => {
                    for (member, reply) in batch.into_iter().zip(replies) {
                        // The caller may have been dropped.
                        let _ = member.reply.send(Turn::Outcome(Ok(reply)));
                    }
                    return;
                }
            }
        }
    }

    /// The reply to each call; `None`: some had no effect, it is not known which, and the transaction was rolled back.
    async fn together(
        &mut self,
        batch: &[BatchMember],
        at_once: bool,
    ) -> Result<Option<Vec<StatementReply>>, SqlError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.client.connect(None).await?,
        };
        let (now, messages) = (now_us(), messages(batch, at_once));
        let mut replies = Vec::new();
        replies.resize_with(batch.len(), StatementReply::default);
        // One statement is a transaction without more.
        let (is_transaction, mut commits) = (batch.len() > 1, false);
        for (number, message) in messages.iter().enumerate() {
            let (members, begins) = (&message.members, is_transaction && number == 0);
            commits = is_transaction && number + 1 == messages.len() && !message.is_strict;
            let text = self.text(batch, message, (begins, commits));
            let arguments = arguments(batch, message, now);
            let mut done = Vec::new();
            let kind = message.statement.kind;
            let sent = send(&mut *session, kind, (&text, &arguments), &mut done).await;
            // After an error within the transaction the connection is closed, and the transaction with it.
            if let Err(error) = sent {
                if number == 0 && done.is_empty() && error.is_collision() {
                    self.session = Some(session);
                }
                return Err(error);
            }
            let statements = if message.is_joined { members.len() } else { 1 };
            if done.len() != statements + usize::from(begins) + usize::from(commits) {
                return Err(SqlError::lost("a statement gave nothing back"));
            }
            let mut done = done.into_iter().skip(usize::from(begins));
            if message.is_joined {
                for (&member, reply) in members.iter().zip(done) {
                    replies[member] = reply;
                }
                continue;
            }
            let all = done.next().map(|reply| reply.affected) == Some(members.len() as u64);
            if message.is_strict && !all {
                command(&mut *session, "ROLLBACK").await?;
                self.session = Some(session);
                return Ok(None);
            }
            // If not all completions had their effect, each caller reads its record, which shows it.
            for &member in members.iter().filter(|_| all) {
                replies[member].affected = 1;
                replies[member].granted = Some(now);
            }
        }
        if is_transaction && !commits {
            command(&mut *session, "COMMIT").await?;
        }
        self.session = Some(session);
        Ok(Some(replies))
    }

    fn text(
        &mut self,
        batch: &[BatchMember],
        message: &BatchMessage<'_>,
        (begins, commits): (bool, bool),
    ) -> SqlText {
        let (of, calls) = (&batch[message.members[0]].call.batch, message.members.len());
        let shape = (message.is_joined, calls, begins, commits);
        let mut texts = self.texts.iter();
        let known = texts.find(|(batch, with, _)| *with == shape && Arc::ptr_eq(batch, of));
        if let Some((.., text)) = known {
            return Arc::clone(text);
        }
        let text = for_calls(&Repeated::of(&message.statement.text), calls);
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

/// The messages of a batch, in sending order. `at_once`: one statement does for many calls.
///
/// The last message can commit the transaction, unless it is strict.
fn messages(batch: &[BatchMember], at_once: bool) -> Vec<BatchMessage<'_>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, member) in batch.iter().enumerate() {
        let joins = |group: &&mut Vec<usize>| {
            let first = &batch[group[0]].call;
            group.len() < MAX_CALLS && Arc::ptr_eq(&first.batch, &member.call.batch)
        };
        match groups.iter_mut().find(joins) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    let mut messages = Vec::new();
    for mut members in groups {
        while !members.is_empty() {
            let of = &batch[members[0]].call.batch;
            let statement = of.of(if at_once && members.len() > 1 {
                1
            } else {
                MAX_CALLS
            });
            let is_joined = Repeated::of(&statement.text).separator == ";";
            // Powers of two, because a text takes as many prepared statements as its width.
            let width = if is_joined {
                1 << members.len().ilog2()
            } else {
                members.len()
            };
            let rest = members.split_off(width);
            messages.push(BatchMessage {
                members,
                statement,
                is_joined,
                is_strict: !std::ptr::eq(statement, of.of(MAX_CALLS)),
            });
            members = rest;
        }
    }
    messages.sort_by_key(|message| !message.is_strict);
    messages
}

/// The arguments of the calls in the order of the parameters; the index after the last one is the time.
fn arguments<'a>(
    batch: &'a [BatchMember],
    message: &BatchMessage<'_>,
    now: i64,
) -> Vec<SqlArgument<'a>> {
    let order = &message.statement.order;
    let mut all = Vec::with_capacity(message.members.len() * order.len());
    for &member in &message.members {
        let argument = |&index: &usize| batch[member].call.argument(index);
        all.extend((order.iter()).map(|index| argument(index).unwrap_or(SqlArgument::Int(now))));
    }
    all
}

async fn command(session: &mut dyn SqlSession, text: &str) -> Result<(), SqlError> {
    // As a statement it is prepared once.
    let text = (&text.into(), &[][..]);
    send(session, StatementKind::Execute, text, &mut Vec::new()).await
}

/// Sends a text of statements of a kind; collects their replies.
async fn send(
    session: &mut dyn SqlSession,
    kind: StatementKind,
    (text, arguments): (&SqlText, &[SqlArgument<'_>]),
    done: &mut Vec<StatementReply>,
) -> Result<(), SqlError> {
    let mut reply = StatementReply::default();
    let is_known = AtomicBool::new(false);
    let sent = (true, kind != StatementKind::Execute);
    let statement = SqlStatement::new(text, sent, (&[], arguments), &is_known);
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
