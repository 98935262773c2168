//! Tables whose columns are numbers of ranks: lines for people, one JSON object a figure for
//! programs, and plots.

use crate::pair::Sample;
use crate::table::{figure, Line};
use crate::target;
use anyhow::{Context, Result};
use std::path::Path;
use weft_measure::layout::{hanging, Columns};
use weft_plot::{plain, Bar, Bars, Chart, Curve, Panel, Picture, Point, Spacing};

/// A figure of a program.
#[derive(Clone, Debug)]
pub struct Cell {
    pub program: &'static str,
    /// The choice, or the name of the figure.
    pub what: &'static str,
    pub unit: &'static str,
    pub ranks: u32,
    pub sample: Sample,
}

/// Figures that belong together.
#[derive(Debug)]
pub struct Grid {
    /// Its number in paper 004.
    pub table: &'static str,
    pub title: String,
    pub link: &'static str,
    pub cells: Vec<Cell>,
    pub notes: Vec<String>,
}

/// A row: program, choice, unit.
type Head = (&'static str, &'static str, &'static str);

impl Grid {
    /// Returns the numbers of ranks, the least first.
    fn ranks(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.cells.iter().map(|cell| cell.ranks).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn rows(&self) -> Vec<Head> {
        let mut rows: Vec<Head> = Vec::new();
        for cell in &self.cells {
            let head = (cell.program, cell.what, cell.unit);
            if !rows.contains(&head) {
                rows.push(head);
            }
        }
        rows
    }

    fn find(&self, head: Head, ranks: u32) -> Option<Sample> {
        let is_it =
            |cell: &&Cell| (cell.program, cell.what, cell.unit) == head && cell.ranks == ranks;
        self.cells.iter().find(is_it).map(|cell| cell.sample)
    }

    /// Returns the table as text, within the width of a terminal if there is one.
    pub fn text(&self, width: Option<usize>) -> String {
        let ranks = self.ranks();
        let mut columns = Columns::new(&format!("<<<{}", ">".repeat(ranks.len())), 3);
        let names = ranks.iter().map(|ranks| match ranks {
            1 => "1 rank".into(),
            ranks => format!("{ranks} ranks"),
        });
        columns.row(["program".to_string(), String::new(), "unit".into()].into_iter().chain(names));
        for head in self.rows() {
            let figures = ranks.iter().map(|&ranks| {
                let shown = |of: Sample| {
                    let [median, min, max] = [of.median, of.min, of.max].map(figure);
                    match min == max {
                        true => median,
                        false => format!("{median} ({min}..{max})"),
                    }
                };
                self.find(head, ranks).map_or("-".into(), shown)
            });
            columns.row([head.0, head.1, head.2].map(String::from).into_iter().chain(figures));
        }
        let mut out = format!("{}\n", hanging("", &self.title, width));
        // Without figures there are notes alone, which say why.
        if !self.cells.is_empty() {
            out += &columns.text("  ", width);
        }
        self.notes.iter().for_each(|note| out += &(hanging("  - ", note, width) + "\n"));
        out
    }

    /// Returns one JSON object per line.
    ///
    /// # Errors
    /// A figure is no number.
    pub fn json(&self) -> Result<String> {
        let mut out = String::new();
        for cell in &self.cells {
            let what = match cell.what {
                "" => cell.program.to_string(),
                what => format!("{}, {what}", cell.program),
            };
            let line = Line::alone(("models", self.link), &what, cell.unit, cell.sample);
            out += &target::json_of_ranks(self.table, cell.ranks, line)?;
            out.push('\n');
        }
        Ok(out)
    }

    /// Draws the speed-ups that follow from efficiencies, beside one that grows with the ranks.
    fn speedups(&self) -> Option<Picture> {
        let point = |ranks: u32, sample: Sample| {
            let of = sample.map(|efficiency| efficiency * f64::from(ranks));
            Point { size: ranks as usize, value: of.median, spread: (of.min, of.max) }
        };
        let heads: Vec<Head> =
            self.rows().into_iter().filter(|head| head.2 == EFFICIENCY).collect();
        let curve = |(place, head): (usize, &Head)| {
            let all = self.ranks().into_iter();
            let points = all.filter_map(|n| Some(point(n, self.find(*head, n)?))).collect();
            Curve::new(head.0, place, points)
        };
        let one = Sample { median: 1.0, min: 1.0, max: 1.0 };
        let whole = self.ranks().into_iter().map(|ranks| point(ranks, one)).collect();
        let whole = Curve::reference("as many as ranks", whole);
        let curves = std::iter::once(whole).chain(heads.iter().enumerate().map(curve));
        let chart = Chart {
            title: self.title.replace("efficiency", "speed-up"),
            unit: "times the speed of one rank".into(),
            sizes: "ranks",
            size: |ranks| ranks.to_string(),
            spacing: Spacing::Powers,
            number: &plain,
            by_powers: true,
            curves: curves.collect(),
        };
        chart.picture()
    }

    /// Draws bars: a panel for each number of ranks, a group for each program, a bar for each
    /// choice.
    fn bars(&self, unit: &str) -> Option<Picture> {
        let rows: Vec<Head> = self.rows().into_iter().filter(|head| head.2 == unit).collect();
        let unique = |of: fn(&Head) -> &'static str| {
            let mut all: Vec<&str> = Vec::new();
            let new = rows.iter().map(of);
            new.for_each(|one| {
                if !all.contains(&one) {
                    all.push(one)
                }
            });
            all
        };
        let (programs, choices) = (unique(|head| head.0), unique(|head| head.1));
        let panel = |ranks: u32| {
            let group = |program: &&str| {
                let bar = |choice: &&str| {
                    let head = rows.iter().find(|head| (head.0, head.1) == (program, choice))?;
                    let of = self.find(*head, ranks)?;
                    Some(Bar { value: of.median, spread: (of.min, of.max) })
                };
                (program.to_string(), choices.iter().map(bar).collect())
            };
            let title = format!("{ranks} ranks");
            Panel { title, groups: programs.iter().map(group).collect() }
        };
        let bars = Bars {
            title: self.title.clone(),
            unit: unit.to_string(),
            names: choices.iter().map(|choice| choice.to_string()).collect(),
            mark: (unit == OVER).then_some(1.0),
            panels: self.ranks().into_iter().map(panel).collect(),
        };
        bars.picture()
    }

    /// Writes the plots into a folder; adds their names.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn draw(&self, folder: &Path, names: &mut Vec<String>) -> Result<()> {
        let mut units: Vec<&str> = self.cells.iter().map(|cell| cell.unit).collect();
        units.dedup();
        units.sort_unstable();
        units.dedup();
        for unit in units {
            let (kind, picture) = match unit {
                EFFICIENCY => ("speedup", self.speedups()),
                OVER => ("choices", self.bars(unit)),
                SECONDS => continue,
                unit if unit.starts_with("MB") => ("bytes", self.bars(unit)),
                unit => ("packets", self.bars(unit)),
            };
            let Some(picture) = picture else { continue };
            let name = format!("models-{}-{kind}", self.table.to_lowercase());
            std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
            let svg = picture.svg(&self.title).into_bytes();
            for (end, bytes) in [("svg", svg), ("png", picture.png()?)] {
                let path = folder.join(format!("{name}.{end}"));
                std::fs::write(&path, bytes).with_context(|| format!("{}", path.display()))?;
            }
            names.push(name);
        }
        Ok(())
    }
}

