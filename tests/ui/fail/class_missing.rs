use idem_runtime::Classify;

#[derive(Classify)]
enum PayError {
    #[class(business)]
    Declined,
    Timeout,
    Network { host: String },
}

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError::Declined);
}
