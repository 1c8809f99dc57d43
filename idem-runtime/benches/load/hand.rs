//! The hand-written code of an expert for one function: digests, a claim, a fenced completion, and JSON.
//!
//! It protects as long as nothing goes wrong: no lease, no attempts, no time-outs of its own, no calls that wait for
//! each other, and an error of the server ends the call.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use sha2::{Digest as _, Sha256};

use super::driver::Work;
use super::order::{Order, Receipt};
use super::redis_raw::{COMPLETE, LIFE, load};

/// A letter, an owner and a fingerprint, in front of the answer.
const HEAD: usize = 1 + 16 + 16;

/// The connection and data of one worker.
#[derive(Clone)]
pub(crate) struct Hand {
    connection: MultiplexedConnection,
    complete: Arc<str>,
    receipt: Arc<Receipt>,
    order: Order,
}

impl Hand {
    pub(crate) async fn new(
        mut connection: MultiplexedConnection,
        value_bytes: usize,
        merchant: u64,
    ) -> Self {
        let complete = load(&mut connection, COMPLETE).await;
        Self {
            connection,
            complete,
            receipt: Arc::new(Receipt::of(value_bytes)),
            order: Order::of(merchant),
        }
    }

    async fn pay(&mut self) -> Receipt {
        let id = serde_json::to_vec(&(self.order.merchant, self.order.number)).unwrap();
        let key = name(&Sha256::digest(&id).into());
        let fingerprint = Sha256::digest(serde_json::to_vec(&self.order).unwrap());
        let mut claim = [b'P'; HEAD];
        getrandom::fill(&mut claim[1..17]).unwrap();
        claim[17..].copy_from_slice(&fingerprint[..16]);

        let mut command = Cmd::new();
        command.arg("SET").arg(&key).arg(&claim);
        command.arg("NX").arg("GET").arg("PX").arg(LIFE);
        match self.send(&command).await {
            Value::Nil => {}
            Value::BulkString(stored) => {
                assert_eq!(stored[0], b'D', "no other call runs");
                assert_eq!(stored[17..HEAD], claim[17..], "the same order");
                return serde_json::from_slice(&stored[HEAD..]).unwrap();
            }
            other => panic!("{other:?}"),
        }

        let receipt = (*self.receipt).clone();
        let mut answer = claim.to_vec();
        answer[0] = b'D';
        serde_json::to_writer(&mut answer, &receipt).unwrap();
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&*self.complete).arg(1);
        command.arg(&key).arg(&claim).arg(&answer).arg(LIFE);
        assert_eq!(self.send(&command).await, Value::Int(1));
        receipt
    }

    async fn send(&mut self, command: &Cmd) -> Value {
        self.connection.send_packed_command(command).await.unwrap()
    }
}

/// The name of a record: a prefix, and the first half of a digest.
fn name(digest: &[u8; 32]) -> [u8; 42] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = *b"hand:pay:v--------------------------------";
    for (byte, digits) in digest[..16].iter().zip(name[10..].chunks_exact_mut(2)) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 15)];
    }
    name
}

/// Payments: of orders that are answered already, or of new ones.
#[derive(Clone)]
pub(crate) struct Calls(pub(crate) Hand, pub(crate) bool);

impl Work for Calls {
    fn fills(&self) -> bool {
        self.1
    }

    async fn call(&mut self, number: u64) {
        self.0.order.number = number;
        assert_eq!(self.0.pay().await.cents, 129_900);
    }
}
