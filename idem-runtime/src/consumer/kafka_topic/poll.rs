//! The thread that polls Kafka: receives, pauses, commits, and gives partitions up.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::mpsc::UnboundedSender;

use super::offsets::{Offsets, Ticket};

/// The longest wait for an event; a partition is resumed within it.
const LONGEST_POLL: Duration = Duration::from_millis(50);

/// The shortest time between two commits.
const BETWEEN_COMMITS: Duration = Duration::from_millis(100);

/// The time that the next commit waits for the reply to one.
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// The time that the end of the thread is waited for.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// A message and its ticket.
pub(super) struct KafkaMessage {
    pub(super) message: OwnedMessage,
    pub(super) ticket: Ticket,
}

/// What a source is sent.
pub(super) enum PollEvent {
    Message(Arc<KafkaMessage>),
    /// To be delivered again, at that time.
    Again(tokio::time::Instant, Arc<KafkaMessage>),
    /// No message will come.
    Failed(KafkaError),
}

/// The offsets, shared by the thread and the deliveries.
#[derive(Clone, Default)]
pub(super) struct SharedOffsets(Arc<Mutex<Offsets>>);

impl SharedOffsets {
    pub(super) fn lock(&self) -> MutexGuard<'_, Offsets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The callbacks of the client, which are made from within `poll`.
pub(super) struct Callbacks {
    pub(super) topic: String,
    pub(super) offsets: SharedOffsets,
    pub(super) is_committing: AtomicBool,
}

impl ClientContext for Callbacks {}

impl ConsumerContext for Callbacks {
    /// Commits what is done of the partitions that are given up, while they are still this consumer's.
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(partitions) = rebalance else {
            return;
        };
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
        if !done.is_empty() && !consumer.assignment_lost() {
            let _ = consumer.commit(&positioned(&self.topic, &done), CommitMode::Sync);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, partitions: &TopicPartitionList) {
        self.is_committing.store(false, Ordering::Relaxed);
        let mut offsets = self.offsets.lock();
        for partition in partitions.elements() {
            if result.is_err() || partition.error().is_err() {
                offsets.not_committed(partition.partition());
            }
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

fn positioned(topic: &str, offsets: &[(i32, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (partition, offset) in offsets {
        // Fails for offsets that have a special meaning, all of them negative.
        let _ = list.add_partition_offset(topic, *partition, Offset::Offset(*offset));
    }
    list
}

/// The running thread. Dropped: the thread commits, leaves the group and ends.
pub(super) struct Poller {
    is_stopped: Arc<AtomicBool>,
    ended: Mutex<Receiver<()>>,
}

impl Poller {
    /// A thread, because the client blocks where it commits before a revocation, and when it leaves the group.
    pub(super) fn spawn(
        consumer: BaseConsumer<Callbacks>,
        max_uncommitted: usize,
        events: UnboundedSender<PollEvent>,
    ) -> io::Result<Self> {
        let (end, ended) = channel();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let thread = PollThread {
            consumer,
            max_uncommitted,
            events,
            committed: Instant::now(),
        };
        let stop = Arc::clone(&is_stopped);
        thread::Builder::new()
            .name("idem-kafka".to_owned())
            .spawn(move || {
                thread.run(&stop);
                drop(end);
            })?;
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

struct PollThread {
    consumer: BaseConsumer<Callbacks>,
    max_uncommitted: usize,
    events: UnboundedSender<PollEvent>,
    committed: Instant,
}

impl PollThread {
    fn run(mut self, is_stopped: &AtomicBool) {
        let topic = self.consumer.context().topic.clone();
        let subscribed = self.consumer.subscribe(&[&topic]);
        let mut is_failed = subscribed.is_err();
        if let Err(error) = subscribed {
            let _ = self.events.send(PollEvent::Failed(error));
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
                    let _ = self.events.send(PollEvent::Message(Arc::new(KafkaMessage {
                        message,
                        ticket,
                    })));
                }
                Some(Err(error)) if lasts(&error) => {
                    is_failed = true;
                    let _ = self.events.send(PollEvent::Failed(error));
                }
                Some(Err(_)) | None => {}
            }
            self.pause_and_resume(&topic);
            self.commit(&topic);
        }
        // Commits as each revocation does: the client gives all its partitions up, and leaves the group.
        drop(self.consumer);
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

    /// Commits without waiting, one commit at a time.
    fn commit(&mut self, topic: &str) {
        let context = self.consumer.context();
        let is_committing = context.is_committing.load(Ordering::Relaxed);
        let pause = if is_committing {
            COMMIT_PATIENCE
        } else {
            BETWEEN_COMMITS
        };
        if self.committed.elapsed() < pause {
            return;
        }
        let done = context.offsets.lock().commit();
        if done.is_empty() {
            return;
        }
        self.committed = Instant::now();
        context.is_committing.store(true, Ordering::Relaxed);
        let committed = self
            .consumer
            .commit(&positioned(topic, &done), CommitMode::Async);
        if committed.is_err() {
            context.is_committing.store(false, Ordering::Relaxed);
            let mut offsets = context.offsets.lock();
            for (partition, _) in done {
                offsets.not_committed(partition);
            }
        }
    }
}

/// Whether the brokers refuse, and would refuse again, or a message cannot be read, which the client would leave out.
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
                    | Code::AutoOffsetReset
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
