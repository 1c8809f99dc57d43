use idem_runtime::Classify;

struct Inner;

#[derive(Classify)]
enum PayError {
    #[class(delegate)]
    Network(Inner),
}

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError::Network(Inner));
}
