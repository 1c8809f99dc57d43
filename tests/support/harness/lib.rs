//! Real servers for tests: a [`RedisServer`], [`PostgresServer`], [`PgBouncer`], [`MariaDbServer`], [`NatsServer`], [`RabbitServer`]
//! or [`ZooKeeperServer`] that lives as long as its value. And real clients: the browsers of a
//! [`ChromeDriver`], and a [`PaymentSdk`] and a [`CatalogClient`] that repeat their requests.
//!
//! The harness panics on an error, with a message that names the remedy, because a test cannot
//! handle it. A missing server binary is such a panic, never a skip.
//!
//! Every process started here dies with the process that started it, even when that one is
//! killed with `kill -9`. Unix only.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    missing_docs,
    reason = "every function panics when its server fails, and its callers are tests"
)]

/// Gives a server the methods of a server inside it.
macro_rules! is_a {
    ($server:ident.$field:tt: $target:ty) => {
        impl std::ops::Deref for $server {
            type Target = $target;

            fn deref(&self) -> &$target {
                &self.$field
            }
        }
    };
}

mod account;
mod builder;
mod catalog_client;
mod certificates;
mod child;
mod chrome_driver;
mod chromium;
mod clock;
mod cluster;
mod cluster_view;
mod database;
mod database_builder;
mod dir;
mod edition;
mod family;
mod fault;
mod gate;
mod kafka;
mod mariadb;
mod monitor;
mod nats;
mod own_process;
mod pair;
mod partition;
mod payment_sdk;
mod pgbouncer;
mod poll;
mod port;
mod postgres;
mod product;
mod proxy;
mod rabbit;
mod redis;
mod replication;
mod resp;
mod role;
mod scripts;
mod sentinel;
mod sentinel_view;
mod server;
mod slot_migration;
mod template;
mod tls;
mod tool;
mod url;
mod worker;
mod zookeeper;

pub use builder::RedisServerBuilder;
pub(crate) use builder::StartError;
pub use catalog_client::CatalogClient;
pub use certificates::Certificates;
pub use chrome_driver::ChromeDriver;
pub use chromium::Chromium;
pub use clock::FakeClock;
pub use cluster::{ClusterSetup, ClusterSetupBuilder};
pub use database::DatabaseServer;
pub use database_builder::DatabaseServerBuilder;
pub use dir::TestDir;
pub use edition::Edition;
pub use fault::Fault;
pub use gate::{GatedLines, gated_lines};
pub use kafka::KafkaCluster;
pub use mariadb::{MariaDbServer, MariaDbServerBuilder};
pub use monitor::{Command, Monitor};
pub use nats::NatsServer;
pub use own_process::in_own_process;
pub use pair::ReplicaPair;
pub use partition::Partition;
pub use payment_sdk::{PaymentSdk, Sdk};
pub use pgbouncer::PgBouncer;
pub use poll::{HANG_LIMIT, eventually, until};
pub use postgres::{PostgresServer, PostgresServerBuilder};
pub use proxy::{ProxyStats, TcpProxy};
pub use rabbit::RabbitServer;
pub use redis::RedisServer;
pub use resp::{Reply, RespConn};
pub use sentinel::{SentinelSetup, SentinelSetupBuilder};
pub use server::Server;
pub use slot_migration::SlotMigration;
pub use worker::{Worker, WorkerBuilder};
pub use zookeeper::ZooKeeperServer;
