//! Answers in `MessagePack`.

use std::collections::BTreeMap;

use super::*;

fn format() -> Format {
    Format {
        write: AnswerFormat::MessagePack,
        ..Format::default()
    }
}

#[test]
fn its_bytes_are_frozen() {
    assert_eq!(write(&format(), &Receipt::golden()).as_deref(), Ok(PACKED));
    assert_eq!(read(&Format::default(), PACKED), Ok(Receipt::golden()));
}

#[test]
fn fields_may_be_added() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Newer {
        #[serde(default)]
        note: Option<String>,
        memo: String,
        run: u32,
    }
    let newer: Newer = read(&format(), PACKED).unwrap();
    assert_eq!((newer.run, newer.note.as_ref()), (7, None));
    let body = write(&format(), &newer).unwrap();
    assert_eq!(read(&format(), &body), Ok(Receipt::golden()), "and back");
}

#[test]
fn it_holds_what_json_does_not() {
    let odd = BTreeMap::from([((1_u8, 2_u8), f64::INFINITY)]);
    assert_eq!(
        write(&Format::default(), &odd),
        Err(Unencodable::NotSerializable)
    );
    assert_eq!(read(&format(), &write(&format(), &odd).unwrap()), Ok(odd));
}

#[test]
fn the_place_of_an_error_is_told() {
    let at = PACKED.len() - 1;
    let longer = [PACKED, b"\x07"].concat();
    assert_eq!(
        read::<Receipt>(&format(), &longer),
        Err(Undecodable::Mistyped { at })
    );
}
