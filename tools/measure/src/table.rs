//! Results: tables for people, one JSON object per line for programs.

use super::layout::{hanging, Columns};
use super::sample::Sample;
use serde::Serialize;

/// The better direction of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times.
    Lower,
    /// Rates.
    Higher,
}

/// A floor or peer: its name and figure, if it could be measured.
#[derive(Clone, Debug)]
pub struct Other {
    /// Column heading.
    pub name: &'static str,
    /// Figure in the table's unit.
    pub sample: Option<Sample>,
}

/// One row of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of a parameter, where the size does not say what the row is.
    pub what: &'static str,
    /// Bytes of a message.
    pub size: usize,
    /// Weft's figure.
    pub ours: Sample,
    /// Floors; the first one measured is used for the ratio.
    pub floors: Vec<Other>,
    /// Peers; the best one is used for the ratio.
    pub peers: Vec<Other>,
}

/// Figures of one kind over one link.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// The link.
    pub link: &'static str,
    /// Description of the figures.
    pub what: &'static str,
    /// Unit of all figures.
    pub unit: &'static str,
    /// The better direction.
    pub better: Better,
    /// Rows.
    pub rows: Vec<Row>,
    /// Method of the measurement, and missing figures.
    pub notes: Vec<String>,
}

/// A row for programs.
#[derive(Serialize)]
pub struct Line<'a> {
    bench: &'a str,
    link: &'a str,
    what: &'a str,
    size: usize,
    value: f64,
    unit: &'a str,
    min: f64,
    max: f64,
    floor: Option<f64>,
    floor_name: Option<&'a str>,
    ratio_floor: Option<f64>,
    peer: Option<f64>,
    peer_name: Option<&'a str>,
    ratio_peer: Option<f64>,
}

impl<'a> Line<'a> {
    /// Returns the row of a figure without a size, a floor or a peer.
    pub fn alone(
        (bench, link): (&'a str, &'a str),
        what: &'a str,
        unit: &'a str,
        sample: Sample,
    ) -> Line<'a> {
        Line {
            bench,
            link,
            what,
            size: 0,
            value: sample.median,
            unit,
            min: sample.min,
            max: sample.max,
            floor: None,
            floor_name: None,
            ratio_floor: None,
            peer: None,
            peer_name: None,
            ratio_peer: None,
        }
    }
}

impl Row {
    /// Returns the floor of the ratio: name and figure.
    pub fn floor(&self) -> Option<(&'static str, f64)> {
        self.floors.iter().find_map(|f| Some((f.name, f.sample?.median)))
    }

    /// Returns the best peer: name and figure.
    pub fn peer(&self, better: Better) -> Option<(&'static str, f64)> {
        let measured = self.peers.iter().filter_map(|p| Some((p.name, p.sample?.median)));
        match better {
            Better::Lower => measured.min_by(|a, b| a.1.total_cmp(&b.1)),
            Better::Higher => measured.max_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }
}

/// Formats a size, such as 4K.
pub fn human(size: usize) -> String {
    match size {
        s if s >= 1 << 20 && s % (1 << 20) == 0 => format!("{}M", s >> 20),
        s if s >= 1 << 10 && s % (1 << 10) == 0 => format!("{}K", s >> 10),
        s => s.to_string(),
    }
}

/// Formats three significant digits without an exponent.
pub fn figure(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_string(), figure)
}

