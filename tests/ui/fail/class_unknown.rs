use idem_runtime::Classify;

#[derive(Classify)]
enum PayError {
    #[class(bussiness)]
    Declined,
    #[class(fatal)]
    Timeout,
    #[class]
    Network,
    #[class(system, unknown)]
    Store,
}

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError::Declined);
}
