//! An example's SQLite file, the time, and the text of an error.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_runtime::store::sql::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

/// Deadline of the store: its disk may be slow or shared, and a caller waits longer instead of being refused.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Opens or creates a file: a pool of so many connections, and idem's records.
pub async fn sqlite(file: &Path, connections: u32) -> Result<(SqlitePool, SqliteStore), String> {
    let options = SqliteConnectOptions::new().filename(file);
    // Same mode as the store: readers do not wait for the writer.
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(connections);
    let pool = pool.connect_with(options).await;
    let pool = pool.map_err(cannot(&format!("open {}", file.display())))?;
    let store = SqliteStore::builder(format!("sqlite:{}", file.display()));
    let store = store.response_timeout(PATIENCE).connect().await;
    let store = store.map_err(cannot("use SQLite"))?;
    store.migrate().await.map_err(cannot("use SQLite"))?;
    Ok((pool, store))
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// A file beside the program, or else among temporary files.
///
/// The `target` directory belongs to one clone of the repository, so that neither another user nor
/// another clone finds the same file.
pub fn beside_the_program(name: &str) -> PathBuf {
    let program = std::env::current_exe().ok();
    let place = program.as_deref().and_then(|program| program.parent());
    place
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(name)
}

/// "cannot …", and the error with its causes.
pub fn cannot<E: Error>(what: &str) -> impl Fn(E) -> String {
    move |error| {
        let mut text = format!("cannot {what}: {error}");
        let mut source = error.source();
        while let Some(error) = source {
            let cause = error.to_string();
            // Some errors print their cause themselves.
            if !text.ends_with(&cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
            source = error.source();
        }
        text
    }
}
