//! "Did you mean": the known word nearest to an unknown one.

/// The nearest of `known`, if a typing error explains the difference.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let max_distance = |candidate: &str| 1 + candidate.len() / 6;
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(distance, candidate)| {
            *distance <= max_distance(candidate) && *distance < candidate.len()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edit distance: insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_misspelt_word_is_recognised_and_another_word_is_not() {
        let known = ["key", "op", "ttl", "on_error", "fingerprint"];
        assert_eq!(nearest("kye", &known), Some("key"));
        assert_eq!(nearest("keys", &known), Some("key"));
        assert_eq!(nearest("onerror", &known), Some("on_error"));
        assert_eq!(nearest("fingreprints", &known), Some("fingerprint"));
        assert_eq!(nearest("timeout", &known), None);
        assert_eq!(nearest("a", &["b"]), None);
    }
}
