//! Compares the committed kernels with what the source gives, one by one.
use std::collections::BTreeMap;

use gmm_ptx::Entry;

/// The differences between the committed entries and the expected ones, a line for each kernel. The
/// texts count, not the archives: other versions of the compressor may give other bytes.
pub fn differences(committed: &[Entry], expected: &[Entry]) -> Vec<String> {
    let mut present: BTreeMap<_, _> = committed.iter().map(|entry| (&*entry.name, &*entry.text)).collect();
    let mut lines = Vec::new();
    for Entry { name, text } in expected {
        match present.remove(name.as_str()) {
            None => lines.push(format!("{name}: not committed; the source gives {} bytes", text.len())),
            Some(found) if found != *text => lines.push(format!(
                "{name}: {} bytes committed, {} from the source; they differ from line {} on",
                found.len(),
                text.len(),
                1 + text.lines().zip(found.lines()).take_while(|(a, b)| a == b).count()
            )),
            Some(_) => {}
        }
    }
    lines.extend(present.iter().map(|(name, text)| format!("{name}: {} bytes of no kernel in the source", text.len())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, text: &str) -> Entry {
        Entry { name: name.into(), text: text.into() }
    }

    #[test]
    fn each_difference_is_named_with_its_place() {
        let committed = [entry("changed", "a\nb\nc\n"), entry("old", "gone\n"), entry("same", "same\n")];
        assert!(differences(&committed, &committed).is_empty());
        let expected = [entry("changed", "a\nB\nc\nd\n"), entry("new", "n\n"), entry("same", "same\n")];
        assert_eq!(
            differences(&committed, &expected),
            [
                "changed: 6 bytes committed, 8 from the source; they differ from line 2 on",
                "new: not committed; the source gives 2 bytes",
                "old: 5 bytes of no kernel in the source",
            ]
        );
        assert_eq!(differences(&[], &expected).len(), 3);
    }
}
