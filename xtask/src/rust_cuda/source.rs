//! Refuses from the kernels' source what rust-cuda's compiler would keep in local memory (docs/rust-cuda.md, "Rules for
//! kernels").
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use regex::Regex;

/// The most lines of a `counted!` loop that has loops within loops.
const MOST_LINES: usize = 15;

/// A loop of a text.
struct Loop<'a> {
    at: usize,
    index: &'a str,
    /// The range; of a `while` loop the condition, and the first value of its index.
    bounds: [&'a str; 2],
    body: &'a str,
    written_out: bool,
}

impl Loop<'_> {
    fn holds(&self, other: &Self) -> bool {
        self.at < other.at && self.body.as_bytes().as_ptr_range().contains(&other.body.as_ptr())
    }

    /// The names and numbers of the bounds, without the index itself.
    fn words(&self) -> impl Iterator<Item = &str> {
        let words = self.bounds.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words.filter(|word| !word.is_empty() && *word != self.index)
    }

    /// Whether its rounds are known: bounds of constants, and of indices of such loops around it.
    fn is_constant(&self, all: &[Self]) -> bool {
        self.words().all(|word| {
            !word.starts_with(char::is_lowercase)
                || ["as", "usize", "u32", "div_ceil", "min", "step_by", "rev"].contains(&word)
                || all.iter().any(|around| around.index == word && around.holds(self) && around.is_constant(all))
        })
    }

    /// Why it must be `written_out!`.
    fn problem(&self, all: &[Self]) -> Option<String> {
        if self.written_out || !self.is_constant(all) {
            return None;
        }
        let index = self.index;
        let inside = || all.iter().filter(|other| self.holds(other));
        let lines = self.body.lines().skip(1).filter(|line| !line.trim().is_empty()).count();
        let why = if inside().any(|other| other.words().any(|word| word == index)) {
            format!("has a loop whose bounds depend on `{index}`")
        } else if lines > MOST_LINES && inside().any(|other| inside().any(|within| other.holds(within))) {
            format!("has loops within loops in {lines} lines, more than {MOST_LINES}")
        } else if Regex::new(&format!(r"\.take(::<\w+>)?\({index}\b")).is_ok_and(|take| take.is_match(self.body)) {
            format!("takes registers by `{index}` in a function")
        } else {
            return None;
        };
        Some(format!("the loop of `{index}` {why}: write `written_out!`"))
    }
}

/// Returns `source` with spaces for comments and strings, and without tests.
fn code(source: &str) -> Result<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let text = Regex::new(r#"//[^\n]*|"(\\.|[^"\\])*""#)?;
    Ok(text.replace_all(source, |found: &regex::Captures| found[0].replace(|c| c != '\n', " ")).into_owned())
}

/// Returns the text before its first brace outside of other brackets, and the text from there to the matching brace.
fn head_and_block(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut start) = (0, None);
    for (at, c) in text.char_indices() {
        match c {
            '{' if depth == 0 && start.is_none() => (start, depth) = (Some(at), 1),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => continue,
        }
        match start {
            Some(start) if depth == 0 => return Some((&text[..start], &text[start..at])),
            _ => (),
        }
    }
    None
}

fn loops(code: &str) -> Result<Vec<Loop<'_>>> {
    let begin = Regex::new(r"(written_out!\()?\bfor (\w+) in |\bwhile (\w+)\b")?;
    let mut loops = Vec::new();
    for found in begin.captures_iter(code) {
        let whole = found.get(0).context("a match has a text")?;
        let counted = found.get(2);
        let index = counted.or(found.get(3)).context("a loop has an index")?.as_str();
        let Some((head, body)) = head_and_block(&code[whole.end()..]) else { continue };
        let mut bounds = [head, ""];
        if counted.is_none() {
            let steps = [format!("{index} += 1;"), format!("{index} -= 1;")];
            let first = format!("let mut {index} = ");
            let Some((_, value)) = code[..whole.start()].rsplit_once(&first) else { continue };
            if !steps.iter().any(|step| body.contains(step)) {
                continue;
            }
            bounds[1] = value.split(';').next().unwrap_or_default();
        }
        loops.push(Loop { at: whole.start(), index, bounds, body, written_out: found.get(1).is_some() });
    }
    Ok(loops)
}

