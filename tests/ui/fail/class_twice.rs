use idem_runtime::Classify;

#[derive(Classify)]
enum PayError {
    #[class(business)]
    #[class(system)]
    Declined,
}

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError::Declined);
}
