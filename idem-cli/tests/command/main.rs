//! The command `idem`: each verb on real stores, as an operator types it.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod answers;
mod command;
mod deployments;
mod doctor;
mod filled;
mod key_files;
mod night;
mod planted;
mod replies;
mod secrets;
mod story;
mod verbs;

use std::sync::Arc;

use idem_harness::{MariaDbServer, PostgresServer, RedisServer, TestDir};
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{MySql, Postgres, Sqlite};

use crate::filled::{PAY, PREFIX, PayError, Site, receipt, redis, sql};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_on_redis() {
    let server = RedisServer::start();
    let store = redis(RedisStore::builder(server.url())).await;
    verbs::all(Site::new(server.url(), Arc::new(store))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_on_postgresql() {
    let server = PostgresServer::builder().durable().start();
    let store = sql::<Postgres>(server.url()).await;
    verbs::all(Site::new(server.url(), Arc::new(store))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_on_mariadb() {
    let server = MariaDbServer::builder().durable().start();
    let store = sql::<MySql>(server.url()).await;
    verbs::all(Site::new(server.url(), Arc::new(store))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_on_sqlite() {
    let dir = TestDir::new("command").unwrap();
    let url = format!("sqlite://{}", dir.path().join("records.db").display());
    let store = sql::<Sqlite>(url.clone()).await;
    verbs::all(Site::new(url, Arc::new(store))).await;
}

/// The fast store's copy is withdrawn with the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_withdraws_the_copy_in_front() {
    let (front, durable) = (RedisServer::start(), PostgresServer::start());
    let fast = redis(RedisStore::builder(front.url())).await;
    let store = sql::<Postgres>(durable.url()).await;
    let site = Site::new(durable.url(), Arc::new(LayeredStore::new(fast, store)));
    assert_eq!(
        site.pay("o-1", Ok(receipt("r-1"))).await,
        Ok(receipt("r-1"))
    );
    let replayed = site.pay("o-1", Err(PayError::Down)).await;
    assert_eq!(replayed, Ok(receipt("r-1")));
    let url = front.url();
    let reset = format!("reset {PAY} --key \"o-1\" --yes --front {url}");
    site.shows(reset, "state now released");
    let other = Site::new(durable.url(), {
        let fast = redis(RedisStore::builder(front.url())).await;
        let store = sql::<Postgres>(durable.url()).await;
        Arc::new(LayeredStore::new(fast, store))
    });
    let ran = other.pay("o-1", Ok(receipt("r-2"))).await;
    assert_eq!(ran, Ok(receipt("r-2")));
    let wrong = format!("--prefix {PREFIX} ls --front {}", durable.url());
    site.idem(wrong).refused(2, "--front");
}

/// Redis lists operations under 48 bytes of their names: a purge of one would remove the records of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_other_operations_are_removed_only_if_they_are_meant() {
    const REFUND: &str = "shop_backend::payments::service::PaymentService::refund";
    const CHARGE: &str = "shop_backend::payments::service::PaymentService::charge";
    let server = RedisServer::start();
    let store = redis(RedisStore::builder(server.url())).await;
    let site = Site::new(server.url(), Arc::new(store));
    for operation in [REFUND, CHARGE] {
        let call = site.engine.operation(operation).key("o-1");
        let paid = call.run(|_| async { Ok::<_, PayError>(receipt("r-1")) });
        paid.await.unwrap();
    }
    for operation in [REFUND, &CHARGE[..48], "pay/eu"] {
        let purge = format!("purge {operation} --dry-run");
        site.idem(purge).refused(1, "--abbreviated");
    }
    let name = &REFUND[..48];
    let purge = format!("purge {REFUND} --abbreviated");
    let of = format!("2 records of all operations that Redis lists as `{name}` match");
    site.shows(format!("{purge} --dry-run"), &of);
    let removed = site.json(format!("{purge} --yes"));
    assert_eq!(removed["removed"], 2, "{removed:#}");
    assert_eq!(removed["abbreviated"], name, "{removed:#}");
}
