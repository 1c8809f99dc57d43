//! An engine: how it is built, shut down and inspected. Its handle is `call/engine`.

mod builder;
mod entries;
mod shutdown;
#[cfg(feature = "tokens")]
mod tokens;

pub use self::builder::EngineBuilder;
pub use self::shutdown::ShutdownError;
