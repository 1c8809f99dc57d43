//! First offsets of a consumer, and replacements of lost offsets.

use std::fmt::Write as _;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use super::poll::{Callbacks, positioned};
use crate::delivery::BrokerError;
use crate::subscription::OnLostSubscription;

/// The time that the first reply of a broker may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The property by which the client would silently go elsewhere.
const RESET: &str = "auto.offset.reset";

/// The first offset of a new partition, for this value of `auto.offset.reset`.
pub(super) fn first_offset(reset: Option<&str>) -> Result<Offset, BrokerError> {
    match reset.unwrap_or("earliest") {
        "smallest" | "earliest" | "beginning" => Ok(Offset::Beginning),
        "largest" | "latest" | "end" => Ok(Offset::End),
        "error" => Ok(Offset::Invalid),
        _ => {
            let text = format!("the client does not take the property {RESET}");
            Err(BrokerError::new(text))
        }
    }
}

impl Callbacks {
    /// Sets the offset of partitions in which the group has none.
    ///
    /// The end is committed at once, because otherwise a member that settles nothing leaves the next one a later end,
    /// behind the messages between the two.
    pub(super) fn assigned(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        // After an error the client asks itself, and fails where there is no offset.
        let committed = consumer
            .committed_offsets(partitions.clone(), PATIENCE)
            .ok();
        for mut element in partitions.elements() {
            let partition = element.partition();
            let is_new = || {
                let committed = offset(committed.as_ref()?, &self.topic, partition)?;
                let taken = self.offsets.lock().last_taken(partition);
                (committed == Offset::Invalid && taken.is_none()).then_some(self.first)
            };
            let first = match is_new() {
                Some(Offset::End) => self.commit_end(consumer, partition).ok(),
                first => first,
            };
            if let Some(first) = first {
                // Fails for negative numbers only.
                let _ = element.set_offset(first);
            }
        }
    }

    /// Commits the end of the partition as its offset, and returns it.
    fn commit_end(&self, consumer: &BaseConsumer<Self>, partition: i32) -> KafkaResult<Offset> {
        let (_, high) = consumer.fetch_watermarks(&self.topic, partition, PATIENCE)?;
        self.replace(consumer, &[(partition, high)])?;
        Ok(Offset::Offset(high))
    }

    /// Commits new offsets for partitions whose offset the brokers do not have.
    ///
    /// Committed, because otherwise the next member with such a partition loses its offset again. After a failure the
    /// next assignment fails in the same way, and this is called again.
    pub(super) fn offsets_lost(
        &self,
        consumer: &BaseConsumer<Self>,
        on_lost: OnLostSubscription,
    ) -> Result<(), BrokerError> {
        let mut reason = String::new();
        let (mut new, mut is_known) = (Vec::new(), true);
        let offsets = || {
            let assigned = consumer.assignment()?;
            let committed = consumer.committed_offsets(assigned.clone(), PATIENCE)?;
            KafkaResult::Ok((assigned, committed, consumer.position()?))
        };
        let Ok((assigned, committed, positions)) = offsets() else {
            return Ok(());
        };
        for element in assigned.elements() {
            let partition = element.partition();
            let bounds = consumer.fetch_watermarks(&self.topic, partition, PATIENCE);
            let Ok((low, high)) = bounds else { continue };
            let position = offset(&positions, &self.topic, partition);
            let committed = offset(&committed, &self.topic, partition);
            let next = [position, committed]
                .into_iter()
                .flatten()
                .find_map(|it| match it {
                    Offset::Offset(next) => Some(next),
                    _ => None,
                });
            let taken = self.offsets.lock().last_taken(partition);
            match next {
                Some(next) if (low..=high).contains(&next) => continue,
                None if taken.is_none() && self.first != Offset::Invalid => {
                    let is_end = self.first == Offset::End;
                    new.push((partition, if is_end { high } else { low }));
                    continue;
                }
                Some(next) => {
                    let _ = write!(
                        reason,
                        "partition {partition} has the offsets {low} to {high}, and the next one is {next}; "
                    );
                }
                None => {
                    let _ = write!(reason, "partition {partition} has no offset of the group; ");
                }
            }
            let begin = match (on_lost, taken) {
                (OnLostSubscription::Fail, _) | (OnLostSubscription::Resume, None) => {
                    is_known = false;
                    continue;
                }
                (OnLostSubscription::FromNow, _) => high,
                (OnLostSubscription::Resume, Some(taken)) if (low..=high).contains(&taken) => taken,
                (OnLostSubscription::FromStart | OnLostSubscription::Resume, _) => low,
            };
            new.push((partition, begin));
        }
        let reason = reason.trim_end_matches("; ");
        if !is_known {
            self.events()
                .subscription_lost(reason, OnLostSubscription::Fail);
            return Err(BrokerError::new(format!(
                "the group `{}` has lost its offsets in the topic `{}`: {reason}; retention has deleted messages that were \
                 not read, the offsets have expired, or the topic was created anew; set the offsets of the group \
                 (`kafka-consumer-groups --reset-offsets`), or set `on_lost_subscription`, and start the consumer again",
                self.group, self.topic
            )));
        }
        if !new.is_empty() && self.replace(consumer, &new).is_ok() && !reason.is_empty() {
            self.events().subscription_lost(reason, on_lost);
        }
        Ok(())
    }

    /// Commits new offsets, and voids the deliveries of these partitions.
    fn replace(&self, consumer: &BaseConsumer<Self>, new: &[(i32, i64)]) -> KafkaResult<()> {
        let _one = self.commits.lock();
        // Otherwise the revocation would commit the former positions.
        for (partition, _) in new {
            self.offsets.lock().void(*partition);
        }
        consumer.commit(&positioned(&self.topic, new), CommitMode::Sync)?;
        self.offsets.lock().taken(new);
        Ok(())
    }

    /// Whether the brokers do not have the topic; `None`: none of them answers.
    pub(super) fn is_topic_gone(&self, consumer: &BaseConsumer<Self>) -> Option<bool> {
        let unknown = Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        let metadata = consumer.fetch_metadata(Some(&self.topic), PATIENCE).ok()?;
        Some(metadata.topics().iter().any(|it| it.error() == unknown))
    }

    /// Reports the topic as lost.
    pub(super) fn topic_lost(&self) -> BrokerError {
        let fail = OnLostSubscription::Fail;
        self.events().subscription_lost("the topic is gone", fail);
        BrokerError::new(format!(
            "the topic `{}`, which the group `{}` reads, is gone; create it, and start the consumer again",
            self.topic, self.group
        ))
    }
}

/// The offset of a partition in a list without an error.
fn offset(list: &TopicPartitionList, topic: &str, partition: i32) -> Option<Offset> {
    let element = list.find_partition(topic, partition)?;
    element.error().is_ok().then(|| element.offset())
}
