//! SQL sent as text: any bytes in its values, and any dialect of the session.

use idem_runtime::Error;
use idem_runtime::store::sql::Postgres;
use idem_tests::shop::engine;
use idem_tests::sql::connect;
use sqlx::PgConnection;

use super::prelude::*;

on_each_database!(
    operations_with_any_name,
    settings_of_a_session_that_change_the_meaning_of_a_text,
    settings_of_a_session_in_a_transaction_of_idem,
);
mod other_clients {
    use super::*;
    on_each_other_client!(settings_of_a_session_that_change_the_meaning_of_a_text);
}
on!(postgres_only Postgres: no_answer_is_in_the_text_of_a_statement);

async fn operations_with_any_name<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let long = "ö".repeat(300);
    let names = [
        "o'rders",
        "o\"rd`ers",
        "'; DROP TABLE idem_records; --",
        "or\\'ders\\",
        "nothing\0at all",
        "a ? b ?1 ?11 $1 {t} {now} {insert} {read} {claim} {body} {columns}",
        "Größe 注文 🛒",
        "\u{feff}\r\n\t%_",
        &long,
    ];
    for (number, name) in names.into_iter().enumerate() {
        let call = || fixture.engine.operation(name.to_owned()).key(&number);
        for error in [OrderError::SoldOut { run: 7 }, OrderError::Down] {
            let mut tx = fixture.begin().await;
            let answer = failed(&fixture, call(), &mut tx, error.clone()).await;
            assert_eq!(answer, Err(error), "{name:?}");
            D::rollback(tx).await.done();
        }
        let run = fixture.runs.count() + 1;
        let mut tx = fixture.begin().await;
        let answer = ordered(&fixture, call(), &mut tx, "mine").await;
        assert_eq!(answer, Ok(run), "{name:?}");
        D::commit(tx).await.done();
        assert_eq!(fixture.replayed(call()).await, Ok(run), "{name:?}");
        let entry = call().entry().await.unwrap();
        assert!(entry.is_some(), "{name:?}");
    }
    let all = i64::try_from(names.len()).unwrap();
    assert_eq!(fixture.kept("mine").await, (all, all));
}

async fn settings_of_a_session_that_change_the_meaning_of_a_text<C: Client>() {
    for dialect in C::Database::DIALECTS {
        let fixture = Fixture::<C>::new().await;
        let mut conn = C::connect(&fixture.place.url).await;
        conn.run(dialect).await.unwrap();
        let call = || {
            fixture
                .engine
                .operation("o'r\\d\"er")
                .key("it's \\ \"mine\"")
        };
        let run = async |conn: &mut C::Conn, end: Answer| -> Answer {
            let work = async |tx: &mut C::Tx<'_>| {
                let call = call().in_tx(tx);
                let answer = call.run(async |tx: &mut C::Tx<'_>, _| {
                    insert_by(tx, "mine").await?;
                    end
                });
                (answer.await, Ended::Commit)
            };
            let (answer, ended) = C::in_transaction(conn, work).await;
            ended.expect("the server is up");
            answer
        };
        let down = run(&mut conn, Err(OrderError::Down)).await;
        assert_eq!(down, Err(OrderError::Down), "{dialect}");
        assert_eq!(fixture.orders("mine").await, 0, "{dialect}");
        assert_eq!(run(&mut conn, Ok(7)).await, Ok(7), "{dialect}");
        assert_eq!(run(&mut conn, Ok(8)).await, Ok(7), "{dialect}");
        assert_eq!(fixture.orders("mine").await, 1, "{dialect}");
    }
}

async fn settings_of_a_session_in_a_transaction_of_idem<D: Database>() {
    for dialect in D::DIALECTS {
        let fixture = Fixture::<D>::new().await;
        let mut conn = fixture.alone().await;
        D::execute(&mut conn, dialect).await.done();
        let call = fixture.order().in_tx(&mut conn);
        let body = async |conn: &mut D::Conn, _| make::<D>(conn, &fixture.runs, "own").await;
        assert_eq!(call.run(body).await, Ok(fixture.runs.count()), "{dialect}");
        assert_eq!(fixture.orders("own").await, 1, "{dialect}");
    }
}

/// sqlx logs statements, and slow ones at the level of warnings. It must not contain an answer.
async fn no_answer_is_in_the_text_of_a_statement<D: Server>() {
    let server = D::serve(D::LOGS);
    let store = connect::<Postgres>(&server.url()).await;
    store.migrate().await.unwrap();
    let engine = engine(store);
    let mut conn = PgConnection::connect(&server.url()).await.unwrap();
    let secret = "4111-1111-1111-1111";
    let call = engine.operation("orders.create").key("order-7");
    let answer: Result<String, Error> = call
        .in_tx(&mut conn)
        .run(async |_, _| Ok(secret.to_owned()))
        .await;
    assert_eq!(answer.unwrap(), secret);
    let digits = secret.bytes().map(|byte| format!("{byte:02x}"));
    let digits = digits.collect::<String>();
    // The server logs parameters in lines of their own.
    let log = server.log();
    let (parameters, texts): (Vec<_>, Vec<_>) =
        log.lines().partition(|line| line.contains("DETAIL:"));
    let has = |lines: &[&str], what: &str| lines.iter().any(|line| line.contains(what));
    assert!(has(&texts, "UPDATE public.idem_records"), "{texts:#?}");
    assert!(has(&parameters, &digits), "{parameters:#?}");
    assert!(!has(&texts, &digits), "{texts:#?}");
}
