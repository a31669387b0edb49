//! Known words that another one may be a misspelling of.
//!
//! The same answers as `rankplan.words`, which uses Python's `difflib`.

use std::collections::HashMap;

/// How similar a word must be to be suggested: from 0 to 1, as [`likeness`] measures it.
pub const USUAL: f64 = 0.6;
/// How similar a key must be to be taken for another one.
pub const CLOSE: f64 = 0.8;
/// The most words that a message lists.
const MOST: usize = 10;

/// The known word that this one may be a misspelling of: the most similar one, whatever its case.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, least: f64) -> Option<&'a str> {
    let letters: Vec<char> = word.to_lowercase().chars().collect();
    let mut best: Option<(f64, String, &str)> = None;
    for name in known {
        let folded = name.to_lowercase();
        let found = likeness(&folded.chars().collect::<Vec<_>>(), &letters);
        let better = |(like, other, _): &(f64, String, &str)| (found, &folded) >= (*like, other);
        if found >= least && best.as_ref().is_none_or(better) {
            best = Some((found, folded, name));
        }
    }
    best.map(|(_, _, name)| name)
}

/// `did you mean ...?`, or the known words after `what` if none is near; nothing without known words.
pub fn did_you_mean(word: &str, known: &[&str], what: &str) -> String {
    match nearest(word, known.iter().copied(), USUAL) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => String::new(),
        None => format!("{what}: {}", listed(known)),
    }
}

/// Names as messages list them, of many only the first.
pub fn listed(names: &[&str]) -> String {
    let first = names[..names.len().min(MOST)].join(", ");
    if names.len() > MOST { format!("{first} and {} more", names.len() - MOST) } else { first }
}

/// How similar two texts are: twice the number of letters in common blocks, by the number of all letters.
///
/// The longest common block counts first, then those before and after it (Ratcliff and Obershelp). Takes time by the
/// product of the lengths, and more for texts of few different letters.
fn likeness(one: &[char], other: &[char]) -> f64 {
    let total = one.len() + other.len();
    if total == 0 {
        return 1.0;
    }
    let mut places: HashMap<char, Vec<usize>> = HashMap::new();
    for (index, &letter) in other.iter().enumerate() {
        places.entry(letter).or_default().push(index);
    }
    let mut matched = 0;
    let mut open = vec![((0, one.len()), (0, other.len()))];
    while let Some((a, b)) = open.pop() {
        let (start, at, size) = longest_block(one, &places, a, b);
        if size > 0 {
            matched += size;
            open.push(((a.0, start), (b.0, at)));
            open.push(((start + size, a.1), (at + size, b.1)));
        }
    }
    2.0 * matched as f64 / total as f64
}

/// The first of the longest blocks that are in both parts: its start in each, and its length.
///
/// `places` has the indexes of each letter of the other text.
fn longest_block(
    one: &[char],
    places: &HashMap<char, Vec<usize>>,
    a: (usize, usize),
    b: (usize, usize),
) -> (usize, usize, usize) {
    let mut best = (a.0, b.0, 0);
    // By index in the other text, the length of the block that ends there and at the letter before in this one.
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (index, letter) in one.iter().enumerate().take(a.1).skip(a.0) {
        let mut longer = HashMap::new();
        for &at in places.get(letter).into_iter().flatten().filter(|&&at| (b.0..b.1).contains(&at)) {
            let size = 1 + at.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0);
            longer.insert(at, size);
            if size > best.2 {
                best = (index + 1 - size, at + 1 - size, size);
            }
        }
        lengths = longer;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_word_is_suggested() {
        let known = ["ranks", "accelerators", "accelerator_ids", "hostname", "healthy"];
        let rows = [
            ("rank", Some("ranks")),
            ("HOSTNAM", Some("hostname")),
            ("x", None),
            ("acelerators", Some("accelerators")),
        ];
        for (word, found) in rows {
            assert_eq!(nearest(word, known, USUAL), found, "{word}");
        }
        assert_eq!(did_you_mean("x", &known[..2], "use one of"), "use one of: ranks, accelerators");
        assert_eq!(likeness(&['a', 'b', 'c', 'd'], &['b', 'c', 'd', 'e']), 0.75);
    }
}
