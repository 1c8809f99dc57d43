//! The service of the guide that writes through sea-orm.

use idem_harness::PostgresServer;
use idem_runtime::store::sql::PostgresStore;
use idem_runtime::{Classify, Engine, ErrorKind, idempotent};
use sea_orm::entity::prelude::*;
use sea_orm::sea_query::ExprTrait as _;
use sea_orm::{
    ActiveValue::Set, ConnectOptions, Database, DatabaseTransaction, TransactionTrait as _,
};
use serde::{Deserialize, Serialize};

#[allow(unreachable_pub, reason = "as sea-orm generates it")]
mod order {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "orders")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub number: String,
        pub article: String,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

#[allow(unreachable_pub, reason = "as sea-orm generates it")]
mod stock {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "stock")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub article: String,
        pub pieces: i32,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

#[derive(Serialize)]
struct NewOrder {
    number: String,
    article: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Classify)]
enum OrderError {
    /// An answer: it is committed and replayed, without the writes of the body.
    #[class(business)]
    SoldOut,
    /// The claim and the body's writes are undone; a repeat runs the body.
    #[class(system)]
    Database(String),
    /// A refusal by idem.
    #[class(delegate)]
    Idempotency(idem_runtime::Error),
}

impl From<idem_runtime::Error> for OrderError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<DbErr> for OrderError {
    fn from(error: DbErr) -> Self {
        Self::Database(error.to_string())
    }
}

/// Run once for each number: the row, the stock and the answer are committed together.
#[idempotent(op = "orders.create", key = new.number, ttl = forever, tx = tx)]
async fn create(tx: &mut DatabaseTransaction, new: NewOrder) -> Result<String, OrderError> {
    let row = order::ActiveModel {
        number: Set(new.number.clone()),
        article: Set(new.article.clone()),
    };
    row.insert(&*tx).await?;
    let taken = stock::Entity::update_many()
        .col_expr(
            stock::Column::Pieces,
            Expr::col(stock::Column::Pieces).sub(1),
        )
        .filter(stock::Column::Article.eq(&new.article))
        .filter(stock::Column::Pieces.gt(0));
    if taken.exec(&*tx).await?.rows_affected == 0 {
        return Err(OrderError::SoldOut);
    }
    Ok(format!("{} of {}", new.article, new.number))
}

/// One request: a transaction around the call.
async fn request(db: &DatabaseConnection, number: &str) -> Result<String, OrderError> {
    let mut tx = db.begin().await?;
    let (number, article) = (number.to_owned(), "tea".to_owned());
    let answer = create(&mut tx, NewOrder { number, article }).await;
    match &answer {
        // Dropped, and thereby rolled back. The call may be repeated in a new transaction.
        Err(OrderError::Idempotency(e)) if *e.kind() == ErrorKind::TransactionAborted => {}
        // An error is committed as well: a business error is an answer.
        _ => tx.commit().await?,
    }
    answer
}

/// The pool, and the engine whose store connects as the pool does.
async fn start(url: &str) -> Result<(DatabaseConnection, Engine), Box<dyn std::error::Error>> {
    let mut options = ConnectOptions::new(url);
    // sqlx logs the text of each statement, which has keys in it, and no answer.
    options.max_connections(16).sqlx_logging(false);
    let db = Database::connect(options).await?;
    let store = PostgresStore::connect(db.get_postgres_connection_pool()).await?;
    store.migrate().await?;
    Ok((db, Engine::new(store))) // `.install()?` in a `main`
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_takes_each_order_once() {
    let server = PostgresServer::start();
    let (db, engine) = start(&server.url()).await.unwrap();
    let tables = "CREATE TABLE orders (number text PRIMARY KEY, article text NOT NULL); \
         CREATE TABLE stock (article text PRIMARY KEY, pieces int NOT NULL); \
         INSERT INTO stock VALUES ('tea', 1)";
    db.execute_unprepared(tables).await.unwrap();
    for (number, answer) in [
        ("order-7", Ok("tea of order-7".to_owned())),
        ("order-7", Ok("tea of order-7".to_owned())),
        ("order-8", Err(OrderError::SoldOut)),
        ("order-8", Err(OrderError::SoldOut)),
    ] {
        assert_eq!(engine.scope(request(&db, number)).await, answer, "{number}");
    }
    let orders = order::Entity::find().all(&db).await.unwrap();
    assert_eq!(orders.len(), 1);
}
