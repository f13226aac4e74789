//! Checks that each barrier of the source is in the PTX exactly once.
use std::collections::BTreeMap;
use std::sync::LazyLock;

use gmm_ptx::{BARRIER_MARK, Entry};
use regex::Regex;

static BARRIER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:bar|barrier)(?:\.cta)?\.(?:sync|red|arrive)\b").expect("a constant pattern, tested below")
});

/// Each barrier of an entry must have the mark of its place in the source, and no mark may appear twice: a compiler
/// unaware that barriers are convergent may have duplicated it.
pub fn problems(entry: &Entry) -> Vec<String> {
    let mut marks: BTreeMap<&str, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    for line in entry.text.lines() {
        let (code, mark) = line.split_once(BARRIER_MARK).unwrap_or((line, ""));
        for _ in BARRIER.find_iter(code) {
            if mark.is_empty() {
                problems.push(format!("{}: a barrier not made by `barrier!`: {}", entry.name, line.trim()));
            } else {
                *marks.entry(mark).or_default() += 1;
            }
        }
    }
    for (mark, count) in marks.into_iter().filter(|(_, count)| *count > 1) {
        problems.push(format!(
            "{}: the barrier at {mark} appears {count} times; keep barriers out of unrolled loops and out of functions \
             that a kernel calls twice, or correct the compiler's flags",
            entry.name
        ));
    }
    problems
}

/// Returns a text without the marks of its barriers.
pub fn unmarked(text: &str) -> String {
    text.lines().fold(String::with_capacity(text.len()), |mut unmarked, line| {
        unmarked.push_str(line.split(BARRIER_MARK).next().unwrap_or_default().trim_end());
        unmarked.push('\n');
        unmarked
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, text: &str) -> Entry {
        Entry { name: name.into(), text: text.into() }
    }

    #[test]
    fn duplicated_and_unmarked_barriers_are_found() {
        let twice = "\tbarrier.sync 0; // barrier a.rs:1\n\tbarrier.sync 0; // barrier a.rs:1\n\tbar.sync 0;\n";
        let problems = problems(&entry("first", twice));
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("not made by `barrier!`") && problems[1].contains("a.rs:1 appears 2 times"));
        let once = "\tbarrier.sync 0; // barrier a.rs:1\n\tbarrier.sync 0; // barrier a.rs:2\n";
        assert!(super::problems(&entry("second", once)).is_empty());
        assert_eq!(unmarked(once), "\tbarrier.sync 0;\n\tbarrier.sync 0;\n");
    }
}
