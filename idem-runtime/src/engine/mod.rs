//! The engine: store, defaults and observer in one handle.

mod builder;
mod disabled;
mod entries;
mod handle;
mod install;
mod shutdown;
#[cfg(feature = "tokens")]
mod tokens;

pub use self::builder::EngineBuilder;
pub use self::handle::{Engine, HasEngine};
pub use self::install::InstallError;
pub use self::shutdown::ShutdownError;
