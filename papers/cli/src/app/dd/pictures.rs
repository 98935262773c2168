//! Pictures of a device: its fields, its currents, its convergence and the cost of its rows.

use weft_app::pictures::short;
use weft_dd::{pixels, Device, Equation, Outcome};
use weft_plot::{plain, Chart, Curve, HeatMap, Picture, Point, Spacing};

/// Pixels of the longer side of a device.
const PIXELS: usize = 320;
/// Micrometres in a centimetre.
const UM: f64 = 1e4;

/// Returns all pictures that there are, with their names.
pub fn all(device: &Device, outcome: &Outcome) -> Vec<(&'static str, Picture)> {
    let mut all = fields(device, outcome);
    all.push(("curve", curve(device, outcome)));
    all.push(("convergence", convergence(outcome)));
    all.push(("rows", rows(outcome)));
    all.into_iter().filter_map(|(name, picture)| Some((name, picture?))).collect()
}

/// Draws the fields of the last solution.
fn fields(device: &Device, outcome: &Outcome) -> Vec<(&'static str, Option<Picture>)> {
    let Some(maps) = &outcome.maps else { return Vec::new() };
    let logarithm = |values: &[f64]| -> Vec<f64> {
        values.iter().map(|value| value.max(1e-30).log10()).collect()
    };
    let power = |value: f64| format!("1e{}", plain(value));
    let volts = outcome.solutions.last().map_or(String::new(), |last| {
        let all = device.contacts.iter().zip(&last.voltages);
        let all: Vec<String> = all.map(|(c, v)| format!("{} {v:.3} V", c.name)).collect();
        all.join(", ")
    });
    let draw = |title: &str, unit: &str, values: &[f64], number: &dyn Fn(f64) -> String| {
        let (columns, values) = pixels(device, values, PIXELS);
        let end = |places: &[f64]| format!("{} um", plain(places.last().map_or(0.0, |l| l * UM)));
        let map = HeatMap {
            title: format!("DD: {title}, {volts}"),
            unit: unit.into(),
            axes: ("across", "down"),
            ends: (["0".into(), end(&device.x)], ["0".into(), end(&device.y)]),
            columns,
            values: &values,
            range: None,
            number,
        };
        map.picture()
    };
    let [electrons, holes] = [&maps.densities[0], &maps.densities[1]].map(|all| logarithm(all));
    vec![
        ("potential", draw("potential", "V", &maps.potential, &plain)),
        ("electrons", draw("electrons", "per cm3, logarithmic", &electrons, &power)),
        ("holes", draw("holes", "per cm3, logarithmic", &holes, &power)),
    ]
}

fn point(size: usize, value: f64) -> Point {
    Point { size, value, spread: (value, value) }
}

/// Draws the currents of all contacts over the voltage that is swept.
fn curve(device: &Device, outcome: &Outcome) -> Option<Picture> {
    let swept = device.sweep.as_ref()?.contact;
    let first = *outcome.solutions.first()?.voltages.get(swept)?;
    let curve = |(place, contact): (usize, &weft_dd::Contact)| {
        let points = outcome.solutions.iter().filter_map(|solution| {
            let from = (solution.voltages.get(swept)? - first).abs();
            let current = solution.currents.get(place)?.abs();
            (current > 0.0).then(|| point((from * 1000.0).round() as usize, current))
        });
        Curve::new(contact.name.as_str(), place, points.collect())
    };
    let chart = Chart {
        title: format!("DD: currents, {} from {} V on", device.contacts[swept].name, plain(first)),
        unit: "size of the current, A per cm of depth".into(),
        sizes: "distance from the first voltage, V",
        size: |mv| plain(mv as f64 / 1000.0),
        spacing: Spacing::Even,
        number: &|value| format!("{value:.0e}"),
        by_powers: true,
        curves: device.contacts.iter().enumerate().map(curve).collect(),
    };
    chart.picture()
}

/// Draws the changes of the three equations in all iterations.
fn convergence(outcome: &Outcome) -> Option<Picture> {
    let curve = |equation: Equation| {
        let place = equation as usize;
        let points = outcome.steps.iter().enumerate().filter_map(|(at, step)| {
            let change = step.changes[place];
            (change > 0.0).then(|| point(at + 1, change))
        });
        Curve { radius: 0.0, ..Curve::new(equation.name(), place, points.collect()) }
    };
    let chart = Chart {
        title: format!("DD: convergence of {} solutions", outcome.solutions.len()),
        unit: "largest change in each iteration, V".into(),
        sizes: "iteration, over all voltages",
        size: |iteration| iteration.to_string(),
        spacing: Spacing::Even,
        number: &|value| format!("{value:.0e}"),
        by_powers: true,
        curves: Equation::ALL.into_iter().map(curve).collect(),
    };
    chart.picture()
}

/// Draws the work of each row.
fn rows(outcome: &Outcome) -> Option<Picture> {
    let points = outcome.rows.iter().enumerate().map(|(row, cost)| point(row, cost.work as f64));
    let curve = Curve { radius: 0.0, ..Curve::new("work", 0, points.collect()) };
    let chart = Chart {
        title: format!("DD: cost of {} rows", outcome.rows.len()),
        unit: "exponentials, and points of linear equations".into(),
        sizes: "row",
        size: |row| row.to_string(),
        spacing: Spacing::Even,
        number: &short,
        by_powers: false,
        curves: vec![curve],
    };
    chart.picture()
}
