use idem_runtime::Classify;

#[derive(Classify)]
#[class(crate = ::idem_runtime)]
enum PayError {
    #[class(system)]
    Down,
}

#[derive(Classify)]
#[class(crate = ::idem_runtime)]
struct Failed;

fn main() {}
