use idem_runtime::Classify;

#[derive(Classify)]
#[class(business)]
enum PayError {
    #[class(system)]
    Network(#[class(delegate)] u8),
}

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError::Network(1));
}
