//! Parameters of every kind.

use super::{Answer, Runs, once, twice};
use idem_runtime::idempotent;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Display;
use std::hash::{BuildHasherDefault, DefaultHasher};

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

#[idempotent]
async fn mutable(mut list: Vec<u8>, #[idem(skip)] runs: &Runs) -> Answer {
    list.push(1);
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
    let _ = (order, present);
    Ok(runs.hit())
}

#[idempotent(key = "{type}-{amount:>4}")]
async fn r#match(r#type: &str, amount: u64, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (r#type, amount);
    Ok(runs.hit())
}

#[idempotent(key = r#type)]
async fn raw(r#type: &str, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = r#type;
    Ok(runs.hit())
}

#[idempotent]
async fn unused(_order: u64, #[idem(skip)] runs: &Runs) -> Answer {
    Ok(runs.hit())
}

fn sorted(tags: &HashSet<u32>) -> Vec<u32> {
    let mut sorted: Vec<u32> = tags.iter().copied().collect();
    sorted.sort_unstable();
    sorted
}

/// A set without an order may be a key that has one.
#[idempotent(key = sorted(tags), fingerprint(order))]
async fn tagged(order: u64, tags: &HashSet<u32>, #[idem(skip)] runs: &Runs) -> Answer {
    let _ = (order, tags);
    Ok(runs.hit())
}

type Fixed = BuildHasherDefault<DefaultHasher>;

/// A set with a hasher of its own has an order.
#[idempotent]
async fn ordered(tags: Vec<HashSet<u32, Fixed>>, #[idem(skip)] runs: &Runs) -> Answer {
    drop(tags);
    Ok(runs.hit())
}

#[tokio::test]
async fn parameters_of_every_kind() {
    once("moved", async |runs| moved(request(), runs).await).await;
    once("generic", async |runs| generic(1_u8, [2], runs).await).await;
    once("opaque", async |runs| opaque("id", runs).await).await;
    once("mutable", async |runs| mutable(vec![], runs).await).await;
    once("conditional", async |runs| conditional(1, 2, runs).await).await;
    once("match", async |runs| r#match("card", 5, runs).await).await;
    once("raw", async |runs| raw("card", runs).await).await;
    once("unused", async |runs| unused(1, runs).await).await;
    let req = request();
    let call = async |runs: &Runs| borrowed("n", &req, &mut vec![1], runs).await;
    assert_eq!(twice(call).await, Ok(1));
    let call = async |runs: &Runs| patterns((1, 2), request(), [1; 4], &1, (1, 2), "", runs).await;
    assert_eq!(twice(call).await, Ok(1));
    once("tagged", async |runs| {
        tagged(1, &(0..100).collect(), runs).await
    })
    .await;
    once("ordered", async |runs| {
        ordered(vec![(0..100).collect()], runs).await
    })
    .await;
}
