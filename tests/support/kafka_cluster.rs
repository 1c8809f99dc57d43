//! The mock cluster of librdkafka as a process: real protocol, groups and rebalances, in memory.
//!
//! The argument is the number of brokers. It prints `brokers <addresses>`, and `ok` for each line of its input, until
//! that ends:
//!
//! ```text
//! topic <name> <partitions>   creates a topic
//! gone <name>                 no broker knows the topic any more
//! refuse <commits>            the next so many commits of offsets are refused
//! fence                       the next heartbeat is of a member whose `group.instance.id` another one has
//! down                        all brokers close their connections and refuse new ones
//! up                          all brokers accept connections again
//! ```

use std::env;
use std::io::{self, BufRead, Write};

use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

/// The id that stands for all brokers.
const ALL: i32 = -1;

fn main() {
    let brokers = env::args().nth(1).expect("the number of brokers");
    let brokers: i32 = brokers.parse().expect("a number of brokers");
    let cluster = MockCluster::new(brokers).expect("the mock cluster starts");
    say(&format!("brokers {}", cluster.bootstrap_servers()));
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<_> = line.split(' ').collect();
        let done = match words[..] {
            ["topic", name, partitions] => {
                let partitions = partitions.parse().expect("a number of partitions");
                cluster.create_topic(name, partitions, brokers)
            }
            ["gone", name] => {
                let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
                cluster.topic_error(name, unknown)
            }
            ["refuse", commits] => {
                let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
                let refused = vec![refused; commits.parse().expect("a number of commits")];
                cluster.request_errors(RDKafkaApiKey::OffsetCommit, &refused);
                Ok(())
            }
            ["fence"] => {
                let fenced = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID];
                cluster.request_errors(RDKafkaApiKey::Heartbeat, &fenced);
                Ok(())
            }
            ["down"] => cluster.broker_down(ALL),
            ["up"] => cluster.broker_up(ALL),
            _ => panic!("not understood: {line}"),
        };
        done.expect("the mock cluster does it");
        say("ok");
    }
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").expect("the test listens");
}
