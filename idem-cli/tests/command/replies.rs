//! Changes with a lost reply, or an unreadable record after them.

use std::sync::Arc;

use idem_harness::PostgresServer;
use idem_runtime::store::sql::Postgres;

use crate::filled::{PAY, PayError, Site, sql};

/// Finds a possible change that is reported as none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_may_have_been_made_is_no_store_out_of_reach() {
    let server = PostgresServer::start();
    let store = sql::<Postgres>(server.url()).await;
    let site = Site::new(server.url(), Arc::new(store));
    for key in ["o-1", "o-2", "o-3"] {
        site.pay(key, Err(PayError::NoReply)).await.unwrap_err();
    }
    let on_update = |act: &str| {
        server.execute(&format!(
            "CREATE OR REPLACE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN {act}; RETURN NEW; END $$"
        ));
    };
    // No version of the library reads this layout.
    on_update("NEW.layout := 99");
    server.execute(
        "CREATE TRIGGER act BEFORE UPDATE ON idem_records FOR EACH ROW EXECUTE FUNCTION act()",
    );
    let ran = site.idem(format!("reset {PAY} --key \"o-1\" --yes"));
    assert!(!ran.out.contains("state now"), "{ran:?}");
    ran.refused(0, "reset, but the record cannot be read again");
    let ran = site.idem(format!("reset {PAY} --key \"o-2\" --yes --json"));
    assert!(ran.out.contains("\"changed\": true"), "{ran:?}");
    ran.refused(0, "reset, but the record cannot be read again");
    on_update("PERFORM pg_sleep(600)");
    let ran = site.idem(format!("reset {PAY} --key \"o-3\" --yes"));
    ran.refused(3, "it is not known whether the record was changed");
}
