use std::fmt::Debug;
use std::sync::Mutex;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::claim::{Acquired, Completion};
use crate::codec::AnswerFormat;
use crate::observe::{Event, EventKind};
use crate::on_error::{Keep, Release};
use crate::store::memory::MemoryStore;
use crate::{Engine, Error, ErrorKind, Observer, step};

mod one_answer;

mod earlier {
    /// A version of [`super::Rate`] with other members.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Rate {
        pub(super) mean: u32,
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Rate {
    of: Vec<u32>,
}

#[tokio::test]
async fn a_value_of_an_earlier_version_is_reported_as_such() {
    let engine = Engine::builder(MemoryStore::new()).build().unwrap();
    let call = || engine.operation("rates.mean").key(&1).on_error(Release);
    let stored = call().run(|_| async { Ok::<_, Error>(earlier::Rate { mean: 1 }) });
    assert!(stored.await.is_ok());
    let read = call().run(|_| async { Ok::<_, Error>(Rate { of: Vec::new() }) });
    let error = read.await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Undecodable);
    let message = error.to_string();
    assert!(
        message.contains("(failed at byte 10: the type has changed under its name"),
        "{message}"
    );
}
