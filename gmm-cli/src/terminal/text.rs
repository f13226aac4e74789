//! Text for people, on stdout and stderr.
use super::verbosity::{is_quiet, told_after};
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use gaussmix::evaluator::Description;
use indicatif::HumanCount;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether stdout is a pipe to which a result goes.
static STDOUT_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Lets later reports go to stderr.
pub fn leave_stdout() {
    STDOUT_IS_TAKEN.store(true, Ordering::Relaxed);
}

/// Prints a line to stdout, or to stderr if a result goes to stdout. Unlike `println!` it returns an error for a closed
/// pipe instead of panicking.
pub fn print(text: impl std::fmt::Display) -> anyhow::Result<()> {
    let is_taken = STDOUT_IS_TAKEN.load(Ordering::Relaxed);
    let mut out: Box<dyn Write> = if is_taken { Box::new(io::stderr()) } else { Box::new(io::stdout().lock()) };
    writeln!(out, "{}", escape_control_characters(&text.to_string()))?;
    Ok(out.flush()?)
}

/// Like [`print`](fn@print), for text with styles (`anstyle`), which only a terminal shows. It is not escaped, so it
/// must not contain text from a file.
pub fn print_styled(text: impl std::fmt::Display) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Prints a note to stderr, unless --quiet was given.
pub fn note(text: impl std::fmt::Display) {
    if is_quiet() {
        return;
    }
    // If stderr cannot be written, the note is lost and the work continues.
    let _ = writeln!(io::stderr(), "note: {}", message(&text.to_string()));
}

/// With --verbose, prints a finished step to stderr.
pub fn tell(text: impl FnOnce() -> String) {
    if let Some(seconds) = told_after() {
        let _ = writeln!(io::stderr(), "{seconds:8.2} s  {}", message(&text()));
    }
}

/// With --verbose, prints why the device `auto` does not use a GPU that it tried.
pub fn tell_gpu_problem(description: &Description) {
    description.gpu_problem.iter().for_each(|problem| tell(|| format!("no GPU is used: {problem}")));
}

/// Returns a message without control characters and without the middle of very long words, such as a name of thousands
/// of characters in the message.
pub fn message(text: &str) -> String {
    /// Longer than usual paths.
    const LONGEST: usize = 400;
    const KEPT: usize = 60;
    let text = escape_control_characters(text);
    let shorten = |word: &str| {
        let count = word.chars().count();
        if count <= LONGEST {
            return word.to_string();
        }
        let (start, end) = (word.chars().take(KEPT), word.chars().skip(count - KEPT));
        format!("{}…{}", start.collect::<String>(), end.collect::<String>())
    };
    text.split_inclusive(char::is_whitespace).map(shorten).collect()
}

/// Replaces control characters except line feeds, and characters that change the direction of writing, by escapes. Text
/// from a file or a file's name may contain them and could change the state of the terminal.
pub fn escape_control_characters(text: &str) -> Cow<'_, str> {
    escape(text, |c| c.escape_default().to_string())
}

fn escape(text: &str, with: impl Fn(char) -> String) -> Cow<'_, str> {
    let bad = |c: char| {
        c != '\n'
            && (c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if bad(c) { with(c) } else { c.to_string() }).collect())
}

/// Prints a value to stdout as JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(escape_json(&serde_json::to_string_pretty(value)?))
}

/// Replaces the characters of [`escape_control_characters`] by the escapes of JSON; none of them needs a surrogate.
fn escape_json(json: &str) -> Cow<'_, str> {
    escape(json, |c| format!("\\u{:04x}", u32::from(c)))
}

/// Prints a report to stdout, as JSON or in words.
pub fn report(json: bool, report: &impl Serialize, words: impl FnOnce() -> String) -> anyhow::Result<()> {
    if json { print_json(report) } else { print(words()) }
}

/// Formats a table without rules. The first `left` columns are aligned to the left, the others to the right.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>, left: usize) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(header).add_rows(rows);
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if i >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Writes 1234567 as `1,234,567`.
pub fn grouped(n: u64) -> String {
    HumanCount(n).to_string()
}

/// Writes `1 component` or `2 components`.
pub fn components(k: usize) -> String {
    format!("{} component{}", grouped(k as u64), if k == 1 { "" } else { "s" })
}

/// Writes a duration with three significant digits and its unit.
pub fn seconds(s: f64) -> String {
    let (value, unit) = match s {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Writes a count with three significant digits, and the word million or billion if it is large.
pub fn count(n: f64) -> String {
    let (value, unit) = match n {
        n if n >= 1e9 => (n / 1e9, " billion"),
        n if n >= 1e6 => (n / 1e6, " million"),
        n if n >= 1e3 => return grouped(n.round() as u64),
        n => (n, ""),
    };
    format!("{}{unit}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    // The thresholds are slightly below the powers of ten, where rounding would add a digit.
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(escape_control_characters("größer\nthan 1"), "größer\nthan 1");
        assert_eq!(escape_control_characters("a\x1b[2Jb\r\u{9b}\u{202e}"), "a\\u{1b}[2Jb\\r\\u{9b}\\u{202e}");
    }

    #[test]
    fn json_stays_json() {
        let text = "a\x1b\u{7f}\u{9b}\u{202e}\n";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let escaped = escape_json(&json);
        assert!(matches!(escape_control_characters(&escaped), Cow::Borrowed(_)), "{escaped}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&escaped).unwrap(), [text]);
    }

    #[test]
    fn long_words_are_shortened_in_messages() {
        let path = format!("/{}: cannot open it\n", "folder/".repeat(50));
        assert_eq!(message(&path), path);
        let long = message(&format!("no device `{}`; use cpu", "ü".repeat(5000)));
        assert!(long.starts_with("no device `üü") && long.ends_with("üü`; use cpu") && long.contains("ü…ü"), "{long}");
        assert_eq!(long.chars().count(), 10 + 121 + 7);
        assert_eq!(message("a\x1bb"), "a\\u{1b}b");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(seconds(1.5e-9), "1.50 ns");
        assert_eq!(seconds(12.34e-6), "12.3 µs");
        assert_eq!(seconds(0.09999), "100 ms");
        assert_eq!(seconds(36.0), "36.0 s");
        assert_eq!(count(12.0), "12.0");
        assert_eq!(count(86_400.2), "86,400");
        assert_eq!(count(7.3e8), "730 million");
    }
}
