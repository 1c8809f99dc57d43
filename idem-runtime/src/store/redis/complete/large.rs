//! Completion with a large answer, which is staged.
//!
//! The server copies the arguments of a script twice, which is slow for large ones. So a plain `SET` stages a large
//! record under a name of its own, and the script that follows in the same round trip renames it, if the claim is
//! still the owner's. In every other case, and where the server has no room or the user no right, the answer takes
//! the general path, and the staged record expires.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use crate::record::{HEADER, Header};
use crate::store::redis::arguments::{decimal, millis};
use crate::store::redis::core::RedisCore;
use crate::store::redis::durability::WriteConcern;
use crate::store::redis::failure::{Failure, is_unknown_script};
use crate::store::redis::link::RoutedCommand;
use crate::store::redis::reply::ScriptReply;
use crate::store::redis::wire::Words;
use crate::store::{RecordKey, StoreError};

/// Size from which records are staged, in bytes.
pub(super) const LARGE: usize = 2_048;
/// Life of a staged record that is not renamed, in milliseconds.
const STAY: &[u8] = b"60000";

impl RedisCore {
    /// Stores a record by way of a staged one. Returns false if it was not stored; then nothing has changed.
    pub(super) async fn complete_large(
        &self,
        key: &RecordKey,
        name: &str,
        record: &[u8],
    ) -> Result<bool, StoreError> {
        if !self.stages_large.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let Ok(done) = Header::decode(record) else {
            return Ok(false);
        };
        let stage = stage(key.prefix(), name, &done);
        let script = &self.scripts.complete_staged;
        let life = decimal(millis(done.retain));
        let arguments: [&[u8]; 2] = [&record[..HEADER], life.as_bytes()];
        let set = |words: &mut Words<'_>| {
            words.command(&[&[b"SET", stage.as_bytes(), record, b"PX", STAY]]);
        };
        for by_source in [false, true] {
            let keys = [name.as_bytes(), stage.as_bytes()];
            let moves = |words: &mut Words<'_>| script.write(words, &keys, &arguments, by_source);
            let command = RoutedCommand::pair(name, &set, &moves);
            match self.link.send(&command, WriteConcern::Replicated).await {
                Ok(reply) => {
                    let code = ScriptReply::parse(reply)?.code;
                    if code == b'N' {
                        self.stages_large.store(false, Ordering::Relaxed);
                    }
                    return Ok(code == b'C');
                }
                Err(Failure::Reply(error)) if is_unknown_script(&error) => {}
                Err(Failure::Reply(error)) if error.code().is_some() => return Ok(false),
                Err(failure) => return Err(failure.store_error("a completion")),
            }
        }
        Ok(false)
    }
}

/// Name of the staged record.
///
/// It has the record's prefix, because of the user's rights; its slot, by the hash tag; and the owner, because it is
/// unique to the attempt.
fn stage(prefix: &str, name: &str, done: &Header) -> String {
    let mut stage = String::with_capacity(prefix.len() + name.len() + 40);
    // Writing to a `String` cannot fail.
    let _ = write!(stage, "{prefix}:stage{{{name}}}");
    for byte in done.owner.as_bytes() {
        let _ = write!(stage, "{byte:02x}");
    }
    stage
}
