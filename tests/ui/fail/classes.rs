//! `#[derive(Classify)]`. The implementation stands after an error, so that `needs` reports none of its own.

use idem_runtime::Classify;

fn needs(_: impl Classify) {}

#[derive(Classify)]
enum ByTheNameOfTheTrait {
    #[classify(system)]
    Network,
    #[class(business)]
    Declined,
}

#[derive(Classify)]
#[class(business)]
enum InTheWrongPlace {
    #[class(system)]
    Network(#[class(delegate)] u8),
}

#[derive(Classify)]
enum Missing {
    #[class(business)]
    Declined,
    Timeout,
    Network { host: String },
}

#[derive(Classify)]
#[class(crate = ::idem_runtime)]
enum NamesCrate {
    #[class(system)]
    Down,
}

#[derive(Classify)]
#[class(crate = ::idem_runtime)]
struct StructNamesCrate;

#[derive(Classify)]
#[class(business)]
enum OfTheWholeEnum {
    Declined,
    Network,
}

#[derive(Classify)]
enum ShipError {
    Address(#[class(business)] String),
    #[class(SYSTEM)]
    Carrier,
    #[class = "unknown"]
    TimedOut,
}

#[derive(Classify)]
enum Twice {
    #[class(business)]
    #[class(system)]
    Declined,
}

#[derive(Classify)]
enum Unknown {
    #[class(bussiness)]
    Declined,
    #[class(fatal)]
    Timeout,
    #[class]
    Network,
    #[class(system, unknown)]
    Store,
}

#[derive(Classify)]
struct WithoutClass {
    code: u8,
}

#[derive(Classify)]
union Union {
    code: u8,
}

#[derive(Classify)]
#[classify(krate = ::idem_runtime)]
enum OptionUnknown {
    #[class(business)]
    Declined,
}

#[derive(Classify)]
#[classify(crate)]
enum CrateWithoutPath {
    #[class(business)]
    Declined,
}

#[derive(Classify)]
#[classify]
enum OptionWithoutValue {
    #[class(business)]
    Declined,
}

#[derive(Classify)]
#[classify(crate = ::idem_runtime, crate = ::idem_runtime)]
enum OptionTwice {
    #[class(business)]
    Declined,
}

#[derive(Classify)]
enum DelegateNeedsOneField {
    #[class(delegate)]
    Network(u8, u8),
    #[class(delegate)]
    Timeout,
}

fn main() {
    needs(InTheWrongPlace::Network(1));
    needs(Missing::Declined);
    needs(OfTheWholeEnum::Declined);
    needs(ShipError::Carrier);
    needs(Twice::Declined);
    needs(Unknown::Declined);
    needs(WithoutClass { code: 1 });
    needs(Union { code: 1 });
    needs(OptionUnknown::Declined);
    needs(DelegateNeedsOneField::Timeout);
}
