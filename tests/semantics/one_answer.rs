//! The first caller gets every repeat's answer, or no repeat gets one.

use std::fmt::Debug;

use idem_runtime::claim::Completion;
use idem_runtime::codec::AnswerFormat;
use idem_runtime::on_error::{Keep, Release};
use idem_runtime::step;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::prelude::*;

/// An error that holds a value, and is kept.
#[derive(Debug, Serialize, Deserialize)]
enum Failed<T> {
    Of(T),
    #[serde(skip)]
    Idem(Error),
}

impl<T> From<Error> for Failed<T> {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

/// A first caller and its repeat: what each got, or the refusal.
type Pair = [Result<String, ErrorKind>; 2];

fn told<T: Debug>(result: Result<T, Failed<T>>) -> Result<String, ErrorKind> {
    match result {
        Ok(value) | Err(Failed::Of(value)) => Ok(format!("{value:?}")),
        Err(Failed::Idem(error)) => Err(error.kind().clone()),
    }
}

/// The value in each role of a stored value. It is a call's answer, with and without a follower, a kept error, a step's
/// result, and a claim's completion.
async fn pairs<T>(engine: &Engine, value: &T) -> [Pair; 5]
where
    T: Serialize + DeserializeOwned + Clone + Debug + Send + 'static,
{
    let call = |key: u8| engine.operation("answer").key(&key).on_error(Keep);
    let body = || async { Ok::<_, Failed<T>>(value.clone()) };
    let called = [
        told(call(1).run(|_| body()).await),
        told(call(1).run(|_| body()).await),
    ];
    let follower = async || {
        let slow = || async {
            tokio::task::yield_now().await;
            body().await
        };
        let (first, follower) = tokio::join!(call(2).run(|_| slow()), call(2).run(|_| slow()));
        [told(first), told(follower)]
    };
    let failed = || call(3).run(|_| async { Err(Failed::Of(value.clone())) });
    let stepped = async || {
        let call = engine.operation("steps").key(&1).on_error(Release);
        let mut result = None;
        let part = call.run(|_| async {
            let part = step("part", async |_| body().await).on_error(Keep);
            result = Some(told(part.await));
            // The next attempt gets the step's result.
            Err::<(), _>(Failed::<()>::Of(()))
        });
        drop(part.await);
        result.unwrap()
    };
    let claim = || engine.operation("claim").key(&1);
    let Completion::Own(own) = claimed(claim())
        .await
        .complete(value.clone())
        .await
        .unwrap()
    else {
        unreachable!("the only one")
    };
    let completed = match claim().begin().await {
        Ok(Acquired::Replay(stored)) => stored.decode::<T>().map_err(|error| error.kind().clone()),
        other => Err(other.map(drop).unwrap_err().kind().clone()),
    };
    [
        called,
        follower().await,
        [told(failed().await), told(failed().await)],
        [stepped().await, stepped().await],
        [
            Ok(format!("{own:?}")),
            completed.map(|value| format!("{value:?}")),
        ],
    ]
}

/// Each way of an answer, in each format. The check gets the reasons for which answers were not stored.
async fn every_way<T>(value: T, check: impl Fn(AnswerFormat, &Pair, &[String]))
where
    T: Serialize + DeserializeOwned + Clone + Debug + Send + 'static,
{
    for format in [AnswerFormat::Json, AnswerFormat::MessagePack] {
        let fixture = Fixture::memory().with(|engine| engine.answer_format(format));
        let pairs = pairs(&fixture.engine, &value).await;
        let mut unsaved = fixture.events.all();
        unsaved.retain(|event| event.starts_with("unsaved: "));
        for pair in &pairs {
            check(format, pair, &unsaved);
        }
    }
}

#[tokio::test]
async fn the_first_caller_gets_no_skipped_field() {
    #[allow(dead_code, reason = "its `Debug` is compared")]
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Skipped {
        id: u32,
        #[serde(skip)]
        trace: String,
    }

    let value = Skipped {
        id: 1,
        trace: "abc".into(),
    };
    every_way(value, |format, pair, unsaved| {
        let stored = Ok(r#"Skipped { id: 1, trace: "" }"#.to_owned());
        assert_eq!(*pair, [stored.clone(), stored], "{format:?}");
        assert!(unsaved.is_empty(), "{unsaved:?}");
    })
    .await;
}

#[tokio::test]
async fn a_field_that_is_renamed_one_way_is_not_stored() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Renamed {
        #[serde(rename(serialize = "number"))]
        id: u32,
    }

    let value = Renamed { id: 1 };
    let own = format!("{value:?}");
    let name = std::any::type_name::<Renamed>();
    every_way(value, |format, pair, unsaved| {
        let not_stored = Err(ErrorKind::NotStored);
        assert_eq!(*pair, [Ok(own.clone()), not_stored], "{format:?}");
        assert_eq!(unsaved.len(), 5, "{unsaved:?}");
        assert!(unsaved.iter().all(|why| why.contains(name)), "{unsaved:?}");
        if format == AnswerFormat::Json {
            let place = format!("of `{name}` refuses what its `Serialize` wrote, at byte 12 ");
            assert!(unsaved[0].contains(&place), "{unsaved:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_deserialize_that_panics_leaves_a_tombstone() {
    #[derive(Clone, Debug, Serialize)]
    struct Booby;

    impl<'a> Deserialize<'a> for Booby {
        fn deserialize<D: Deserializer<'a>>(_: D) -> Result<Self, D::Error> {
            panic!("a bug in a `Deserialize`")
        }
    }

    every_way(Booby, |_, pair, unsaved| {
        assert_eq!(*pair, [Ok("Booby".to_owned()), Err(ErrorKind::NotStored)]);
        let panicked = |reason: &&String| reason.contains("or `Deserialize` panicked");
        assert_eq!(unsaved.iter().filter(panicked).count(), 5, "{unsaved:?}");
    })
    .await;
}

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
    let fixture = Fixture::memory();
    let call = || {
        fixture
            .engine
            .operation("rates.mean")
            .key(&1)
            .on_error(Release)
    };
    let stored = call().run(|_| async { Ok::<_, Error>(earlier::Rate { mean: 1 }) });
    assert!(stored.await.is_ok());
    let read = call().run(|_| async { Ok::<_, Error>(Rate { of: Vec::new() }) });
    let error = read.await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Undecodable);
    let expected = "(failed at byte 10: the type has changed under its name";
    idem_tests::shop::assert_contains(&error, expected);
}
