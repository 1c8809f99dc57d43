use idem_runtime::{idempotent, step};

mod anyhow {
    //! As the crate of that name has it.

    #[derive(Debug)]
    pub struct Error(Box<dyn std::error::Error + Send + Sync>);

    impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
        fn from(error: E) -> Self {
            Self(Box::new(error))
        }
    }

    pub type Result<T, E = Error> = std::result::Result<T, E>;
}

#[idempotent(key = order, on_error = release)]
async fn pay(order: u64) -> anyhow::Result<u64> {
    step("charge", async |_| anyhow::Result::Ok(order)).await
}

fn main() {}
