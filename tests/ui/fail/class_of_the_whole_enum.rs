use idem_runtime::Classify;

#[derive(Classify)]
#[class(business)]
enum PayError {
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

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError::Declined);
    needs(ShipError::Carrier);
}