/// Returns line and text of each problem of a file's source.
fn problems(source: &str) -> Result<Vec<(usize, String)>> {
    let code = code(source)?;
    let loops = loops(&code)?;
    let choice = Regex::new(r"\{\s*\(?&[^{};]*\}\s*else\s*\{\s*\(?&")?;
    let choices = choice.find_iter(&code).map(|found| {
        (
            found.start(),
            "a choice between references, which moves both structs to local memory: choose between numbers".into(),
        )
    });
    let of_loops = loops.iter().filter_map(|of| Some((of.at, of.problem(&loops)?)));
    Ok(choices.chain(of_loops).map(|(at, text)| (code[..at].matches('\n').count() + 1, text)).collect())
}

/// Returns the problems of all files of a folder.
pub fn problems_of(folder: &Path) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            // The emulator runs on the host.
            if !path.ends_with("emulator") {
                all.extend(problems_of(&path)?);
            }
        } else {
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            all.extend(problems(&source)?.iter().map(|(line, text)| format!("{}:{line}: {text}", path.display())));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_refused(source: &str, because: &str) {
        let found = problems(source).unwrap();
        assert!(found.len() == 1 && found[0].1.contains(because), "{source}: {found:?}");
    }

    #[test]
    fn places_that_had_a_frame_are_refused_until_they_are_written_out() {
        let lines = "x[s] += 1.0;\n".repeat(MOST_LINES);
        let long = format!("0..N {{\n{lines}counted!(for n in 0..N {{ counted!(for g in 0..G {{ }}); }}); }});");
        for (rest, because) in [
            ("0..COMPONENTS { let sums = lane.sums.take::<SUMS>(s); flush(&sums); });", "takes registers by `s`"),
            ("0..D { counted!(for j in row..=s { second[j] += z[j]; }); });", "depend on `s`"),
            ("(0..D).rev() { let mut j = s + 1; while j > 0 { j -= 1; y += x[j]; } });", "depend on `s`"),
            (&long, "in 16 lines"),
        ] {
            assert_refused(&format!("counted!(for s in {rest}"), because);
            assert_eq!(problems(&format!("written_out!(for s in {rest}")).unwrap(), []);
        }
        assert_refused(
            "let mut i = D; while i > 0 { i -= 1; counted!(for j in 0..i { y += x[j]; }); }",
            "depend on `i`",
        );
        assert_refused("for i in 0..D { for j in 0..i { y += x[j]; } }", "depend on `i`");
    }

    #[test]
    fn loops_with_bounds_of_the_launch_are_free() {
        let inside = "counted!(for j in 0..i { y += x[j]; });";
        for bounds in ["0..args.d", "0..opaque(8)", "(lane..D).step_by(WARP)"] {
            assert_eq!(problems(&format!("counted!(for i in {bounds} {{ {inside} }});")).unwrap(), []);
        }
        // Bounds that depend on the index of a loop with constant bounds are constants.
        let nest = |outer: &str| format!("{outer}!(for k in 0..D {{ counted!(for i in k..D {{ {inside} }}); }});");
        assert_eq!(problems(&nest("written_out")).unwrap().len(), 1);
        assert_eq!(problems(&nest("counted")).unwrap().len(), 2);
    }

    #[test]
    fn choices_between_references_are_refused() {
        let choice = "let (of, row) = if i < n {\n    (&args.vectors, i)\n} else {\n    (&args.matrix, i - n)\n};";
        assert_refused(choice, "a choice between references");
        assert_refused("let sum = if i < 64 { &mut sums.products[i] } else { &mut sums.features[i] };", "references");
        assert_eq!(problems(&choice.replace('&', "")).unwrap(), []);
        assert_eq!(problems(&format!("// {}", choice.replace('\n', " "))).unwrap(), []);
    }
}