/// Units of figures: the time of one rank over that of all times their number; a time over that of
/// the base.
pub const EFFICIENCY: &str = "T1/(n Tn)";
pub const OVER: &str = "of the base";
pub const SECONDS: &str = "s";

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn grid(table: &'static str, unit: &'static str) -> Grid {
        let cell = |program, what, ranks, median| {
            let sample = Sample { median, min: median * 0.9, max: median * 1.2 };
            Cell { program, what, unit, ranks, sample }
        };
        let cells = vec![
            cell("ASP", "a", 2, 0.9),
            cell("ASP", "b", 2, 1.0),
            cell("ASP", "a", 4, 0.7),
            cell("SOR", "a", 2, 0.8),
        ];
        let (title, link, notes) = ("a table".into(), "shm", vec!["a note".into()]);
        Grid { table, title, link, cells, notes }
    }

    #[test]
    fn text__a_row_for_each_program_and_choice_and_a_column_for_each_number_of_ranks() {
        let text = grid("12", OVER).text(None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("2 ranks") && lines[1].contains("4 ranks"), "{text}");
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[2].contains("0.900 (0.810..1.08)"), "{text}");
        assert!(lines[3].ends_with(" -"), "no figure of 4 ranks: {text}");
    }

    #[test]
    fn json__names_table_and_ranks_and_has_the_fields_of_every_benchmark() {
        let json = grid("12", OVER).json().unwrap();
        let lines: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        let line = &lines[1];
        assert_eq!((&line["bench"], &line["what"]), (&"models".into(), &"ASP, b".into()));
        assert_eq!((&line["table"], &line["ranks"]), (&"12".into(), &2.into()));
        for field in ["value", "min", "floor", "peer_name", "target", "target_floor", "met"] {
            assert!(line.get(field).is_some(), "{field}: {line}");
        }
    }

    #[test]
    fn draw__a_plot_for_each_unit_that_has_one() {
        let folder = weft_run::folder::Folder::new().unwrap();
        let mut names = Vec::new();
        for (table, unit) in [("VII", EFFICIENCY), ("12", OVER), ("VII", SECONDS)] {
            grid(table, unit).draw(&folder.0, &mut names).unwrap();
        }
        assert_eq!(names, ["models-vii-speedup", "models-12-choices"]);
        let svg = std::fs::read_to_string(folder.0.join("models-12-choices.svg")).unwrap();
        assert!([">4 ranks<", ">SOR<", ">b<"].iter().all(|word| svg.contains(word)), "{svg}");
        assert!(folder.0.join("models-vii-speedup.png").is_file());
    }
}
