//! Number of statements that a call sends to the database.

use super::prelude::*;

on_each_server!(a_call_asks_twice_and_a_replay_once);

async fn a_call_asks_twice_and_a_replay_once<B: Server>() {
    let server = B::serve(B::LOGS);
    let store = open::<B>(&server.url()).await;
    let fixture = Fixture::on(&store);
    for _ in 0..2 {
        fixture.pay("warm").await.unwrap();
    }
    // The statements of one call.
    let asked = async |key: &str| {
        let before = B::statements(&server).len();
        fixture.pay(key).await.unwrap();
        B::statements(&server).split_off(before)
    };
    for key in ["a", "b", "c"] {
        let first = asked(key).await;
        assert_eq!(first.len(), 2, "{first:#?}");
        assert!(first[0].contains("INSERT"), "{first:#?}");
        assert!(first[1].contains("UPDATE"), "{first:#?}");
        // MySQL shows a committed answer before it is in its log, so the replay of a young answer writes afterwards.
        let replay = asked(key).await;
        assert_eq!(replay.len(), if B::POSTGRES { 1 } else { 2 }, "{replay:#?}");
        let writes = replay.last().is_some_and(|last| last.contains("UPDATE"));
        assert_eq!(writes, !B::POSTGRES, "{replay:#?}");
        store.age(Duration::from_secs(3)).await.unwrap();
        let replay = asked(key).await;
        assert_eq!(replay.len(), 1, "{replay:#?}");
    }
    assert_eq!(fixture.all_effects(), 4);
}
