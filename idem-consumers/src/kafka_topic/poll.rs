//! The threads of a Kafka consumer: one polls, pauses and gives partitions up, and one commits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use idem_runtime::__private::Lock;
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::mpsc::UnboundedSender;

use super::offsets::{Offsets, Ticket};
use crate::delivery::BrokerError;
use crate::source_events::SourceEvents;
use crate::subscription::OnLostSubscription;

/// The time between two questions for a topic that may be gone. A single broker may not know a new topic yet.
const BETWEEN_DOUBTS: Duration = Duration::from_secs(2);

/// The longest wait for an event; a partition is resumed within it.
const LONGEST_POLL: Duration = Duration::from_millis(50);

/// The shortest time between two commits.
const BETWEEN_COMMITS: Duration = Duration::from_millis(100);

/// The time that lost brokers may take for a reply. No offset is committed meanwhile.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// The time that the end of the thread is waited for.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// The part of it in which the group is left.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);

/// A message and its ticket.
pub(super) struct KafkaMessage {
    pub(super) message: OwnedMessage,
    pub(super) ticket: Ticket,
}

/// The messages, or an error after which no message comes.
pub(super) type Polled = UnboundedSender<Result<Arc<KafkaMessage>, BrokerError>>;

/// The callbacks of the client, which are made from within `poll`.
pub(super) struct Callbacks {
    pub(super) topic: String,
    pub(super) group: String,
    /// Shared with the deliveries.
    pub(super) offsets: Lock<Offsets>,
    /// Held from the choice of positions to their commit's reply.
    ///
    /// Otherwise a position may go back.
    pub(super) commits: Lock<()>,
    /// The offset in a partition in which the group has none. The client itself is to fail there.
    pub(super) first: Offset,
    pub(super) events: OnceLock<SourceEvents>,
    /// Reason of the last failed connection to a broker.
    pub(super) unreachable: Lock<String>,
}

impl Callbacks {
    pub(super) fn events(&self) -> SourceEvents {
        self.events.get().cloned().unwrap_or_default()
    }
}

impl ClientContext for Callbacks {
    /// `AllBrokersDown` has no cause; the preceding transport error has it.
    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => {
                let last = self.unreachable.lock().clone();
                self.events().broker_lost(format_args!("{reason}: {last}"));
            }
            Some(RDKafkaErrorCode::BrokerTransportFailure) => {
                reason.clone_into(&mut self.unreachable.lock());
            }
            _ => {}
        }
        // Keeps the client's default logging.
        DefaultClientContext.error(error, reason);
    }
}

impl ConsumerContext for Callbacks {
    /// Sets the offsets of new partitions, and commits those of revoked ones. The commit precedes the revocation, while
    /// the partitions are still this consumer's.
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let partitions = match rebalance {
            Rebalance::Assign(partitions) => return self.assigned(consumer, partitions),
            Rebalance::Revoke(partitions) => partitions,
            Rebalance::Error(_) => return,
        };
        let _one = self.commits.lock();
        let (mut done, mut paused) = (Vec::new(), Vec::new());
        {
            let mut offsets = self.offsets.lock();
            for partition in partitions.elements() {
                let partition = partition.partition();
                let revoked = offsets.revoked(partition);
                done.extend(revoked.position.map(|position| (partition, position)));
                paused.extend(revoked.is_paused.then_some(partition));
            }
        }
        // None but paused ones: to resume another one loses the messages that the client has fetched.
        if !paused.is_empty() {
            let _ = consumer.resume(&unpositioned(&self.topic, &paused));
        }
        // Lost partitions are another consumer's already. Uncommitted, their messages are delivered again.
        if !done.is_empty()
            && !consumer.assignment_lost()
            && consumer
                .commit(&positioned(&self.topic, &done), CommitMode::Sync)
                .is_ok()
        {
            self.offsets.lock().taken(&done);
        }
    }
}

fn unpositioned(topic: &str, partitions: &[i32]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition(topic, *partition);
    }
    list
}

