use idem_consumers::{Consumer, MemoryQueue};
use idem_runtime::{Context, idempotent, step};

mod anyhow {
    //! As the crate of that name has it.

    #[derive(Debug)]
    pub struct Error(Box<dyn std::error::Error + Send + Sync>);

    impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
        fn from(error: E) -> Self { Self(Box::new(error)) }
    }

    pub type Result<T, E = Error> = std::result::Result<T, E>;
}

#[idempotent(key = order)]
async fn of_a_body(order: u64) -> anyhow::Result<u64> {
    Ok(order)
}

#[idempotent(key = order, on_error = release)]
async fn of_a_step(order: u64) -> anyhow::Result<u64> {
    step("charge", async |_| anyhow::Result::Ok(order)).await
}

async fn bill(_: String, _: Context) -> anyhow::Result<()> {
    Ok(())
}

async fn consume(consumer: Consumer, queue: MemoryQueue) {
    let _ = consumer.run(queue, bill).await;
}

fn main() {}
