//! Properties that hold for every value and for any bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum AnswerTree {
    Nothing,
    Number(i64),
    Text { text: String, note: Option<char> },
    Bytes(Vec<u8>),
    Pair((bool, u64), String),
    Branch(BTreeMap<String, Self>),
    List(Vec<Self>),
}

fn trees() -> impl Strategy<Value = AnswerTree> {
    let leaf = prop_oneof![
        Just(AnswerTree::Nothing),
        any::<i64>().prop_map(AnswerTree::Number),
        (".*", any::<Option<char>>()).prop_map(|(text, note)| AnswerTree::Text { text, note }),
        any::<Vec<u8>>().prop_map(AnswerTree::Bytes),
        any::<((bool, u64), String)>().prop_map(|(pair, text)| AnswerTree::Pair(pair, text)),
    ];
    leaf.prop_recursive(3, 20, 4, |tree| {
        prop_oneof![
            prop::collection::btree_map(".*", tree.clone(), 0..4).prop_map(AnswerTree::Branch),
            prop::collection::vec(tree, 0..4).prop_map(AnswerTree::List),
        ]
    })
}

proptest! {
    #[test]
    fn every_format_brings_a_value_back(tree in trees()) {
        // A reader needs neither the compression nor the format setting.
        let reader = formats().pop().unwrap();
        let reader = Format { write: AnswerFormat::Json, ..reader };
        for format in formats() {
            let body = write(&format, &tree).unwrap();
            let back = read::<AnswerTree>(&reader, &body);
            prop_assert_eq!(back.as_ref(), Ok(&tree), "{:?}", format);
        }
    }

    #[test]
    fn json_never_starts_below_0x20(tree in trees(), text in ".*", number in any::<f64>()) {
        let format = Format::default();
        for body in [write(&format, &tree), write(&format, &text), write(&format, &number)] {
            prop_assert!(body.unwrap()[0] >= 0x20);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(tag in 0..9_u8, body in any::<Vec<u8>>()) {
        let body = [&[tag], &body[..]].concat();
        for format in formats() {
            let _: Result<AnswerTree, _> = read(&format, &body);
        }
    }
}
