//! Device descriptions: a line for each thing, `#` begins a comment.

use crate::device::{Contact, Device, DeviceError, Edge, Layer, Material, Patch, Sweep};
use std::fmt;
use std::io::BufRead;
use weft_apps::{Lines, ReadError};

/// Centimetres in a micrometre.
const UM: f64 = 1e-4;

/// Most rows, and most columns.
const MOST: usize = 100_000;

/// The fault of a description.
#[derive(Clone, Debug, PartialEq)]
pub enum ParseError {
    /// A fault in a line.
    Line(ReadError),
    /// A fault of the device as a whole.
    Device(DeviceError),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Line(error) => error.fmt(f),
            ParseError::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ParseError {}

impl From<ReadError> for ParseError {
    fn from(error: ReadError) -> ParseError {
        ParseError::Line(error)
    }
}

/// The words of a line.
struct Words<'a> {
    line: u64,
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn fault(&self, reason: impl Into<String>) -> ReadError {
        ReadError { line: self.line, reason: reason.into() }
    }

    /// Returns the next word, which is `what`.
    fn word(&mut self, what: &str) -> Result<&'a str, ReadError> {
        self.words.next().ok_or_else(|| self.fault(format!("{what} is missing")))
    }

    fn number(&mut self, what: &str) -> Result<f64, ReadError> {
        let word = self.word(what)?;
        let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
        let expected = || ReadError::field(self.line, word, &format!("a finite number ({what})"));
        number.ok_or_else(expected)
    }

    fn positive(&mut self, what: &str) -> Result<f64, ReadError> {
        let number = self.number(what)?;
        match number > 0.0 {
            true => Ok(number),
            false => Err(self.fault(format!("{what} is {number}, and has to be above 0"))),
        }
    }

    fn count(&mut self, what: &str) -> Result<usize, ReadError> {
        let word = self.word(what)?;
        let count = word.parse::<usize>().ok().filter(|count| (1..=MOST).contains(count));
        let expected = format!("a number of {what} from 1 to {MOST}");
        count.ok_or_else(|| ReadError::field(self.line, word, &expected))
    }

    /// Takes a word that has to be there.
    fn expect(&mut self, expected: &str) -> Result<(), ReadError> {
        match self.words.next() {
            Some(word) if word == expected => Ok(()),
            Some(word) => Err(ReadError::field(self.line, word, &format!("the word `{expected}`"))),
            None => Err(self.fault(format!("the word `{expected}` is missing"))),
        }
    }

    /// Refuses further words.
    fn end(&mut self) -> Result<(), ReadError> {
        match self.words.next() {
            Some(word) => Err(self.fault(format!("`{word}` is more than this line takes"))),
            None => Ok(()),
        }
    }
}

/// A description as far as it is read.
struct Draft {
    device: Device,
}

impl Device {
    /// Reads a description.
    ///
    /// # Errors
    /// The first line that is invalid, with its number and the reason; or the fault of the whole.
    pub fn read(input: &mut dyn BufRead) -> Result<Device, ParseError> {
        let device = Device {
            temperature: 300.0,
            materials: Vec::new(),
            layers: Vec::new(),
            patches: Vec::new(),
            contacts: Vec::new(),
            sweep: None,
            x: vec![0.0],
            y: vec![0.0],
        };
        let mut draft = Draft { device };
        let mut lines = Lines::new(input);
        while let Some((line, text)) = lines.next_content('#')? {
            draft.line(Words { line, words: text.split_whitespace() })?;
        }
        let mut device = draft.device;
        if let Some(last) = device.layers.last_mut() {
            // The last row belongs to the last layer.
            last.rows.end += 1;
        }
        device.check().map_err(ParseError::Device)?;
        Ok(device)
    }
}

impl Draft {
    fn line(&mut self, mut words: Words<'_>) -> Result<(), ReadError> {
        match words.word("the kind of line")? {
            "temperature" => self.device.temperature = words.positive("the temperature")?,
            "material" => self.material(&mut words)?,
            "columns" => self.columns(&mut words)?,
            "layer" => self.layer(&mut words)?,
            "box" => self.patch(&mut words)?,
            "contact" => self.contact(&mut words)?,
            "bias" => {
                let contact = self.named(&mut words)?;
                self.device.contacts[contact].bias = words.number("the voltage")?;
            }
            "sweep" => self.sweep(&mut words)?,
            other => {
                let kinds = "temperature, material, columns, layer, box, contact, bias or sweep";
                return Err(ReadError::field(words.line, other, kinds));
            }
        }
        words.end()
    }

    fn material(&mut self, words: &mut Words<'_>) -> Result<(), ReadError> {
        let name = words.word("the name of the material")?.to_string();
        if self.device.materials.iter().any(|material| material.name == name) {
            return Err(words.fault(format!("material {name} is there already")));
        }
        words.expect("permittivity")?;
        let permittivity = words.positive("the permittivity")?;
        words.expect("gap")?;
        let gap = words.positive("the band gap")?;
        words.expect("affinity")?;
        let affinity = words.number("the affinity")?;
        words.expect("states")?;
        let states =
            [words.positive("the density of states")?, words.positive("the density of states")?];
        words.expect("mobility")?;
        let mobility = [words.positive("the mobility")?, words.positive("the mobility")?];
        words.expect("lifetime")?;
        let lifetime = [words.positive("the lifetime")?, words.positive("the lifetime")?];
        let material = Material { name, permittivity, gap, affinity, states, mobility, lifetime };
        self.device.materials.push(material);
        Ok(())
    }

