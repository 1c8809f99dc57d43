//! Format strings as keys and scopes: each placeholder by itself.

use super::{Answer, Failure, Runs, engine};
use idem_runtime::{Engine, idempotent};

/// Nothing is compared: a key that two callers share is an answer that they share.
#[idempotent(op = "shapes.format.read", key = "{tenant}/{id}", fingerprint = none)]
async fn read(tenant: &str, id: &str, #[idem(skip)] runs: &Runs) -> Answer<String> {
    runs.hit();
    Ok(format!("{id} of {tenant}"))
}

#[idempotent(op = "shapes.format.listed", scope = "{region}/{tenant}", key = number, fingerprint = none)]
async fn listed(
    region: &str,
    tenant: &str,
    number: u32,
    #[idem(skip)] runs: &Runs,
) -> Answer<String> {
    runs.hit();
    Ok(format!("{number} of {tenant} in {region}"))
}

#[idempotent(op = "shapes.format.nested", key = ("file", "{tenant}{id}"), fingerprint = none)]
async fn nested(tenant: &str, id: &str, #[idem(skip)] runs: &Runs) -> Answer<String> {
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
        assert_eq!(nested("ab", "c", &runs).await.unwrap(), "c of ab");
        assert_eq!(nested("a", "bc", &runs).await.unwrap(), "bc of a");
        assert_eq!(read("a/b", "c", &runs).await.unwrap(), "c of a/b");
        assert_eq!(nested("a", "bc", &runs).await.unwrap(), "bc of a");
    };
    engine().scope(calls).await;
    assert_eq!(runs.count(), 4);
}

#[tokio::test]
async fn a_scope_is_not_the_scope_of_another_split() {
    let runs = Runs::default();
    let calls = async {
        let first = listed("eu/a", "b", 1, &runs).await.unwrap();
        assert_eq!(first, "1 of b in eu/a");
        let other = listed("eu", "a/b", 1, &runs).await.unwrap();
        assert_eq!(other, "1 of a/b in eu");
        assert_eq!(listed("eu/a", "b", 1, &runs).await.unwrap(), first);
    };
    engine().scope(calls).await;
    assert_eq!(runs.count(), 2);
}

#[idempotent(op = "shapes.format.ordered", key = "order-{id}", fingerprint = none)]
async fn ordered(id: &str, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = id;
    Ok(runs.hit())
}

#[idempotent(op = "shapes.format.owned", scope = "tenant-{tenant}", key = number)]
async fn owned(tenant: &str, number: u32, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (tenant, number);
    Ok(runs.hit())
}

fn refused(answer: Answer) -> bool {
    matches!(answer, Err(Failure::Refused(text)) if text.contains("the key cannot be used"))
}

/// All calls without an id would get one answer.
#[tokio::test]
async fn text_around_an_empty_placeholder_is_no_key() {
    let runs = Runs::default();
    let calls = async {
        assert!(refused(ordered("", &runs).await));
        assert!(refused(owned("", 7, &runs).await));
        assert_eq!(ordered("7", &runs).await, Ok(1));
        assert_eq!(owned("a", 7, &runs).await, Ok(2));
    };
    engine().scope(calls).await;
}

#[idempotent(op = "shapes.format.renamed", key = "{order_no:>4}/{note:?} {{}}", fingerprint = none)]
async fn before(order_no: u64, note: &str, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (order_no, note);
    Ok(runs.hit())
}

/// Other names, and a width that is an argument.
#[idempotent(op = "shapes.format.renamed", key = r"{number:>width$}/{type:?} {{}}", fingerprint = none)]
async fn after(number: u64, width: usize, r#type: &str, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (number, width, r#type);
    Ok(runs.hit())
}

#[tokio::test]
async fn a_renamed_argument_keeps_the_keys() {
    let runs = Runs::default();
    let calls = async {
        assert_eq!(before(7, "gift", &runs).await, Ok(1));
        assert_eq!(after(7, 4, "gift", &runs).await, Ok(1));
        // What a placeholder shows is what counts.
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
            let _ = ($tenant, $number, engine);
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
    let _ = (tenant, number, engine);
    Ok(runs.hit())
}

#[tokio::test]
async fn a_literal_and_a_word_may_come_from_a_macro() {
    let (runs, engine) = (Runs::default(), engine());
    assert_eq!(of_everybody("a", 7, &engine, &runs).await, Ok(1));
    assert_eq!(of_a_tenant("a", 7, &engine, &runs).await, Ok(2));
    assert_eq!(unscoped("a", 7, &engine, &runs).await, Ok(1));
}
