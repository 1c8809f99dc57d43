use idem_runtime::Classify;

#[derive(Classify)]
#[classify(krate = ::idem_runtime)]
enum PayError {
    #[class(business)]
    Declined,
}

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError::Declined);
}
