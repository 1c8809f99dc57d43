//! Number of round trips of a call.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::prelude::*;

on_each_server!(round_trips_of_calls);

/// Client messages that follow a server message.
#[derive(Debug, Default)]
struct Turns {
    count: AtomicUsize,
    client_spoke: AtomicBool,
}

/// A proxy for one connection that counts round trips.
fn counting(server: SocketAddr) -> (SocketAddr, Arc<Turns>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
    let addr = listener.local_addr().expect("it has an address");
    let turns = Arc::new(Turns::default());
    let seen = Arc::clone(&turns);
    thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client connects");
        let server = TcpStream::connect(server).expect("the server is up");
        for (client_speaks, from, to) in [(true, &client, &server), (false, &server, &client)] {
            let [mut from, mut to] = [from, to].map(|end| end.try_clone().expect("a clone"));
            let turns = Arc::clone(&seen);
            thread::spawn(move || {
                let mut bytes = [0; 16 * 1024];
                while let Ok(length @ 1..) = from.read(&mut bytes) {
                    let spoke = turns.client_spoke.swap(client_speaks, Ordering::SeqCst);
                    let begins = usize::from(client_speaks && !spoke);
                    turns.count.fetch_add(begins, Ordering::SeqCst);
                    if to.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    (addr, turns)
}

/// A first call takes two round trips more than its transaction, a replay two.
async fn round_trips_of_calls<D: Server>() {
    let fixture = Fixture::<D>::new().await;
    let server = D::shared().expect("it has a server").addr();
    let (addr, turns) = counting(server);
    let url = fixture
        .place
        .url
        .replace(&server.to_string(), &addr.to_string());
    let mut conn = <D::Conn as Connection>::connect_with(&D::options(&url))
        .await
        .done();
    let taken = || turns.count.swap(0, Ordering::SeqCst);
    let in_tx = async |conn: &mut D::Conn, key: &str| {
        let mut tx = conn.begin().await.done();
        let on: &mut D::Conn = &mut tx;
        let call = fixture.call(key).in_tx(on);
        let body = async |conn: &mut D::Conn, _| make::<D>(conn, &fixture.runs, key).await;
        let answer: Answer = call.run(body).await;
        tx.commit().await.done();
        answer.expect("it runs or replays");
    };
    let own = async |conn: &mut D::Conn, key: &str| {
        let call = fixture.call(key).in_tx(conn);
        let body = async |conn: &mut D::Conn, _| make::<D>(conn, &fixture.runs, key).await;
        call.run(body).await.expect("it runs or replays");
    };
    taken();
    let tx = conn.begin().await.done();
    tx.commit().await.done();
    let empty = taken();
    let mut tx = conn.begin().await.done();
    insert::<D>(&mut tx, "bare").await.done();
    tx.commit().await.done();
    let bare = taken();
    // A connection prepares a statement once.
    in_tx(&mut conn, "warm").await;
    taken();
    in_tx(&mut conn, "a").await;
    let first = taken();
    in_tx(&mut conn, "a").await;
    let replay = taken();
    own(&mut conn, "b").await;
    let own_first = taken();
    // The rollback of an empty transaction is sent with the next statement.
    conn.ping().await.done();
    taken();
    own(&mut conn, "b").await;
    conn.ping().await.done();
    let own_replay = taken() - 1;
    assert_eq!((empty, bare), (2, 3));
    assert_eq!((first, replay), (bare + 2, empty + 2));
    assert_eq!(own_first, bare + 2);
    assert!(own_replay <= replay, "{own_replay}");
}
