//! The first caller gets the answer that every repeat gets, or no repeat gets one.

use super::*;

#[derive(Debug, Default)]
struct Unsaved(Mutex<Vec<String>>);

impl Observer for Unsaved {
    fn observe(&self, event: &Event<'_>) {
        if let EventKind::Unsaved { reason } = event.kind {
            self.0.lock().unwrap().push(reason.to_owned());
        }
    }
}

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

/// The value as the answer of a call, as that of a call with a follower, as a kept error, as the result of a step, and as
/// the completion of a claim.
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
            // The next attempt gets what the step left.
            Err::<(), _>(Failed::<()>::Of(()))
        });
        drop(part.await);
        result.unwrap()
    };
    let begin = async || engine.operation("claim").key(&1).begin().await;
    let Ok(Acquired::Run(claim)) = begin().await else {
        unreachable!("the first")
    };
    let Ok(Completion::Own(own)) = claim.complete(value.clone()).await else {
        unreachable!("the only one")
    };
    let completed = match begin().await {
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

/// Each way of an answer, in each format.
async fn every_way<T>(value: T, check: impl Fn(AnswerFormat, &Pair, &[String]))
where
    T: Serialize + DeserializeOwned + Clone + Debug + Send + 'static,
{
    let formats = [
        AnswerFormat::Json,
        #[cfg(feature = "msgpack")]
        AnswerFormat::MessagePack,
    ];
    for format in formats {
        let unsaved = std::sync::Arc::new(Unsaved::default());
        let engine = Engine::builder(MemoryStore::new())
            .answer_format(format)
            .observer(std::sync::Arc::clone(&unsaved))
            .build()
            .unwrap();
        let pairs = pairs(&engine, &value).await;
        let unsaved = unsaved.0.lock().unwrap();
        for pair in &pairs {
            check(format, pair, &unsaved);
        }
    }
}

/// The value is read back, and the first caller gets that.
async fn both_get<T>(value: T, stored: &str)
where
    T: Serialize + DeserializeOwned + Clone + Debug + Send + 'static,
{
    every_way(value, |format, pair, unsaved| {
        assert_eq!(
            *pair,
            [Ok(stored.to_owned()), Ok(stored.to_owned())],
            "{format:?}"
        );
        assert!(unsaved.is_empty(), "{unsaved:?}");
    })
    .await;
}

/// The value is not read back: the first caller gets the value, and each repeat gets `NotStored`.
async fn is_not_stored<T>(value: T, at: usize)
where
    T: Serialize + DeserializeOwned + Clone + Debug + Send + 'static,
{
    let own = format!("{value:?}");
    every_way(value, |format, pair, unsaved| {
        assert_eq!(
            *pair,
            [Ok(own.clone()), Err(ErrorKind::NotStored)],
            "{format:?}"
        );
        assert_eq!(unsaved.len(), 5, "{unsaved:?}");
        let name = std::any::type_name::<T>();
        let of_type = |reason: &&String| reason.contains(name);
        assert_eq!(unsaved.iter().filter(of_type).count(), 5, "{unsaved:?}");
        if format == AnswerFormat::Json {
            let place = format!("of `{name}` refuses what its `Serialize` wrote, at byte {at} ");
            assert!(unsaved[0].contains(&place), "{unsaved:?}");
        }
    })
    .await;
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
    both_get(value, r#"Skipped { id: 1, trace: "" }"#).await;
}

#[tokio::test]
async fn the_first_caller_gets_the_default_of_a_field_that_is_not_written() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Optional {
        #[serde(skip_serializing_if = "Option::is_none", default = "five")]
        of: Option<u32>,
    }

    #[allow(clippy::unnecessary_wraps, reason = "the type of the field")]
    fn five() -> Option<u32> {
        Some(5)
    }

    both_get(Optional { of: None }, "Optional { of: Some(5) }").await;
}

#[tokio::test]
async fn the_first_caller_gets_the_rounded_value() {
    mod seconds {
        use std::time::Duration;

        use serde::{Deserialize, Deserializer, Serializer};

        pub(super) fn serialize<S: Serializer>(of: &Duration, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_u64(of.as_secs())
        }

        pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
            u64::deserialize(from).map(Duration::from_secs)
        }
    }

    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Stamped {
        #[serde(with = "seconds")]
        at: std::time::Duration,
    }

    let value = Stamped {
        at: std::time::Duration::from_millis(1_500),
    };
    both_get(value, "Stamped { at: 1s }").await;
}

#[tokio::test]
async fn the_first_caller_gets_the_variant_that_is_read() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Alike {
        Short { n: u32 },
        Long { n: u32, m: u32 },
    }

    both_get(Alike::Long { n: 1, m: 2 }, "Short { n: 1 }").await;
    both_get(Alike::Short { n: 1 }, "Short { n: 1 }").await;
}

#[tokio::test]
async fn a_wide_integer_under_flatten_is_not_stored() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        of: std::collections::BTreeMap<String, u128>,
    }

    let of = [("a".to_owned(), u128::MAX)].into();
    is_not_stored(Flat { of }, 45).await;
}

#[tokio::test]
async fn a_map_with_the_name_of_its_tag_is_not_stored() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Map(std::collections::BTreeMap<String, String>),
    }

    let map = [("kind".to_owned(), "wire".to_owned())].into();
    is_not_stored(Tagged::Map(map), 20).await;
}

#[tokio::test]
async fn a_field_that_is_renamed_one_way_is_not_stored() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Renamed {
        #[serde(rename(serialize = "number"))]
        id: u32,
    }

    is_not_stored(Renamed { id: 1 }, 12).await;
}

#[tokio::test]
async fn a_deserialize_that_panics_leaves_a_tombstone() {
    #[derive(Clone, Debug, Serialize)]
    struct Booby;

    impl<'a> Deserialize<'a> for Booby {
        fn deserialize<D: serde::Deserializer<'a>>(_: D) -> Result<Self, D::Error> {
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
