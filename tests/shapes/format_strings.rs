//! Format strings as keys and scopes: each placeholder by itself.

use super::{Answer, Runs, engine};
use idem_runtime::{Engine, idempotent};

/// Nothing is compared: a key that two callers share is an answer that they share.
#[idempotent(op = "shapes.format.read", key = "{tenant}/{id}", fingerprint = none)]
async fn read(tenant: &str, id: &str, #[idem(skip)] runs: &Runs) -> Answer<String> {
    runs.hit();
    Ok(format!("{id} of {tenant}"))
}

/// The attack: a tenant that chooses its name so that its key is that of another tenant.
#[tokio::test]
async fn a_key_is_not_the_key_of_another_split() {
    let runs = Runs::default();
    let calls = async {
        assert_eq!(read("a/b", "c", &runs).await.unwrap(), "c of a/b");
        assert_eq!(read("a", "b/c", &runs).await.unwrap(), "b/c of a");
        assert_eq!(read("a/b", "c", &runs).await.unwrap(), "c of a/b");
    };
    engine().scope(calls).await;
    assert_eq!(runs.count(), 2);
}

#[idempotent(op = "shapes.format.renamed", key = "{order_no:>4}/{note:?} {{}}", fingerprint = none)]
async fn before(order_no: u64, note: &str, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

/// Other names, and a width that is an argument.
#[idempotent(op = "shapes.format.renamed", key = r"{number:>width$}/{type:?} {{}}", fingerprint = none)]
async fn after(number: u64, width: usize, r#type: &str, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[tokio::test]
async fn a_renamed_argument_keeps_the_keys() {
    let runs = Runs::default();
    let calls = async {
        assert_eq!(before(7, "gift", &runs).await, Ok(1));
        assert_eq!(after(7, 4, "gift", &runs).await, Ok(1));
        // Only the text of a placeholder counts.
        assert_eq!(after(7, 5, "gift", &runs).await, Ok(2));
        assert_eq!(after(7, 4, "gift ", &runs).await, Ok(3));
    };
    engine().scope(calls).await;
}

macro_rules! paid {
    ($function:ident($tenant:ident, $number:ident), $key:literal, $scope:expr) => {
        #[idempotent(op = "shapes.format.of_a_macro", key = $key, scope = $scope, engine = engine)]
        async fn $function(
            $tenant: &str,
            $number: u32,
            #[idem(skip)] engine: &Engine,
            #[idem(skip)] runs: &Runs,
        ) -> Answer {
            Ok(runs.hit())
        }
    };
}

paid!(of_everybody(tenant, number), "{tenant}-{number}", public);
paid!(of_a_tenant(tenant, number), "{tenant}-{number}", tenant);

/// `public` is no part of the key: it states that there is no scope.
#[idempotent(op = "shapes.format.of_a_macro", key = "{tenant}-{number}", engine = engine)]
async fn unscoped(
    tenant: &str,
    number: u32,
    #[idem(skip)] engine: &Engine,
    #[idem(skip)] runs: &Runs,
) -> Answer {
    Ok(runs.hit())
}

#[tokio::test]
async fn a_literal_and_a_word_may_come_from_a_macro() {
    let (runs, engine) = (Runs::default(), engine());
    assert_eq!(of_everybody("a", 7, &engine, &runs).await, Ok(1));
    assert_eq!(of_a_tenant("a", 7, &engine, &runs).await, Ok(2));
    assert_eq!(unscoped("a", 7, &engine, &runs).await, Ok(1));
}
