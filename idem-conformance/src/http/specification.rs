//! The specifications that have a table.

use std::fmt;
use std::str::FromStr;

use super::key::KeyPlace;
use super::row::Row;
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

    /// The name by which the command takes it: `draft`, `stripe_v1`, `acp` …
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::StripeV1 => "stripe_v1",
            Self::StripeV2 => "stripe_v2",
            Self::Acp => "acp",
            Self::Ucp => "ucp",
            Self::X402 => "x402",
            Self::IcebergRest => "iceberg_rest",
        }
    }

    /// Its title and version.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Draft => "draft-ietf-httpapi-idempotency-key-header-07",
            Self::StripeV1 => "Stripe, API v1",
            Self::StripeV2 => "Stripe, API v2",
            Self::Acp => "Agentic Commerce Protocol, release 2026-04-17",
            Self::Ucp => "Universal Commerce Protocol, of 2026-08-22",
            Self::X402 => "x402, version 2, extension payment-identifier",
            Self::IcebergRest => "Apache Iceberg, REST catalog, of 2026-08-21",
        }
    }

    /// The addresses of its pages.
    #[must_use]
    pub fn sources(self) -> &'static [&'static str] {
        match self {
            Self::Draft => &[
                "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07",
                "https://github.com/idempot-dev/website/blob/main/docs/specs/idempotency.feature",
            ],
            Self::StripeV1 => &[
                "https://docs.stripe.com/api/idempotent_requests",
                "https://docs.stripe.com/error-low-level",
                "https://docs.stripe.com/api/errors",
            ],
            Self::StripeV2 => &["https://docs.stripe.com/api-v2-overview"],
            Self::Acp => &[
                "https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/blob/main/rfcs/rfc.agentic_checkout.md",
            ],
            Self::Ucp => &[
                "https://github.com/Universal-Commerce-Protocol/ucp/blob/main/docs/specification/signatures.md",
                "https://github.com/Universal-Commerce-Protocol/ucp/blob/main/docs/specification/shopping/checkout/rest.md",
            ],
            Self::X402 => &[
                "https://github.com/x402-foundation/x402/blob/main/specs/extensions/payment_identifier.md",
                "https://github.com/x402-foundation/x402/blob/main/specs/transports-v2/http.md",
            ],
            Self::IcebergRest => {
                &["https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml"]
            }
        }
    }

    /// The rows of its table.
    #[must_use]
    pub fn rows(self) -> &'static [Row] {
        match self {
            Self::Draft => draft::ROWS,
            Self::StripeV1 => stripe_v1::ROWS,
            Self::StripeV2 => stripe_v2::ROWS,
            Self::Acp => acp::ROWS,
            Self::Ucp => ucp::ROWS,
            Self::X402 => x402::ROWS,
            Self::IcebergRest => iceberg_rest::ROWS,
        }
    }

    pub(super) fn place(self) -> KeyPlace {
        match self {
            Self::Draft => KeyPlace::Quoted,
            Self::StripeV1 | Self::StripeV2 | Self::Acp | Self::Ucp => KeyPlace::Bare,
            Self::X402 => KeyPlace::Payment,
            Self::IcebergRest => KeyPlace::Version7,
        }
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
