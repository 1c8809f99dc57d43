//! Parameters of every kind.

use super::{Answer, Runs, engine, once, twice};
use idem_runtime::idempotent;
use serde::Serialize;
use std::fmt::Display;

#[derive(Clone, Serialize)]
struct Request {
    merchant: String,
    lines: Vec<(u64, u32)>,
}

fn request() -> Request {
    Request {
        merchant: "m".to_owned(),
        lines: vec![(1, 2)],
    }
}

/// A key of fields does not move them.
#[idempotent(key = (req.merchant, (req.lines, 7)))]
async fn moved(req: Request, #[idem(skip)] runs: &Runs) -> Answer {
    drop(req);
    Ok(runs.hit())
}

#[idempotent]
async fn borrowed<'a>(
    name: &'a str,
    req: &Request,
    list: &mut Vec<u8>,
    #[idem(skip)] runs: &Runs,
) -> Answer {
    let _: (&'a str, &Request) = (name, req);
    list.clear();
    Ok(runs.hit())
}

#[idempotent(op = "shapes.generic", key = id)]
async fn generic<T, const N: usize>(
    id: T,
    #[idem(skip)] tags: [u8; N],
    #[idem(skip)] runs: &Runs,
) -> Answer
where
    T: Clone + Serialize,
{
    let _ = (id.clone(), tags.len());
    Ok(runs.hit())
}

#[idempotent(op = "shapes.opaque", key = id.to_string())]
async fn opaque(id: impl Serialize + Display, #[idem(skip)] runs: &Runs) -> Answer {
    drop(id);
    Ok(runs.hit())
}

#[idempotent]
async fn patterns(
    (a, mut b): (u64, u64),
    Request { merchant, lines: _ }: Request,
    [first, .., last]: [u8; 4],
    &borrowed: &u8,
    #[idem(skip)] (_, _): (u8, u8),
    #[idem(skip)] _: &str,
    #[idem(skip)] runs: &Runs,
) -> Answer {
    b += a + u64::from(first + last + borrowed);
    drop((merchant, b));
    Ok(runs.hit())
}

#[idempotent(key = order)]
async fn conditional(
    #[cfg(test)] order: u64,
    #[cfg(not(test))] order: u32,
    #[cfg(not(test))] absent: u64,
    #[cfg(test)]
    #[cfg(not(miri))]
    present: u64,
    #[idem(skip)] runs: &Runs,
) -> Answer {
    Ok(runs.hit())
}

// The second declaration is the compiled one.
#[idempotent(fingerprint(order))]
async fn conditional_and_listed(
    #[cfg(not(test))] order: u32,
    #[cfg(test)] order: u64,
    runs: &Runs,
) -> Answer {
    Ok(runs.hit())
}

#[idempotent(key = "{type}-{amount:>4}")]
async fn r#match(r#type: &str, amount: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

#[tokio::test]
async fn a_listed_argument_is_that_of_the_compiled_declaration() {
    let runs = Runs::default();
    let calls = async {
        for order in [1, 2, 1] {
            conditional_and_listed(order, &runs).await.unwrap();
        }
    };
    engine().scope(calls).await;
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn parameters_of_every_kind() {
    once("moved", async |runs| moved(request(), runs).await).await;
    once("generic", async |runs| generic(1_u8, [2], runs).await).await;
    once("opaque", async |runs| opaque("id", runs).await).await;
    once("conditional", async |runs| conditional(1, 2, runs).await).await;
    once("match", async |runs| r#match("card", 5, runs).await).await;
    let req = request();
    let call = async |runs: &Runs| borrowed("n", &req, &mut vec![1], runs).await;
    assert_eq!(twice(call).await, Ok(1));
    let call = async |runs: &Runs| patterns((1, 2), request(), [1; 4], &1, (1, 2), "", runs).await;
    assert_eq!(twice(call).await, Ok(1));
}
