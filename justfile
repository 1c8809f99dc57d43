# Short names for what scripts/test does; `just --list` shows them.

# everything that CI runs
all:
    scripts/test
    scripts/test thorough

# formatting, lints, and each feature alone
lint:
    scripts/test fmt clippy features

# tests and doctests
test:
    scripts/test test

# the benchmarks, in very short rounds, and what they print
bench:
    scripts/test bench

# the soak of every store, a quarter of an hour each: docs/soak.md
soak *options:
    scripts/test soak {{options}}

# the harness only, quick
harness:
    cargo test -p idem-harness

# the documentation, with warnings as errors
doc:
    scripts/test doc

# the packages, as they would be published
package:
    scripts/test package

# licences, advisories, sources (needs cargo-deny)
deny:
    cargo deny check

# the compiler's words for mistakes, written anew: read them before committing
bless:
    TRYBUILD=overwrite cargo test -p idem-tests-ui --test ui

# the lists of public items, written anew: read the difference before committing
api:
    IDEM_PUBLIC_API=overwrite cargo test -p idem-tests-api

# the guide as a site, in target/site/book
site:
    scripts/site
