use idem_runtime::Classify;

#[derive(Classify)]
union PayError {
    code: u8,
}

fn needs(_: impl Classify) {}

fn main() {
    needs(PayError { code: 1 });
}
