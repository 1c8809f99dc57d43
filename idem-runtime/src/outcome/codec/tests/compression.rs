//! Compressed answers.

use std::io::Write;

use super::*;
use crate::outcome::codec::compression::Compression;

/// Written by Python's `zstandard`. Another release of the library may produce other bytes.
const GOLDEN: &str = "\
    0228b52ffd2445d50000a07b2272756e223a372c226d656d6f223a2261227d01008c401875a53970";
const LIMIT: usize = 8 << 20;

fn format() -> Format {
    Format {
        compression: Compression { above: Some(60) },
        ..Format::default()
    }
}

fn frame(bytes: &[u8]) -> Vec<u8> {
    let frame = zstd::bulk::compress(bytes, 0).unwrap();
    [&[2], &frame[..]].concat()
}

#[test]
fn what_an_older_release_wrote_is_read() {
    let golden = hex(GOLDEN);
    assert_eq!(read(&Format::default(), &golden), Ok(Receipt::golden()));
    let now = write(&format(), &Receipt::golden()).unwrap();
    assert_eq!(now[..5], golden[..5], "tag and magic number");
}

#[test]
fn only_long_answers_that_get_smaller_are_compressed() {
    let text = |value: &str| write(&format(), &value.to_owned()).unwrap();
    assert_eq!(
        text(&"x".repeat(58)),
        format!("\"{}\"", "x".repeat(58)).as_bytes()
    );
    assert_eq!(text(&"x".repeat(59))[0], 2);
    // Text in which no character repeats does not get smaller.
    let noise: String = ('!'..='~').filter(|c| !"\"\\".contains(*c)).collect();
    assert_eq!(text(&noise), format!("\"{noise}\"").as_bytes());
}

#[test]
fn a_bomb_is_refused() {
    let max_bytes = LIMIT;
    let text = |length: usize| [&b"\""[..], &vec![b'x'; length - 2], b"\""].concat();
    let fits = read::<String>(&Format::default(), &frame(&text(LIMIT)));
    assert_eq!(fits.map(|text| text.len()), Ok(LIMIT - 2));
    let bomb = frame(&text(LIMIT + 1));
    assert!(bomb.len() < 1_000);
    assert_eq!(
        read::<String>(&Format::default(), &bomb),
        Err(Undecodable::TooLarge { max_bytes })
    );
    let larger = Format {
        max_value_bytes: LIMIT + 1,
        ..Format::default()
    };
    assert!(read::<String>(&larger, &bomb).is_ok());
    // Several frames do not bypass the limit.
    let two = [&bomb[..], &frame(b" ")[1..]].concat();
    assert_eq!(read::<String>(&larger, &two), Err(Undecodable::Damaged));
}

#[test]
fn a_frame_that_lies_about_its_length_is_refused() {
    let mut liar = frame(&vec![b'x'; 100_000]);
    let length = &mut liar[6..10];
    assert_eq!(length, 100_000_u32.to_le_bytes());
    length.copy_from_slice(&1_000_u32.to_le_bytes());
    assert_eq!(
        read::<String>(&Format::default(), &liar),
        Err(Undecodable::Damaged)
    );
    let mut silent = zstd::stream::Encoder::new(vec![2], 0).unwrap();
    silent.write_all(&vec![b'x'; 100_000]).unwrap();
    assert_eq!(
        read::<String>(&Format::default(), &silent.finish().unwrap()),
        Err(Undecodable::Damaged)
    );
}

#[test]
fn a_changed_byte_never_becomes_another_answer() {
    let body = write(&format(), &Receipt::golden()).unwrap();
    assert_eq!(body[0], 2);
    for at in 1..body.len() {
        for bit in 0..8 {
            let mut changed = body.clone();
            changed[at] ^= 1 << bit;
            if let Ok(receipt) = read::<Receipt>(&format(), &changed) {
                assert_eq!(receipt, Receipt::golden(), "byte {at}, bit {bit}");
            }
        }
    }
}