impl Table {
    /// Returns one JSON object per line.
    pub fn json(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            if let Ok(text) = serde_json::to_string(&self.line(row)) {
                out.push_str(&text);
                out.push('\n');
            }
        }
        out
    }

    /// Returns a row for programs.
    pub fn line<'a>(&'a self, row: &'a Row) -> Line<'a> {
        let (floor, peer) = (row.floor(), row.peer(self.better));
        let ratio = |other: Option<(&str, f64)>| other.map(|o| row.ours.median / o.1);
        Line {
            bench: self.bench,
            link: self.link,
            what: row.what,
            size: row.size,
            value: row.ours.median,
            unit: self.unit,
            min: row.ours.min,
            max: row.ours.max,
            floor: floor.map(|f| f.1),
            floor_name: floor.map(|f| f.0),
            ratio_floor: ratio(floor),
            peer: peer.map(|p| p.1),
            peer_name: peer.map(|p| p.0),
            ratio_peer: ratio(peer),
        }
    }

    fn header(&self) -> Vec<String> {
        let mut cells = vec!["size".to_string()];
        if self.rows.iter().any(|r| !r.what.is_empty()) {
            cells.insert(0, "what".into());
        }
        cells.extend(["weft".into(), "min..max".into()]);
        let Some(row) = self.rows.first() else { return cells };
        if !row.floors.is_empty() {
            cells.extend(row.floors.iter().map(|o| o.name.to_string()));
            cells.push("weft/floor".into());
        }
        if !row.peers.is_empty() {
            cells.extend(row.peers.iter().map(|o| o.name.to_string()));
            cells.push("weft/peer".into());
        }
        cells
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let mut cells = vec![human(row.size)];
        if self.rows.iter().any(|r| !r.what.is_empty()) {
            cells.insert(0, row.what.to_string());
        }
        let ours = row.ours;
        cells.push(figure(ours.median));
        cells.push(format!("{}..{}", figure(ours.min), figure(ours.max)));
        for (others, best) in [(&row.floors, row.floor()), (&row.peers, row.peer(self.better))] {
            if !others.is_empty() {
                cells.extend(others.iter().map(|o| optional(o.sample.map(|s| s.median))));
                cells.push(optional(best.map(|b| ours.median / b.1)));
            }
        }
        cells
    }

    /// Returns the table as text, within the width of a terminal if there is one.
    pub fn text(&self, width: Option<usize>) -> String {
        let better = match self.better {
            Better::Lower => "lower is better",
            Better::Higher => "higher is better",
        };
        let head = self.header();
        let keys = head.iter().take_while(|name| *name != "weft").count();
        let mut columns = Columns::new(&">".repeat(head.len()), keys);
        columns.row(head);
        self.rows.iter().for_each(|row| columns.row(self.cells(row)));
        let Table { bench, link, what, unit, .. } = self;
        let title = format!("{bench} over {link}: {what} in {unit}, {better}");
        let mut out = format!("{}\n", hanging("", &title, width));
        out += &columns.text("  ", width);
        self.notes.iter().for_each(|note| out += &(hanging("  - ", note, width) + "\n"));
        out
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn sample(median: f64) -> Option<Sample> {
        Some(Sample { median, min: median / 2.0, max: median * 2.0 })
    }

    fn table(better: Better) -> Table {
        let other = |name, median| Other { name, sample: sample(median) };
        let row = Row {
            what: "",
            size: 8,
            ours: sample(3.0).unwrap(),
            floors: vec![Other { name: "missing", sample: None }, other("floor", 2.0)],
            peers: vec![other("pipe", 6.0), other("unix", 9.0)],
        };
        let (link, what, unit) = ("shm", "time", "us");
        Table { bench: "pingpong", link, what, unit, better, rows: vec![row], notes: vec![] }
    }

    #[test]
    fn json__names_the_first_floor_measured_and_the_best_peer() {
        for (better, name, ratio) in
            [(Better::Lower, "pipe", 0.5), (Better::Higher, "unix", 3.0 / 9.0)]
        {
            let line: serde_json::Value = serde_json::from_str(&table(better).json()).unwrap();
            assert_eq!(line["floor_name"], "floor");
            assert_eq!(line["ratio_floor"], 1.5);
            assert_eq!(line["peer_name"], name);
            assert_eq!(line["ratio_peer"], ratio);
        }
    }

    #[test]
    fn text__columns_line_up() {
        let text = table(Better::Lower).text(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].len(), lines[2].len(), "{text}");
        assert!(lines[2].contains(" - "), "{text}");
    }

    #[test]
    fn human__powers_of_two_only() {
        assert_eq!([1000, 1024, 1 << 20, 1536].map(human), ["1000", "1K", "1M", "1536"]);
    }
}
