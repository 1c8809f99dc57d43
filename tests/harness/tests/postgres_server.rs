//! The harness against a real server.

use idem_harness::PostgresServer;
#[test]
fn a_started_server_answers() {
    let t = std::time::Instant::now();
    let server = PostgresServer::start();
    eprintln!("first {:?}", t.elapsed());
    let t = std::time::Instant::now();
    let two = PostgresServer::start();
    eprintln!("second {:?}", t.elapsed());
    assert_eq!(server.execute("SELECT 1"), "1");
    assert_eq!(two.execute("SELECT 1"), "1");
}
