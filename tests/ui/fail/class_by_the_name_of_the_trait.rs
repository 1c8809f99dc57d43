use idem_runtime::Classify;

#[derive(Classify)]
enum PayError {
    #[classify(system)]
    Network,
    #[class(business)]
    Declined,
}

fn main() {}
