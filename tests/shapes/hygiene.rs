//! Names around the function that an expansion must not stumble over.

use super::{Answer, Runs, once, twice};
use idem_runtime::idempotent;

#[idempotent(key = (inputs, call, out))]
async fn same_names(inputs: u8, call: u8, out: u8, body: u8, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (inputs, call, out, body);
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
    ) -> Answer<u64> {
        let _ = (order, amount);
        runs.hit();
        Ok(1)
    }
}

#[no_implicit_prelude]
mod bare {
    use super::{Answer, Runs};
    use ::idem_runtime::{Classify, idempotent};
    use ::std::result::Result::Ok;

    #[allow(dead_code)]
    #[derive(Classify)]
    pub(super) enum Bare {
        #[class(business)]
        Tuple(u8, u8),
        #[class(unknown)]
        Struct { option: u8 },
        #[class(system)]
        Unit,
        #[class(delegate)]
        Inner(super::super::Failure),
    }

    #[idempotent(key = "{order}", scope = order, on_error = keep, on_running = wait("1s"))]
    pub(super) async fn pay(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
        let _ = order;
        Ok(runs.hit())
    }
}

#[tokio::test]
async fn the_prelude_is_not_needed() {
    use bare::Bare;
    use idem_runtime::{Class, Classify as _};

    once("bare::pay", async |runs| bare::pay(1, runs).await).await;
    assert_eq!(Bare::Tuple(1, 2).class(), Class::Business);
    assert_eq!(Bare::Struct { option: 1 }.class(), Class::Unknown);
    assert_eq!(Bare::Unit.class(), Class::System);
    assert_eq!(
        Bare::Inner(super::Failure::Declined).class(),
        Class::Business
    );
}

/// A crate that passes ours on.
mod facade {
    pub(super) mod idem {
        pub(crate) use ::idem_runtime::*;
    }
}

#[facade::idem::idempotent(key = order, crate = facade::idem)]
async fn through_a_facade(order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = order;
    Ok(runs.hit())
}

macro_rules! operation {
    ($name:ident, $key:ident: $ty:ty, $text:expr, $ttl:literal, $body:expr) => {
        #[idempotent(key = ($key, $text), ttl = $ttl)]
        async fn $name($key: $ty, #[idem(skip)] runs: &Runs) -> Answer {
            let _ = $key;
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
    once("same_names", async |runs| {
        same_names(1, 2, 3, 4, runs).await
    })
    .await;
    assert_eq!(
        twice(async |runs| shadowed::pay(1, 2, runs).await).await,
        Ok(1)
    );
    once("through_a_facade", async |runs| {
        through_a_facade(1, runs).await
    })
    .await;
    once("from_a_macro", async |runs| from_a_macro("1", runs).await).await;
    once("shadowing_body", async |runs| shadowing_body(1, runs).await).await;
}
