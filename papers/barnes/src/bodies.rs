//! Bodies, and files with them.

use std::io::BufRead;
use weft_apps::{digest, Lines, ReadError};

/// A body.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Body {
    /// Its mass, in units in which the constant of gravitation is 1.
    pub mass: f64,
    /// Its place.
    pub position: [f64; 3],
    /// Its velocity.
    pub velocity: [f64; 3],
}

/// Returns an exact hash of some bodies, the first with number `first`; the hashes of parts add up.
pub(crate) fn digest_of(first: usize, bodies: &[Body]) -> u64 {
    let numbers = |body: &Body| {
        let [x, y, z] = body.position;
        let [u, v, w] = body.velocity;
        [body.mass, x, y, z, u, v, w]
    };
    let words = bodies.iter().flat_map(numbers).map(f64::to_bits);
    digest(7 * first as u64, words)
}

/// Reads bodies, one a line: mass, place and velocity, seven numbers separated by blanks or commas.
/// `#` begins a comment; a first line of other words is a heading.
///
/// # Errors
/// The first line that is no body, with the reason; an input without bodies, or with more than
/// `most`.
pub fn read_bodies(input: &mut dyn BufRead, most: usize) -> Result<Vec<Body>, ReadError> {
    let mut lines = Lines::new(input);
    let mut bodies = Vec::new();
    let mut heading = true;
    while let Some((line, text)) = lines.next_content('#')? {
        let separators = |c: char| c.is_ascii_whitespace() || c == ',';
        let fields: Vec<&str> = text.split(separators).filter(|f| !f.is_empty()).collect();
        let is_heading = heading && fields.iter().all(|field| field.parse::<f64>().is_err());
        heading = false;
        if is_heading {
            continue;
        }
        let fault = |reason: String| ReadError { line, reason };
        let mut numbers = [0.0; 7];
        if fields.len() != numbers.len() {
            let expected = "expected `MASS X Y Z VX VY VZ`";
            return Err(fault(format!("{} fields, {expected}", fields.len())));
        }
        for (number, field) in numbers.iter_mut().zip(fields) {
            let value = field.parse::<f64>().ok().filter(|value| value.is_finite());
            *number = value.ok_or_else(|| ReadError::field(line, field, "a finite number"))?;
        }
        let [mass, x, y, z, u, v, w] = numbers;
        if mass <= 0.0 {
            return Err(fault(format!("mass {mass} is not above 0")));
        }
        if bodies.len() == most {
            return Err(fault(format!("more than the limit of {most} bodies")));
        }
        bodies.push(Body { mass, position: [x, y, z], velocity: [u, v, w] });
    }
    match bodies.is_empty() {
        true => Err(lines.fault("no body")),
        false => Ok(bodies),
    }
}
