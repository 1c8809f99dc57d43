//! Names around the function that an expansion must not stumble over.

use super::{Answer, Runs, once};
use idem_runtime::idempotent;

#[idempotent(key = (inputs, call, out))]
async fn same_names(inputs: u8, call: u8, out: u8, body: u8, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

mod shadowed {
    #![allow(dead_code, non_camel_case_types)]

    use super::{Answer, Runs};

    pub(super) struct Option;
    pub(super) struct Box;
    pub(super) struct Some;
    pub(super) struct usize;
    pub(super) struct bool;
    pub(super) struct Duration;
    pub(super) mod core {}
    pub(super) mod std {}
    pub(super) mod idem_runtime {}
    macro_rules! concat {
        () => {};
    }
    macro_rules! format {
        () => {};
    }
    macro_rules! cfg {
        () => {};
    }
    concat!();
    format!();
    cfg!();

    #[::idem_runtime::idempotent(key = "{order}", ttl = "24h")]
    pub(super) async fn pay(
        order: u64,
        #[cfg(test)] amount: u8,
        #[idem(skip)] runs: &Runs,
    ) -> Answer {
        Ok(runs.hit())
    }
}

#[no_implicit_prelude]
mod bare {
    use super::{Answer, Runs};
    use ::idem_runtime::idempotent;
    use ::std::result::Result::Ok;

    #[idempotent(key = "{order}", scope = order, on_error = keep, on_running = wait("1s"))]
    pub(super) async fn pay(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
        Ok(runs.hit())
    }
}

/// A crate that passes ours on.
mod facade {
    pub(super) mod idem {
        pub(crate) use ::idem_runtime::*;
    }
}

#[facade::idem::idempotent(key = order, crate = facade::idem)]
async fn through_a_facade(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

macro_rules! operation {
    ($name:ident, $key:ident: $ty:ty, $text:expr, $ttl:literal, $body:expr) => {
        #[idempotent(key = ($key, $text), ttl = $ttl)]
        async fn $name($key: $ty, #[idem(skip)] runs: &Runs) -> Answer {
            runs.hit();
            $body
        }
    };
}

operation!(from_a_macro, order: &str, "eu", "24h", Ok(1));

#[idempotent(key = order)]
async fn shadowing_body(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    #[allow(dead_code)]
    type Answer = ();
    let order = order.to_string();
    drop(order);
    Ok(runs.hit())
}

#[tokio::test]
async fn names_do_not_collide() {
    let call = async |runs: &Runs| same_names(1, 2, 3, 4, runs).await;
    once("same_names", call).await;
    once("shadowed::pay", async |runs| {
        shadowed::pay(1, 2, runs).await
    })
    .await;
    once("bare::pay", async |runs| bare::pay(1, runs).await).await;
    let call = async |runs: &Runs| through_a_facade(1, runs).await;
    once("through_a_facade", call).await;
    once("from_a_macro", async |runs| from_a_macro("1", runs).await).await;
    once("shadowing_body", async |runs| shadowing_body(1, runs).await).await;
}
