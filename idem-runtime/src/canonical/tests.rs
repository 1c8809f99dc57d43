use super::to_vec;
#[test]
fn smoke() {
    assert_eq!(
        to_vec(&u64::MAX).unwrap(),
        [0x1b, 255, 255, 255, 255, 255, 255, 255, 255]
    );
}
