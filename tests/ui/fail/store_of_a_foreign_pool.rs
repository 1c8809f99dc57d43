use idem_runtime::store::sql::PostgresStore;

/// As that of another version of sqlx: not of the type that the store takes.
struct Pool;

fn store(pool: &Pool) {
    let _ = PostgresStore::builder(pool);
}

fn main() {}
