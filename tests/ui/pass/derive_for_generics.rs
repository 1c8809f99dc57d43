//! A derived class of a generic error asks its parameters for no more than it needs.

#![allow(dead_code, reason = "the parts of an error are for people")]

use idem_runtime::{Class, Classify};

#[derive(Classify)]
enum Wrapped<'a, E: std::fmt::Debug, T, const N: usize> {
    #[class(delegate)]
    Inner(E),
    #[class(unknown)]
    Timeout(&'a [T; N]),
}

#[derive(Classify, Debug)]
#[class(system)]
struct Network;

#[derive(Classify)]
#[class(delegate)]
struct Newtype(Network);

#[derive(Classify)]
enum Never {}

/// Not `Classify`, and not asked to be.
struct Payload;

impl<E: Classify> Classify for MyOption<E> {
    fn class(&self) -> Class {
        self.0.as_ref().map_or(Class::Unknown, Classify::class)
    }
}

struct MyOption<E>(Option<E>);

#[derive(Classify)]
enum Delegating<E> {
    #[class(delegate)]
    Option { inner: MyOption<E> },
}

fn main() {
    let wrapped: Wrapped<'_, Network, Payload, 0> = Wrapped::Inner(Network);
    assert_eq!(wrapped.class(), Class::System);
    let wrapped: Wrapped<'_, Network, Payload, 0> = Wrapped::Timeout(&[]);
    assert_eq!(wrapped.class(), Class::Unknown);
    assert_eq!(Newtype(Network).class(), Class::System);
    let delegating: Delegating<Network> = Delegating::Option {
        inner: MyOption(None),
    };
    assert_eq!(delegating.class(), Class::Unknown);
    let never: fn(&Never) -> Class = Classify::class;
    let _ = never;
}
