//! Several repetitions of a measurement.

/// Median, smallest and largest of several repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Sample {
    /// Returns the sample of these values; `None` of no values.
    pub fn of(mut values: Vec<f64>) -> Option<Sample> {
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Sample { median, min, max })
    }

    /// Applies `f` to every value and sorts the bounds again.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Sample {
        let (a, b) = (f(self.min), f(self.max));
        Sample { median: f(self.median), min: a.min(b), max: a.max(b) }
    }
}
