//! What the command line may say, and what is said to a person who made a mistake.

use crate::program;

const LOAD: [&str; 3] = ["redis_load", "sql_load", "engine_load"];

#[test]
fn every_benchmark_is_looked_at_here() {
    let mut names = program::names();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "engine_load",
            "growth",
            "micro",
            "overload",
            "redis_load",
            "sql_load"
        ]
    );
}

#[test]
fn help_names_every_option() {
    let common = ["--json", "--quick", "--rounds", "--size", "--edition"];
    let of_load = [
        "--case",
        "--impl",
        "--store",
        "--concurrency",
        "--runtime",
        "--slice",
        "--calls",
        "--url",
        "--compare",
    ];
    for name in LOAD.into_iter().chain(["growth"]) {
        let ran = program::run(name, "--help");
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{name}");
        let more = if name == "growth" {
            &["--part", "--keys"][..]
        } else {
            &of_load
        };
        for option in common.iter().chain(more) {
            assert!(
                ran.err.contains(&format!("\n  {option}")),
                "{name}: no {option}: {}",
                ran.err
            );
        }
    }
}

#[test]
fn help_of_overload_names_every_option() {
    let ran = program::run("overload", "--help");
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""));
    let options = [
        "--json",
        "--store",
        "--factor",
        "--seconds",
        "--callers",
        "--stop",
        "--burst",
        "--audit",
        "--most",
        "--quick",
    ];
    for option in options {
        let named = ran.err.contains(&format!("\n  {option}"));
        assert!(named, "no {option}: {}", ran.err);
    }
}

#[test]
fn overload_refuses_what_makes_no_sense() {
    let refuses = |arguments, says| refuses("overload", arguments, says);
    refuses("--nonsense", "`--nonsense` is no option");
    refuses("--json --seconds", "`--seconds` needs a value");
    refuses("--callers 0", "`0` is no number above 0");
    refuses("--factor 1,many", "`many` is no number");
    refuses("--store memory,oracle", "`oracle` is no store");
    refuses(
        "--seconds 5 --stop 5",
        "`--stop` is to be shorter than `--seconds`",
    );
}

/// It ends with 2, and says what is wrong, and then the options.
fn refuses(name: &str, arguments: &str, says: &str) {
    let ran = program::run(name, arguments);
    let told = format!("{name} {arguments}: {ran:?}");
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{told}");
    assert!(ran.err.contains(says), "{told}");
    assert!(ran.err.contains("\noptions:\n"), "{told}");
}

#[test]
fn a_wrong_option_is_refused_with_all_that_there_are() {
    for name in LOAD.into_iter().chain(["growth"]) {
        refuses(name, "--nonsense", "`--nonsense` is no option");
        refuses(name, "nonsense", "`nonsense` is no option");
        refuses(name, "--json --rounds", "`--rounds` needs a value");
        refuses(name, "--rounds 0", "`0` is no number above 0");
        refuses(name, "--bench --rounds many", "`many` is no number above 0");
        refuses(name, "--size 61", "no answer has `61` bytes: 62 at least");
    }
    for name in LOAD {
        refuses(name, "--concurrency=1,x", "`x` is no number above 0");
        refuses(name, "--runtime green", "`green` is no runtime");
    }
    refuses("growth", "--part keys,none", "`none` is no part");
    refuses(
        "growth",
        "--keys 2,1",
        "`--keys` are to rise: each measurement adds to what is there",
    );
    refuses(
        "growth",
        "--size 3000000",
        "`3000000` is more than 2097152 bytes",
    );
}

#[test]
fn a_name_that_nothing_has_is_refused() {
    let says = "nothing was measured: no case, implementation or store has such a name";
    let short = "--json --rounds 1 --slice 1 --size 200 --concurrency 1";
    refuses("redis_load", &format!("{short} --case firsts"), says);
    refuses("redis_load", &format!("{short} --impl idle"), says);
    refuses("sql_load", "--store oracle", says);
    refuses("engine_load", "--store oracle", says);
}

#[test]
fn a_server_that_is_not_there_is_named_as_the_reason() {
    for name in ["redis_load", "growth"] {
        refuses(name, "--edition redis1", "`redis1` is no edition");
    }
    refuses("redis_load", "--url nonsense", "InvalidClientConfig");
    // No server listens there: it takes rights that tests do not have, or ask for.
    refuses(
        "redis_load",
        "--url redis://127.0.0.1:1",
        "Connection refused",
    );
}
