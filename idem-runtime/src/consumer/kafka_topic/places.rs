//! Where a consumer begins in its partitions, and what happens when it has lost its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use super::PATIENCE;
use super::poll::Callbacks;
use crate::consumer::delivery::BrokerError;
use crate::consumer::subscription::OnLostSubscription;

/// The property by which the client would silently go elsewhere.
const RESET: &str = "auto.offset.reset";

/// Where a consumer begins. The client itself is to fail without an offset that the brokers have.
pub(super) struct Places {
    /// In a partition in which the group has no offset.
    first: Offset,
    /// In partitions whose place was lost, once they are assigned again.
    found: Mutex<BTreeMap<i32, Offset>>,
}

impl Places {
    /// For this value of the property.
    pub(super) fn new(reset: Option<&str>) -> Result<Self, BrokerError> {
        let first = match reset.unwrap_or("earliest") {
            "smallest" | "earliest" | "beginning" => Offset::Beginning,
            "largest" | "latest" | "end" => Offset::End,
            "error" => Offset::Invalid,
            _ => {
                let text = format!("the client does not take the property {RESET}");
                return Err(BrokerError::new(text));
            }
        };
        Ok(Self {
            first,
            found: Mutex::default(),
        })
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<i32, Offset>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callbacks {
    /// Places the consumer in partitions in which the group has no offset, or has lost it.
    pub(super) fn assigned(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        // After an error the client asks itself, and fails where there is no offset.
        let committed = consumer
            .committed_offsets(partitions.clone(), PATIENCE)
            .ok();
        for mut element in partitions.elements() {
            let partition = element.partition();
            let found = self.places.found().remove(&partition);
            let is_new = || {
                let committed = offset(committed.as_ref()?, &self.topic, partition)?;
                let taken = self.offsets.lock().last_taken(partition);
                (committed == Offset::Invalid && taken.is_none()).then_some(self.places.first)
            };
            if let Some(place) = found.or_else(is_new) {
                // Fails for negative numbers only.
                let _ = element.set_offset(place);
            }
        }
    }

    /// Finds new places for partitions whose offset the brokers do not have.
    pub(super) fn place_lost(
        &self,
        consumer: &BaseConsumer<Self>,
        on_lost: OnLostSubscription,
    ) -> Result<(), BrokerError> {
        let mut reason = String::new();
        let (mut found, mut is_known) = (BTreeMap::new(), true);
        let offsets = || {
            let assigned = consumer.assignment()?;
            let committed = consumer.committed_offsets(assigned.clone(), PATIENCE)?;
            KafkaResult::Ok((assigned, committed, consumer.position()?))
        };
        // Found after the next assignment, which fails in the same way.
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
                None if taken.is_none() && self.places.first != Offset::Invalid => {
                    found.insert(partition, self.places.first);
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
            let place = match (on_lost, taken) {
                (OnLostSubscription::Fail, _) | (OnLostSubscription::Resume, None) => {
                    is_known = false;
                    continue;
                }
                (OnLostSubscription::FromNow, _) => Offset::End,
                (OnLostSubscription::Resume, Some(taken)) if (low..=high).contains(&taken) => {
                    Offset::Offset(taken)
                }
                (OnLostSubscription::FromStart | OnLostSubscription::Resume, _) => {
                    Offset::Beginning
                }
            };
            found.insert(partition, place);
        }
        if !reason.is_empty() {
            let reason = reason.trim_end_matches("; ");
            self.events().subscription_lost(reason, on_lost);
        }
        if is_known {
            self.places.found().extend(found);
            return Ok(());
        }
        Err(BrokerError::new(format!(
            "the group `{}` has lost its place in the topic `{}`: {reason}retention has deleted messages that were not \
             read, the offsets have expired, or the topic was created anew; set the offsets of the group \
             (`kafka-consumer-groups --reset-offsets`), or set `on_lost_subscription`, and start the consumer again",
            self.group, self.topic
        )))
    }

    /// An error, if the topic is gone.
    pub(super) fn topic_lost(&self, consumer: &BaseConsumer<Self>) -> Result<(), BrokerError> {
        let unknown = Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        let metadata = consumer.fetch_metadata(Some(&self.topic), PATIENCE);
        // A single broker may not know a new topic yet.
        let is_gone = metadata.is_ok_and(|it| it.topics().iter().any(|it| it.error() == unknown));
        if !is_gone {
            return Ok(());
        }
        let fail = OnLostSubscription::Fail;
        self.events().subscription_lost("the topic is gone", fail);
        Err(BrokerError::new(format!(
            "the topic `{}`, which the group `{}` reads, is gone; create it, and start the consumer again",
            self.topic, self.group
        )))
    }
}

/// The offset of a partition in a list without an error.
fn offset(list: &TopicPartitionList, topic: &str, partition: i32) -> Option<Offset> {
    let element = list.find_partition(topic, partition)?;
    element.error().is_ok().then(|| element.offset())
}