    fn columns(&mut self, words: &mut Words<'_>) -> Result<(), ReadError> {
        let count = words.count("columns")?;
        words.expect("over")?;
        let width = words.positive("the width")?;
        let grade = grade(words)?;
        extend(&mut self.device.x, (width, count, grade), words)
    }

    fn layer(&mut self, words: &mut Words<'_>) -> Result<(), ReadError> {
        let name = words.word("the name of the layer")?.to_string();
        let material = words.word("the material of the layer")?;
        let all = &self.device.materials;
        let Some(material) = all.iter().position(|known| known.name == material) else {
            return Err(words.fault(format!("there is no material {material} above this line")));
        };
        words.expect("doping")?;
        let doping = words.number("the doping")?;
        words.expect("thickness")?;
        let thickness = words.positive("the thickness")?;
        words.expect("rows")?;
        let rows = words.count("rows")?;
        let (mut grade, mut degenerate) = (1.0, false);
        while let Some(word) = words.words.next() {
            match word {
                "grade" => grade = words.positive("the grade")?,
                "fermi" => degenerate = true,
                other => return Err(ReadError::field(words.line, other, "`grade` or `fermi`")),
            }
        }
        let first = self.device.layers.last().map_or(0, |layer| layer.rows.end);
        extend(&mut self.device.y, (thickness, rows, grade), words)?;
        let rows = first..first + rows;
        self.device.layers.push(Layer { name, material, doping, degenerate, rows });
        Ok(())
    }

    fn patch(&mut self, words: &mut Words<'_>) -> Result<(), ReadError> {
        let mut ends = || -> Result<(f64, f64), ReadError> {
            let (from, to) = (words.number("an end")? * UM, words.number("an end")? * UM);
            match from < to {
                true => Ok((from, to)),
                false => Err(words.fault("the first end has to be the smaller one")),
            }
        };
        let (x, y) = (ends()?, ends()?);
        words.expect("doping")?;
        let doping = words.number("the doping")?;
        self.device.patches.push(Patch { x, y, doping });
        Ok(())
    }

    fn contact(&mut self, words: &mut Words<'_>) -> Result<(), ReadError> {
        let name = words.word("the name of the contact")?.to_string();
        if self.device.contacts.iter().any(|contact| contact.name == name) {
            return Err(words.fault(format!("contact {name} is there already")));
        }
        let edge = match words.word("the edge of the contact")? {
            "top" => Edge::Top,
            "bottom" => Edge::Bottom,
            other => return Err(ReadError::field(words.line, other, "`top` or `bottom`")),
        };
        let x = match words.words.next() {
            None => (f64::NEG_INFINITY, f64::INFINITY),
            Some("from") => {
                let from = words.number("the first end")? * UM;
                words.expect("to")?;
                (from, words.number("the last end")? * UM)
            }
            Some(other) => return Err(ReadError::field(words.line, other, "the word `from`")),
        };
        self.device.contacts.push(Contact { name, edge, x, bias: 0.0 });
        Ok(())
    }

    /// Returns the contact that the next word names.
    fn named(&self, words: &mut Words<'_>) -> Result<usize, ReadError> {
        let name = words.word("the name of a contact")?;
        let found = self.device.contacts.iter().position(|contact| contact.name == name);
        found.ok_or_else(|| words.fault(format!("there is no contact {name} above this line")))
    }

    fn sweep(&mut self, words: &mut Words<'_>) -> Result<(), ReadError> {
        let contact = self.named(words)?;
        words.expect("from")?;
        let from = words.number("the first voltage")?;
        words.expect("to")?;
        let to = words.number("the last voltage")?;
        words.expect("step")?;
        let step = words.positive("the step")?;
        if ((to - from) / step).abs() > 10_000.0 {
            return Err(words.fault(format!("more than 10000 steps from {from} to {to} V")));
        }
        self.device.sweep = Some(Sweep { contact, ends: (from, to), step });
        Ok(())
    }
}

/// Returns the ratio of neighbouring distances that a line may end with.
fn grade(words: &mut Words<'_>) -> Result<f64, ReadError> {
    match words.words.next() {
        None => Ok(1.0),
        Some("grade") => words.positive("the grade"),
        Some(other) => Err(ReadError::field(words.line, other, "the word `grade`")),
    }
}

/// Adds lines of the grid over a length in micrometres, each distance `grade` times the one before.
fn extend(
    places: &mut Vec<f64>,
    (length, count, grade): (f64, usize, f64),
    words: &Words<'_>,
) -> Result<(), ReadError> {
    if places.len() + count > MOST {
        return Err(words.fault(format!("the grid has more than {MOST} lines in one direction")));
    }
    let start = places.last().copied().unwrap_or(0.0);
    let length = length * UM;
    // The sum of the first k of all distances, relative to the first.
    let sum = |k: usize| match grade == 1.0 {
        true => k as f64,
        false => (grade.powi(k as i32) - 1.0) / (grade - 1.0),
    };
    let whole = sum(count);
    for k in 1..=count {
        let place = start + length * (sum(k) / whole);
        let last = places.last().copied().unwrap_or(0.0);
        if place.is_nan() || place <= last {
            return Err(words.fault(format!("grade {grade} leaves no distance between lines")));
        }
        places.push(place);
    }
    Ok(())
}
