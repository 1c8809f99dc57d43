//! A call of this process, and the points at which it stops.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use idem_runtime::Error;
use idem_tests::lines::say;
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) key: String,
    /// The points at which it still stops.
    stops: Mutex<HashSet<String>>,
    going: watch::Sender<bool>,
    /// The step that runs, and whether its part has ended; only in a body with one step at a time.
    current: Mutex<Option<(&'static str, bool)>>,
}

pub(crate) fn kind(error: &Error) -> String {
    let debug = format!("{:?}", error.kind());
    let end = debug.find([' ', '{', '(']).unwrap_or(debug.len());
    debug[..end].to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Call {
    pub(crate) fn new(key: &str, stops: &[&str]) -> Self {
        Self {
            key: key.to_owned(),
            stops: Mutex::new(stops.iter().copied().map(str::to_owned).collect()),
            going: watch::Sender::new(false),
            current: Mutex::default(),
        }
    }

    /// Passes a point, or stops there until it is to go on.
    pub(crate) async fn pass(&self, point: &str) {
        if lock(&self.stops).remove(point) && !*self.going.borrow() {
            say(&format!("at {} {point}", self.key));
            let mut going = self.going.subscribe();
            // The sender is this call's own.
            let _ = going.wait_for(|going| *going).await;
        }
    }

    /// Goes on, and stops nowhere any more.
    pub(crate) fn go(&self) {
        self.going.send_replace(true);
    }

    /// The current step, and whether its part has ended.
    pub(crate) fn runs(&self, step: &'static str, ended: bool) {
        *lock(&self.current) = Some((step, ended));
    }

    /// The points before and after an append.
    pub(crate) fn append(&self) -> Option<[String; 2]> {
        let (step, ended) = (*lock(&self.current))?;
        let places = if ended {
            ["ending", "appended"]
        } else {
            ["beginning", "begun"]
        };
        Some(places.map(|place| format!("{step}/{place}")))
    }
}
