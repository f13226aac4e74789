//! Heat maps of `gmm bench map`: times over their floors.
use super::chart::{FONT, GREY, to_svg};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const CELL: (i32, i32) = (106, 38);
/// The space for labels to the left of the cells and above them.
const LABELS: (i32, i32) = (70, 62);
const MARGIN: i32 = 16;
const LEGEND: &str = "time over floor, and the kernels; a frame is a cliff";

/// Ratios, ascending, and the shade below each: a colour of the 6×6×6 cube of terminals.
const SHADES: [(f64, u8); 5] = [(1.5, 231), (2.5, 230), (4.0, 223), (6.0, 216), (10.0, 209)];
const DARKEST: u8 = 202;

/// Returns the shade of a ratio, as terminals number their colours. Black text is legible on each.
pub fn shade(ratio: f64) -> u8 {
    SHADES.into_iter().find(|(limit, _)| ratio < *limit).map_or(DARKEST, |(_, shade)| shade)
}

pub fn ratio_text(ratio: f64) -> String {
    if ratio < 9.95 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}

/// A map with a row for each D and a column for each K.
pub struct HeatMap<'a> {
    pub title: String,
    pub d: &'a [usize],
    pub k: &'a [usize],
    /// Row by row; `None` if not measured.
    pub cells: Vec<Vec<Option<HeatCell<'a>>>>,
}

pub struct HeatCell<'a> {
    pub ratio: f64,
    pub family: &'a str,
    pub cliff: bool,
}

/// Draws the maps below each other, as SVG text.
pub fn heat_maps(maps: &[HeatMap<'_>]) -> anyhow::Result<String> {
    let height = |map: &HeatMap<'_>| LABELS.1 + CELL.1 * map.d.len() as i32 + MARGIN;
    let columns = maps.iter().map(|map| map.k.len()).max().unwrap_or(0).max(4);
    let size =
        (2 * MARGIN + LABELS.0 + CELL.0 * columns as i32, 2 * MARGIN + maps.iter().map(height).sum::<i32>() + CELL.1);
    to_svg((size.0 as u32, size.1 as u32), |root| {
        let text = |text: String, at: (i32, i32), size: i32, to: HPos| {
            let style = (FONT, size).into_font().color(&BLACK).pos(Pos::new(to, VPos::Center));
            root.draw(&Text::new(text, at, style))
        };
        let mut top = MARGIN;
        for map in maps {
            text(map.title.clone(), (MARGIN, top + 14), 18, HPos::Left)?;
            let (left, first) = (MARGIN + LABELS.0, top + LABELS.1);
            for (j, k) in map.k.iter().enumerate() {
                let x = left + CELL.0 * j as i32 + CELL.0 / 2;
                text(format!("K = {k}"), (x, first - 12), 14, HPos::Center)?;
            }
            for (i, (d, cells)) in map.d.iter().zip(&map.cells).enumerate() {
                let y = first + CELL.1 * i as i32;
                text(format!("D = {d}"), (left - 8, y + CELL.1 / 2), 14, HPos::Right)?;
                for (j, cell) in cells.iter().enumerate() {
                    let x = left + CELL.0 * j as i32;
                    let corners = [(x + 1, y + 1), (x + CELL.0 - 1, y + CELL.1 - 1)];
                    let Some(cell) = cell else {
                        root.draw(&Rectangle::new(corners, GREY))?;
                        continue;
                    };
                    root.draw(&Rectangle::new(corners, colour(shade(cell.ratio)).filled()))?;
                    // A path, because rectangles have lines of one width only.
                    let [(x0, y0), (x1, y1)] = corners;
                    let frame = [(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)];
                    let line = if cell.cliff { BLACK.stroke_width(2) } else { GREY.stroke_width(1) };
                    root.draw(&PathElement::new(frame, line))?;
                    let middle = x + CELL.0 / 2;
                    text(ratio_text(cell.ratio), (middle, y + 13), 15, HPos::Center)?;
                    text(cell.family.into(), (middle, y + 28), 11, HPos::Center)?;
                }
            }
            top += height(map);
        }
        text(LEGEND.into(), (MARGIN, top + CELL.1 / 2), 14, HPos::Left)?;
        Ok(())
    })
}

/// Returns a colour of the terminals' cube: 16 + 36·red + 6·green + blue.
fn colour(shade: u8) -> RGBColor {
    let of = |level: u8| if level == 0 { 0 } else { 55 + 40 * level };
    let cube = shade - 16;
    RGBColor(of(cube / 36), of(cube / 6 % 6), of(cube % 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_grow_darker_and_are_the_terminals() {
        let shades = [1.0, 2.0, 3.0, 5.0, 8.0, 39.0].map(shade);
        assert_eq!(shades, [231, 230, 223, 216, 209, 202]);
        let colours = [231, 223, 202].map(colour);
        assert_eq!(colours, [RGBColor(255, 255, 255), RGBColor(255, 215, 175), RGBColor(255, 95, 0)]);
    }

    #[test]
    fn ratios_are_short() {
        assert_eq!([0.94, 5.44, 9.94, 9.96, 39.4].map(ratio_text), ["0.9", "5.4", "9.9", "10", "39"]);
    }

    #[test]
    fn a_map_shows_ratios_families_and_cliffs() {
        let cell = |ratio, family, cliff| Some(HeatCell { ratio, family, cliff });
        let svg = |cliff| {
            let cells = vec![vec![cell(1.0, "fused", false), cell(5.4, "products_mma", cliff)], vec![None, None]];
            heat_maps(&[HeatMap { title: "diag".into(), d: &[2, 13], k: &[8, 16], cells }]).unwrap()
        };
        let (plain, framed) = (svg(false), svg(true));
        for text in ["diag", "D = 13", "K = 16", "5.4", "products_mma", LEGEND] {
            assert!(plain.contains(text), "{text}");
        }
        let frames = |svg: &str| svg.matches("stroke-width=\"2\"").count();
        assert_eq!((frames(&plain), frames(&framed)), (0, 1));
    }
}
