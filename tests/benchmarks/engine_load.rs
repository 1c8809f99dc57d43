//! `engine_load`: the store in memory, and Redis in front of a database.

use crate::row::{Name, assert_names, rows};

fn named(made_by: &str, case: &str, store: &str, at_once: u64) -> Name {
    (made_by.into(), case.into(), store.into(), at_once, 200)
}

#[test]
fn the_store_in_memory_is_measured_with_one_thread_and_two() {
    let rows = rows("engine_load", "--store memory --size 200 --calls 100");
    let cases = [
        "first",
        "replay",
        "first+replay",
        "business_error",
        "release",
    ];
    let wanted = cases
        .iter()
        .flat_map(|case| [1, 2].map(|threads| named("idem", case, "memory", threads)));
    assert_names(&rows, wanted.collect());
    for row in &rows {
        assert_eq!(
            (row.commands, row.server_cpu),
            (None, None),
            "{:?}",
            row.line
        );
    }
}

/// How many commands idem sends to Redis is not looked at here: it is left out for a while where it does not
/// answer within 50 ms, as on a busy machine, and gets some of its work beside the calls.
#[test]
fn redis_in_front_of_a_database_is_measured_beside_the_database_alone() {
    let stores = ["redis+sqlite", "redis+postgres"];
    let words = format!("--store {} --size 200 --concurrency 4", stores.join(","));
    let rows = rows("engine_load", &words);
    let mut wanted = Vec::new();
    for store in stores {
        for case in ["first", "replay"] {
            wanted.push(named("raw", case, store, 4));
        }
        for made_by in ["idem_alone", "idem"] {
            for case in ["first", "replay", "business_error", "release"] {
                wanted.push(named(made_by, case, store, 4));
            }
        }
    }
    assert_names(&rows, wanted);
    for row in &rows {
        for figure in [row.commands, row.server_cpu] {
            assert!(figure.is_some_and(|figure| figure >= 0.0), "{:?}", row.line);
        }
    }
}
