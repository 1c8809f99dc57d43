//! Time limits of a connection.

use std::time::Duration;

use redis::AsyncConnectionConfig;

/// Largest number of commands in flight before a sender waits.
const PIPELINE: usize = 1_024;

/// Time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) response: Duration,
}

impl Timeouts {
    pub(super) fn config(self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect))
            .set_response_timeout(Some(self.response))
            .set_pipeline_buffer_size(PIPELINE)
    }
}
