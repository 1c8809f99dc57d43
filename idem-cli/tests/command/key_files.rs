//! Records of an engine with a digest key and encrypted answers.

use std::fs;
use std::sync::Arc;

use idem_harness::TestDir;
use idem_runtime::Engine;
use idem_runtime::codec::EncryptionKeys;
use idem_runtime::store::Store;
use idem_runtime::store::sql::Sqlite;
use serde_json::json;

use crate::filled::{PAY, PREFIX, PayError, Site, receipt, sql};

/// Finds an accepted key file of another engine, and an unlogged digest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_files_find_records_and_read_answers() {
    let dir = TestDir::new("command-keys").unwrap();
    let url = format!("sqlite://{}", dir.path().join("records.db").display());
    let store = sql::<Sqlite>(url.clone()).await;
    let store: Arc<dyn Store> = Arc::new(store);
    let engine = Engine::builder(Arc::clone(&store)).prefix(PREFIX);
    let engine = engine.digest_key([7; 32]);
    let engine = engine.encrypt(EncryptionKeys::new(1, [8; 32]));
    let engine = engine.build().unwrap();
    let call = |key: &str| engine.operation(PAY).key(key);
    let paid = call("o-1").run(|_| async { Ok::<_, PayError>(receipt("r-1")) });
    paid.await.unwrap();

    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let (bytes, digits) = (
        file("bytes", &[7; 32]),
        file("digits", "08".repeat(32).as_bytes()),
    );
    let site = Site::new(url, store);
    let show = format!("show {PAY} --value --key \"o-1\"");
    site.idem(&show).refused(1, "no record");
    let keyed = format!("{show} --digest-key-file {bytes}");
    let encrypted = site.json(&keyed)["answer_unreadable"].take();
    assert!(encrypted.to_string().contains("encrypted"), "{encrypted}");
    let shown = site.json(format!("{keyed} --encryption-key-file 1:{digits}"));
    assert_eq!(shown["answer"], json!({ "number": "r-1", "cents": 1_250 }));
    let digest = call("o-2").key_digest().unwrap().to_string();
    let missing = keyed.replace("o-1", "o-2");
    site.idem(missing).refused(1, &digest);
    let wrong = format!("{show} --digest-key-file {}", file("short", &[7; 31]));
    site.idem(wrong).refused(2, "neither 32 bytes nor 64");
}