pub(super) fn positioned(topic: &str, offsets: &[(i32, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (partition, offset) in offsets {
        // Fails for offsets that have a special meaning, all of them negative.
        let _ = list.add_partition_offset(topic, *partition, Offset::Offset(*offset));
    }
    list
}

/// The running threads. Dropped: they commit, leave the group and end.
pub(super) struct Poller {
    is_stopped: Arc<AtomicBool>,
    ended: Mutex<Receiver<()>>,
}

impl Poller {
    /// Spawns a thread, because the client blocks: in the commit before a revocation, and when it leaves the group.
    pub(super) fn spawn(thread: PollThread) -> io::Result<Self> {
        let (end, ended) = channel();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_stopped);
        let run = move || {
            thread.run(&stop);
            drop(end);
        };
        let name = "idem-kafka".to_owned();
        thread::Builder::new().name(name).spawn(run)?;
        Ok(Self {
            is_stopped,
            ended: Mutex::new(ended),
        })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The brokers may be down; the group gives its partitions to others when the session has lapsed.
        // Nothing is ever sent: the thread drops the sender.
        let _ = ended.recv_timeout(CLOSE_PATIENCE);
    }
}

pub(super) struct PollThread {
    pub(super) consumer: BaseConsumer<Callbacks>,
    pub(super) max_uncommitted: usize,
    pub(super) on_lost: OnLostSubscription,
    pub(super) polled: Polled,
}

impl PollThread {
    fn run(self, is_stopped: &AtomicBool) {
        let this = &self;
        thread::scope(|scope| {
            // Dropped when the polls end: so does the other thread.
            let (_end, ended) = channel();
            let commits = thread::Builder::new().name("idem-kafka-commit".to_owned());
            match commits.spawn_scoped(scope, move || this.commit(&ended)) {
                Ok(_) => this.poll(is_stopped),
                Err(error) => {
                    let error = KafkaError::ClientCreation(error.to_string());
                    this.fail(refused(error));
                }
            }
        });
        self.leave();
        drop(self.consumer);
    }

    /// Commits as each revocation does: the client gives all its partitions up, and leaves the group.
    ///
    /// Before the client is closed, which aborts the process if it is being assigned partitions (librdkafka 4792).
    fn leave(&self) {
        self.consumer.unsubscribe();
        let start = Instant::now();
        while start.elapsed() < LEAVE_PATIENCE {
            // A message is another consumer's: none is committed that was not received.
            let is_calm = self.consumer.poll(LONGEST_POLL).is_none();
            let left = self.consumer.assignment();
            if is_calm && left.is_ok_and(|left| left.count() == 0) {
                break;
            }
        }
    }

    fn poll(&self, is_stopped: &AtomicBool) {
        let topic = &self.consumer.context().topic;
        let subscribed = self.consumer.subscribe(&[topic]);
        let mut is_failed = subscribed.is_err();
        // When the brokers are asked for a topic that one of them did not know, and whether the last answer was that it
        // is gone: two in a row are needed.
        let mut doubt: Option<(Instant, bool)> = None;
        if let Err(error) = subscribed {
            self.fail(refused(error));
        }
        while !is_stopped.load(Ordering::Relaxed) {
            match self.consumer.poll(LONGEST_POLL) {
                // After a message that cannot be read, none is received, so that no commit passes it.
                Some(_) if is_failed => {}
                Some(Ok(message)) => {
                    let offsets = &self.consumer.context().offsets;
                    let ticket = offsets
                        .lock()
                        .received(message.partition(), message.offset());
                    let message = message.detach();
                    let message = KafkaMessage { message, ticket };
                    let _ = self.polled.send(Ok(Arc::new(message)));
                }
                // Reported once.
                Some(Err(error)) if is_of_unknown_topic(&error) => {
                    doubt.get_or_insert_with(|| (Instant::now(), false));
                }
                Some(Err(error)) => {
                    if let Err(error) = self.failed(error) {
                        is_failed = true;
                        self.fail(error);
                    }
                }
                None => {}
            }
            if let Some((ask_at, was_gone)) = doubt
                && ask_at <= Instant::now()
            {
                doubt = match self.consumer.context().is_topic_gone(&self.consumer) {
                    Some(true) if was_gone => {
                        if !is_failed {
                            is_failed = true;
                            self.fail(self.consumer.context().topic_lost());
                        }
                        None
                    }
                    Some(false) => None,
                    answer => Some((
                        Instant::now() + BETWEEN_DOUBTS,
                        was_gone || answer.is_some(),
                    )),
                };
            }
            self.pause_and_resume(topic);
        }
    }

    fn fail(&self, error: BrokerError) {
        let _ = self.polled.send(Err(error));
    }

    /// An error that lasts, or nothing.
    fn failed(&self, error: KafkaError) -> Result<(), BrokerError> {
        let context = self.consumer.context();
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AutoOffsetReset) => {
                context.offsets_lost(&self.consumer, self.on_lost)?;
                // The partitions are assigned anew, with the offsets that were committed.
                self.consumer.unsubscribe();
                self.consumer.subscribe(&[&context.topic]).map_err(refused)
            }
            // A fatal error has its cause apart.
            _ if lasts(&error) => Err(match self.consumer.client().fatal_error() {
                Some((_, cause)) => BrokerError::new(cause),
                None => refused(error),
            }),
            _ => Ok(()),
        }
    }

    fn pause_and_resume(&self, topic: &str) {
        let turn = {
            let mut offsets = self.consumer.context().offsets.lock();
            offsets.turn(self.max_uncommitted)
        };
        // Both fail for partitions that are not assigned any more, and those are forgotten.
        if !turn.pause.is_empty() {
            let _ = self.consumer.pause(&unpositioned(topic, &turn.pause));
        }
        if !turn.resume.is_empty() {
            let _ = self.consumer.resume(&unpositioned(topic, &turn.resume));
        }
    }

    /// Commits until the other thread ends, and waits for each reply: the client reports none of a commit in the
    /// background, and a refused commit, as in a rebalance, is repeated.
    fn commit(&self, ended: &Receiver<()>) {
        let context = self.consumer.context();
        while ended.recv_timeout(BETWEEN_COMMITS) == Err(RecvTimeoutError::Timeout) {
            let events = context.events();
            if events.is_broker_lost() {
                let reached = self
                    .consumer
                    .fetch_metadata(Some(&context.topic), SHORT_PATIENCE);
                if reached.is_ok() {
                    events.broker_regained();
                }
            }
            let _one = context.commits.lock();
            let done = context.offsets.lock().uncommitted();
            let list = positioned(&context.topic, &done);
            if !done.is_empty() && self.consumer.commit(&list, CommitMode::Sync).is_ok() {
                context.offsets.lock().taken(&done);
            }
        }
    }
}

fn is_of_unknown_topic(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::UnknownTopicOrPartition)
}

/// Whether the refusal lasts, or a message is unreadable. The client would leave such a message out.
fn lasts(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    match error {
        KafkaError::MessageConsumptionFatal(_) => true,
        _ => matches!(
            error.rdkafka_error_code(),
            Some(
                Code::BadMessage
                    | Code::BadCompression
                    | Code::NotImplemented
                    | Code::Authentication
                    | Code::SaslAuthenticationFailed
                    | Code::UnsupportedSASLMechanism
                    | Code::TopicAuthorizationFailed
                    | Code::GroupAuthorizationFailed
                    | Code::ClusterAuthorizationFailed
                    | Code::InconsistentGroupProtocol
                    | Code::InvalidGroupId
            )
        ),
    }
}

/// The error of the client, without the values of properties.
pub(super) fn refused(error: KafkaError) -> BrokerError {
    match error {
        KafkaError::ClientConfig(_, _, property, _) => {
            BrokerError::new(format!("the client does not take the property {property}"))
        }
        error => BrokerError::new(error),
    }
}
