/// The shortest history found by `idem_conformance::sequences`, by seed 4 of "journals".
async fn history(fixture: &std::sync::Arc<dyn idem_conformance::Fixture>) {
    // Step 1: Claim { key: 0, request: ClaimRequest { owner: owners[0], fingerprint: Fingerprint(01010101…), types: AnswerTypes(0d0a, 0024), any_type: false, lease: 3s, retain: 36s, max_attempts: None, reconciles: false, needs: Nothing, dated: true, records_attempts: false } }
    // expected Claim(Granted { fence: fence1, attempt: 1, fresh: true, journal: Journal(0 bytes) })
    // Step 2: Release { key: 0, owner: owners[1], remains: Attempt, journal: None, seen: None }
    // expected Release(Superseded)
    // observed Release(Released)
    let operations = [
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    let replayed = idem_conformance::replay(fixture.clone(), "journals", 1096, &operations).await;
    assert!(replayed.is_ok(), "{}", replayed.unwrap_err());
    // A fault that needs more than these calls is repeated by `idem_conformance::sequences(fixture.clone(), 0..5)`.
}
