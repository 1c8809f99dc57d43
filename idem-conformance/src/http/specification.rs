//! The specifications that have a table.

use std::fmt;
use std::str::FromStr;

use super::key::KeyPlace;
use super::row::{Row, Table};
use super::table::{acp, draft, iceberg_rest, stripe_v1, stripe_v2, ucp, x402};

/// A specification that has a table.
///
/// `idem_runtime::http::Profile` has a constructor of the same name for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Specification {
    /// draft-ietf-httpapi-idempotency-key-header-07.
    Draft,
    /// Stripe's API v1.
    StripeV1,
    /// Stripe's API v2.
    StripeV2,
    /// The Agentic Commerce Protocol.
    Acp,
    /// The Universal Commerce Protocol.
    Ucp,
    /// x402 with its extension `payment-identifier`.
    X402,
    /// The REST catalog of Apache Iceberg.
    IcebergRest,
}

impl Specification {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Draft,
        Self::StripeV1,
        Self::StripeV2,
        Self::Acp,
        Self::Ucp,
        Self::X402,
        Self::IcebergRest,
    ];

    fn table(self) -> &'static Table {
        match self {
            Self::Draft => &draft::TABLE,
            Self::StripeV1 => &stripe_v1::TABLE,
            Self::StripeV2 => &stripe_v2::TABLE,
            Self::Acp => &acp::TABLE,
            Self::Ucp => &ucp::TABLE,
            Self::X402 => &x402::TABLE,
            Self::IcebergRest => &iceberg_rest::TABLE,
        }
    }

    /// The name by which the command takes it: `draft`, `stripe_v1`, `acp` …
    #[must_use]
    pub fn name(self) -> &'static str {
        self.table().name
    }

    /// Its title and version.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.table().title
    }

    /// The addresses of its pages.
    #[must_use]
    pub fn sources(self) -> &'static [&'static str] {
        self.table().sources
    }

    /// The rows of its table.
    #[must_use]
    pub fn rows(self) -> &'static [Row] {
        self.table().rows
    }

    pub(super) fn place(self) -> KeyPlace {
        self.table().place
    }
}

impl fmt::Display for Specification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no specification has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSpecification(String);

impl fmt::Display for UnknownSpecification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Specification::ALL.iter().map(|it| it.name()).collect();
        write!(f, "`{}` is none of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownSpecification {}

impl FromStr for Specification {
    type Err = UnknownSpecification;

    fn from_str(name: &str) -> Result<Self, UnknownSpecification> {
        let found = Self::ALL.iter().copied().find(|it| it.name() == name);
        found.ok_or_else(|| UnknownSpecification(name.to_owned()))
    }
}
