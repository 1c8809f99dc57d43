use idem_runtime::{Error, idempotent};
use std::borrow::Cow;

struct Bank;

impl Bank {
    #[idempotent(key = order, on_error = release, on_cancel = finish)]
    async fn pay(
        &self,
        order: u64,
        note: &str,
        name: Cow<'_, str>,
        who: &'static str,
        #[idem(skip)] judge: Box<dyn Fn(&str) -> bool>,
    ) -> Result<u64, Error> {
        let _ = (note, name, who, judge);
        Ok(order)
    }
}

fn main() {}
