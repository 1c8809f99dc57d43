/// The shortest history found by `idem_conformance::sequences`.
#[allow(unused)]
async fn history(fixture: &std::sync::Arc<dyn idem_conformance::Fixture>) {
    use bytes::Bytes;
    use idem_conformance::{Fixture, Plant, Setting};
    use idem_runtime::admin::EntryFilter;
    use idem_runtime::fingerprint::Fingerprint;
    use idem_runtime::store::*;
    use std::num::NonZeroU16;
    use std::time::Duration;

    let s = Setting::new(fixture);
    let ms = Duration::from_millis;

    // Step 1.
    let mut request = ClaimRequest::new(s.owners[0], ms(3000), ms(36000));
    request.fingerprint = Fingerprint::from_bytes([1; 16]);
    request.types = AnswerTypes::from_bytes([13, 10, 0, 36]);
    let reply = s.store.claim(&s.keys[0], &request).await.unwrap();
    let ClaimReply::Granted { fence: fence1, attempt: 1, fresh: true, journal: journal1 } = reply else { panic!("{reply:?}") };
    assert!(fence1 > Fence::new(0));
    assert_eq!(journal1, Journal::default());

    // Step 2.
    let reply = s.store.release(&s.keys[0], &s.owners[1], Remains::Attempt).await.unwrap();
    // Observed: Release(Released)
    assert_eq!(reply, ReleaseReply::Superseded);
}
