//! Statements that collide with another transaction are sent again, after a pause.

use std::time::Duration;

use super::error::SqlError;
use crate::record::Owner;

/// How often a statement that collided with another transaction is sent again.
pub(super) const COLLISIONS: u32 = 20;

/// Whether it collided with another transaction, and may still be sent again.
pub(crate) fn collided(error: &SqlError, collisions: u32) -> bool {
    collisions <= COLLISIONS && error.is_collision()
}

/// Randomized back-off after a collision, longer each time.
pub(crate) async fn pause(collisions: u32) {
    let most = 500 << collisions.min(6);
    let share = u64::from(Owner::random().as_bytes()[0]) + 1;
    tokio::time::sleep(Duration::from_micros(most * share / 256)).await;
}
