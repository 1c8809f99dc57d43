use idem_runtime::{Error, idempotent};

struct Note<'a>(&'a str);

impl Note<'_> {
    #[idempotent(key = order, on_error = release, on_cancel = finish)]
    async fn pay(self, order: u64) -> Result<usize, Error> {
        let _ = order;
        Ok(self.0.len())
    }
}

fn main() {}
