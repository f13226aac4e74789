//! The maps as text and as a drawing.
use super::cells::{Cell, Map};
use crate::commands::bench::errors::in_words;
use crate::plot::{self, HeatCell, HeatMap, ratio_text};
use crate::terminal::text;
use anstyle::{Ansi256Color, AnsiColor, Color, Style};
use std::fmt::Write;

const ERRORS: &str = "errors against float64 on the same device: the largest of that of the log-likelihood, relative, and those of counts,\n\
                      means and covariances, in norm";

impl Map {
    fn title(&self) -> String {
        format!("{}, {} covariances", self.task.title(), self.covariance_type)
    }

    /// Returns the families that ran, in the order of their first cells, which is the order of their letters.
    fn families(&self) -> Vec<&str> {
        let mut families = Vec::new();
        for cell in &self.cells {
            if !families.contains(&&*cell.family) {
                families.push(&*cell.family);
            }
        }
        families
    }

    /// Returns the shaded ratios with the letters of their families, the legend and the cliffs.
    pub fn text(&self) -> String {
        let families = self.families();
        let letter = |cell: &Cell| {
            let place = families.iter().position(|family| *family == cell.family);
            place.map_or('?', |i| ('a'..='z').nth(i).unwrap_or('?'))
        };
        let of = |cell: &Cell| {
            let cliff = if cell.cliff.is_some() { '*' } else { ' ' };
            format!("{} {}{cliff}", ratio_text(cell.ratio), letter(cell))
        };
        let mut out = format!("{}\n\n{}", self.title(), self.grid(of, style));
        let letters = families.iter().zip('a'..='z').map(|(family, letter)| format!("{letter} {family}"));
        let _ = write!(out, "\n\n{}", letters.collect::<Vec<_>>().join("   "));
        let cliffs = self.cliffs();
        if !cliffs.is_empty() {
            let _ = write!(out, "\n\n{cliffs}");
        }
        if self.cells.iter().any(|cell| cell.errors.is_some()) {
            let largest = |cell: &Cell| cell.errors.as_ref().map_or_else(|| "–".into(), |e| in_words(e.largest()));
            let grid = self.grid(|cell| largest(cell) + "  ", |_| Style::new());
            let _ = write!(out, "\n\n{ERRORS}\n\n{grid}");
        }
        out
    }

    /// Returns a table of all cells, each styled. The last two characters of a cell follow its number.
    fn grid(&self, of: impl Fn(&Cell) -> String, style: impl Fn(&Cell) -> Style) -> String {
        let width = self.cells.iter().map(|cell| of(cell).len()).max().unwrap_or(0).max(6) + 1;
        let mut out = format!("{:>8}", "D \\ K");
        self.k.iter().for_each(|k| out += &format!("{k:>w$}   ", w = width - 2));
        out.truncate(out.trim_end().len());
        for &d in &self.d {
            let _ = write!(out, "\n{d:>8} ");
            for &k in &self.k {
                match self.cell(d, k) {
                    Some(cell) => {
                        let style = style(cell);
                        let _ = write!(out, "{style}{:>width$}{style:#} ", of(cell));
                    }
                    None => out += &format!("{:>w$}   ", "–", w = width - 2),
                }
            }
            out.truncate(out.trim_end().len());
        }
        out
    }

    /// Returns a table of the cliffs with their neighbours; empty without cliffs.
    fn cliffs(&self) -> String {
        let found = self.cells.iter().filter_map(|cell| Some((cell, cell.cliff.as_ref()?)));
        let rows: Vec<_> = found
            .map(|(cell, cliff)| {
                let there = self.cell(cliff.d, cliff.k).map_or_else(|| "–".into(), |cell| text::seconds(cell.seconds));
                let place = |d: usize, k: usize| format!("D = {d}, K = {k}");
                let times = format!("{:.1}", cliff.times);
                vec![place(cell.d, cell.k), text::seconds(cell.seconds), place(cliff.d, cliff.k), there, times]
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        text::table(&["* cliff", "time", "beside", "time there", "times its share"], rows, 1)
    }

    fn drawn(&self) -> HeatMap<'_> {
        let cell = |d: usize, k: usize| {
            let cell = self.cell(d, k)?;
            Some(HeatCell { ratio: cell.ratio, family: &cell.family, cliff: cell.cliff.is_some() })
        };
        let row = |d: usize| self.k.iter().map(|&k| cell(d, k)).collect();
        let cells = self.d.iter().map(|&d| row(d)).collect();
        HeatMap { title: self.title(), d: &self.d, k: &self.k, cells }
    }
}

pub fn svg(maps: &[Map]) -> anyhow::Result<String> {
    plot::heat_maps(&maps.iter().map(Map::drawn).collect::<Vec<_>>())
}

fn style(cell: &Cell) -> Style {
    let shade = Color::Ansi256(Ansi256Color(plot::shade(cell.ratio)));
    let style = Style::new().bg_color(Some(shade)).fg_color(Some(AnsiColor::Black.into()));
    if cell.cliff.is_some() { style.bold() } else { style }
}

#[cfg(test)]
mod tests {
    use super::super::cells::tests::map;
    use super::*;

    #[test]
    fn text_has_ratios_families_and_cliffs() {
        let map = map(&[32, 40], &[2, 8], &[71.0, 49.0, 340.0, 0.0], &[42.7, 42.7, 53.3, 53.3]);
        let styled = map.text();
        let plain = anstream::adapter::strip_str(&styled).to_string();
        assert_ne!(styled, plain, "shades");
        let lines: Vec<&str> = plain.lines().map(str::trim_end).collect();
        let expected = [
            "an iteration of EM, diag covariances",
            "",
            "   D \\ K    2       8",
            "      32  1.7 a   1.1 a",
            "      40  6.4 b*     –",
            "",
            "a fused_mma   b products_mma",
            "",
        ];
        assert_eq!(lines[..expected.len()], expected, "{plain}");
        let cliff: Vec<_> = lines[lines.len() - 1].split_whitespace().collect();
        assert_eq!(cliff.join(" "), "D = 40, K = 2 340 µs D = 32, K = 2 71.0 µs 3.8");
        assert!(svg(&[map]).unwrap().contains("products_mma"));
    }
}
