use idem_runtime::Classify;

#[derive(Classify)]
enum PayError {
    #[class(delegate)]
    Network(u8, u8),
    #[class(delegate)]
    Timeout,
}

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError::Timeout);
}
