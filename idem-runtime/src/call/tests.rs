use crate::store::memory::MemoryStore;
use crate::{Engine, Error, ErrorKind};

/// It cannot read back what it writes.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Rate {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    of: Vec<u32>,
}

#[tokio::test]
async fn a_value_that_its_format_does_not_bring_back_is_said_to_be_that() {
    let engine = Engine::builder(MemoryStore::new()).build().unwrap();
    let mut messages = Vec::new();
    for _ in 0..2 {
        let call = engine
            .operation("rates.mean")
            .key(&1)
            .on_error(crate::on_error::Release);
        let answer = call
            .run(|_| async { Ok::<_, Error>(Rate { of: Vec::new() }) })
            .await;
        messages.extend(
            answer
                .map_err(|error| (error.kind().clone(), error.to_string()))
                .err(),
        );
    }
    let [(kind, message)] = &*messages else {
        unreachable!("the first call answers, and the second does not: {messages:?}")
    };
    assert_eq!(*kind, ErrorKind::Undecodable);
    assert!(
        message.contains("(failed at byte 2: its serialized form does not bring this value back"),
        "{message}"
    );
    assert!(!message.contains("expected"), "{message}");
}
