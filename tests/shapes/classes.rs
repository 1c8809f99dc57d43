//! `#[derive(Classify)]` of types of every kind.

#![allow(dead_code)]

use idem_runtime::{Class, Classify};

/// A derived class requires no more of parameters than a delegated field.
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

/// Not `Classify`, and not required to be.
struct Payload;

struct MyOption<E>(Option<E>);

impl<E: Classify> Classify for MyOption<E> {
    fn class(&self) -> Class {
        self.0.as_ref().map_or(Class::Unknown, Classify::class)
    }
}

#[derive(Classify)]
enum Delegating<E> {
    #[class(delegate)]
    Option { inner: MyOption<E> },
}

#[no_implicit_prelude]
mod bare {
    #[derive(::idem_runtime::Classify)]
    pub(super) enum Bare {
        #[class(business)]
        Tuple(u8, u8),
        #[class(unknown)]
        Struct { option: u8 },
        #[class(system)]
        Unit,
        #[class(delegate)]
        Inner(super::super::Failure),
    }
}

#[test]
fn a_type_of_every_kind_has_a_class() {
    use bare::Bare;

    let _: fn(&Never) -> Class = Classify::class;
    let wrapped = |wrapped: Wrapped<'_, Network, Payload, 0>| wrapped.class();
    let inner = MyOption::<Network>(None);
    for (class, expected) in [
        (wrapped(Wrapped::Inner(Network)), Class::System),
        (wrapped(Wrapped::Timeout(&[])), Class::Unknown),
        (Newtype(Network).class(), Class::System),
        (Delegating::Option { inner }.class(), Class::Unknown),
        (Bare::Tuple(1, 2).class(), Class::Business),
        (Bare::Struct { option: 1 }.class(), Class::Unknown),
        (Bare::Unit.class(), Class::System),
        (
            Bare::Inner(super::Failure::Declined).class(),
            Class::Business,
        ),
    ] {
        assert_eq!(class, expected);
    }
}
