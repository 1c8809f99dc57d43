//! How to do what takes more than one item of this crate.
//!
//! Begin with [`start`], a service from an empty folder, or with [`existing`], then [`scenarios`], [`guarantee`],
//! [`arguments`] and [`errors`]; then the page of your store.

/// Pages whose examples compile with all features that they use: none hides a line for that.
///
/// The definitions of links and of pictures for rustdoc come first, so that they win over those of the page, which name
/// files of the repository and pages of docs.rs.
macro_rules! pages {
    ($($name:ident $file:literal $($pictures:literal)?)+) => {
        $(
            #[cfg_attr(all(doc, not(doctest)), doc = include_str!("docs/links.txt"))]
            $(#[cfg_attr(all(doc, not(doctest)), doc = include_str!($pictures))])?
            #[cfg_attr(
                any(
                    not(doctest),
                    all(
                        feature = "axum",
                        feature = "deadpool-postgres",
                        feature = "diesel-async-deadpool",
                        feature = "diesel-async-postgres",
                        feature = "macros",
                        feature = "metrics",
                        feature = "mysql-async",
                        feature = "postgres",
                        feature = "redis",
                        feature = "sea-orm",
                        feature = "testing",
                        feature = "tokens",
                        feature = "tracing"
                    )
                ),
                doc = include_str!($file)
            )]
            pub mod $name {}
        )+
    };
}

pages! {
    arguments "docs/guide/arguments.md"
    changes "docs/guide/changes.md"
    clients "docs/guide/clients.md"
    compare "docs/guide/compare.md"
    compensation "docs/guide/compensation.md"
    errors "docs/guide/errors.md"
    existing "docs/guide/existing.md"
    features "docs/guide/features.md"
    grpc "docs/guide/grpc.md"
    guarantee "docs/guide/guarantee.md" "docs/diagrams/links.md"
    http "docs/guide/http.md"
    layered "docs/guide/layered.md"
    notes "docs/guide/notes.md"
    observing "docs/guide/observing.md"
    operator "docs/operator.md"
    redis "docs/guide/redis.md"
    scenarios "docs/guide/scenarios.md"
    sql "docs/guide/sql.md"
    start "docs/guide/start.md"
    steps "docs/guide/steps.md" "docs/diagrams/links.md"
    stores "docs/guide/stores.md"
    testing "docs/guide/testing.md"
    tokens "docs/guide/tokens.md"
    transactions "docs/guide/transactions.md"
}
