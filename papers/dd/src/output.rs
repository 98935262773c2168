//! Results for people and for other programs.

use crate::device::Device;
use crate::{Equation, Outcome};
use std::io::{self, Write};

/// Micrometres in a centimetre.
const UM: f64 = 1e4;

/// Returns a summary for people, one screen, lines ended by `\n`.
pub fn report(device: &Device, outcome: &Outcome) -> String {
    let o = outcome;
    let (rows, cols) = (device.rows(), device.cols());
    let seconds = o.elapsed.as_secs_f64();
    let iterations: u64 = o.solutions.iter().map(|solution| solution.iterations).sum();
    let sweeps: [u64; 3] =
        [0, 1, 2].map(|at| o.solutions.iter().map(|solution| solution.sweeps[at]).sum());
    let points = sweeps.iter().sum::<u64>() as f64 * (rows * cols) as f64;
    let end = match o.end().stuck() {
        None => "all converged".to_string(),
        Some(stuck) => format!(
            "{}: the {} stay at row {}, column {} in layer {} (change {:.1e} V)",
            o.end().name(),
            match stuck.equation {
                Equation::Potential => "potentials",
                _ => stuck.equation.name(),
            },
            stuck.row,
            stuck.col,
            stuck.layer,
            stuck.change,
        ),
    };
    let mut text = format!(
        "DD, {rows} rows x {cols} columns, {} rank{}\n\
         solutions        {} ({end})\n\
         iterations       {iterations}; sweeps: potential {}, electrons {}, holes {}\n",
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        o.solutions.len(),
        sweeps[0],
        sweeps[1],
        sweeps[2],
    );
    if let Some(last) = o.solutions.last() {
        for (at, contact) in device.contacts.iter().enumerate() {
            let Some((volts, amps)) = last.voltages.get(at).zip(last.currents.get(at)) else {
                continue;
            };
            text += &format!("{:16} {volts:.4} V, {amps:.6e} A/cm\n", shortened(&contact.name));
        }
    }
    let (most, mean) = cost_of_rows(o);
    text += &format!(
        "cost of rows     the most is {:.1} x the mean; of ranks {:.2} x, {} rows moved\n\
         time             {seconds:.3} s, {:.1} million points/s\n\
         checksum         {:016x}\n",
        most / mean.max(1e-300),
        o.imbalance,
        o.moved,
        points / seconds.max(1e-9) / 1e6,
        o.checksum,
    );
    text
}

fn shortened(name: &str) -> String {
    name.chars().take(16).collect()
}

/// Returns the largest work of a row and the mean.
fn cost_of_rows(outcome: &Outcome) -> (f64, f64) {
    let work = outcome.rows.iter().map(|row| row.work as f64);
    (work.clone().fold(0.0, f64::max), work.sum::<f64>() / outcome.rows.len().max(1) as f64)
}

/// Writes a line of each solution: the voltages of the contacts and the currents into them.
///
/// # Errors
/// The writer failed. It is not buffered here.
pub fn write_curve(to: &mut dyn Write, device: &Device, outcome: &Outcome) -> io::Result<()> {
    let names = device.contacts.iter().map(|contact| &contact.name);
    let heads = names.clone().map(|name| format!("{name}_V"));
    let heads: Vec<String> = heads.chain(names.map(|name| format!("{name}_A_per_cm"))).collect();
    writeln!(to, "{},iterations,sweeps,end", heads.join(","))?;
    for solution in &outcome.solutions {
        let figures = solution.voltages.iter().chain(&solution.currents);
        let figures: Vec<String> = figures.map(|figure| format!("{figure:e}")).collect();
        let sweeps: u64 = solution.sweeps.iter().sum();
        let (iterations, end) = (solution.iterations, solution.end.name());
        writeln!(to, "{},{iterations},{sweeps},{end}", figures.join(","))?;
    }
    Ok(())
}

/// Writes a line of each iteration: its sweeps and its largest changes.
///
/// # Errors
/// The writer failed.
pub fn write_steps(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let of = |what: &str| Equation::ALL.map(|equation| format!("{what}_{}", equation.name()));
    writeln!(to, "solution,iteration,{},{}", of("sweeps").join(","), of("change").join(","))?;
    for step in &outcome.steps {
        let ([a, b, c], [x, y, z]) = (step.sweeps, step.changes);
        let (solution, iteration) = (step.solution, step.iteration);
        writeln!(to, "{solution},{iteration},{a},{b},{c},{x:e},{y:e},{z:e}")?;
    }
    Ok(())
}

/// Writes a line of each row: its place in um, its layer and its cost.
///
/// # Errors
/// The writer failed.
pub fn write_rows(to: &mut dyn Write, device: &Device, outcome: &Outcome) -> io::Result<()> {
    writeln!(to, "row,y_um,layer,work,seconds")?;
    for (row, cost) in outcome.rows.iter().enumerate() {
        let layer = device.layer(row).map_or("", |layer| &layer.name);
        let y = device.y[row] * UM;
        writeln!(to, "{row},{y:e},{layer},{},{:e}", cost.work, cost.seconds)?;
    }
    Ok(())
}

/// Writes the figures of the run as lines `name,value`; the names are the same in all releases.
///
/// # Errors
/// The writer failed.
pub fn write_summary(to: &mut dyn Write, device: &Device, outcome: &Outcome) -> io::Result<()> {
    let last = outcome.steps.last();
    writeln!(to, "name,value")?;
    writeln!(to, "rows,{}\ncolumns,{}", device.rows(), device.cols())?;
    writeln!(to, "solutions,{}", outcome.solutions.len())?;
    writeln!(to, "iterations,{}", outcome.steps.len())?;
    writeln!(to, "end,{}", outcome.end().name())?;
    writeln!(to, "change,{:e}", last.map_or(0.0, crate::Step::change))?;
    writeln!(to, "moved,{}", outcome.moved)?;
    writeln!(to, "checksum,{:016x}", outcome.checksum)
}

/// Writes the fields of the last solution as a file that ParaView opens: VTK's XML of a rectilinear
/// grid, places in um. The rows of the device go down, those of the file up.
///
/// # Errors
/// The writer failed.
pub fn write_vtk(to: &mut dyn Write, device: &Device, outcome: &Outcome) -> io::Result<()> {
    let Some(maps) = &outcome.maps else { return Ok(()) };
    let (rows, cols) = (device.rows(), device.cols());
    let whole = format!("0 {} 0 {} 0 0", cols - 1, rows - 1);
    writeln!(to, "<?xml version=\"1.0\"?>")?;
    writeln!(to, "<VTKFile type=\"RectilinearGrid\" version=\"0.1\" byte_order=\"LittleEndian\">")?;
    writeln!(to, "<RectilinearGrid WholeExtent=\"{whole}\">\n<Piece Extent=\"{whole}\">")?;
    writeln!(to, "<PointData Scalars=\"potential_V\">")?;
    let doping: Vec<f64> =
        (0..rows).flat_map(|row| (0..cols).map(move |col| device.doping(row, col))).collect();
    for (name, values) in [
        ("potential_V", &maps.potential),
        ("electron_quasi_Fermi_V", &maps.quasi_fermi[0]),
        ("hole_quasi_Fermi_V", &maps.quasi_fermi[1]),
        ("electrons_per_cm3", &maps.densities[0]),
        ("holes_per_cm3", &maps.densities[1]),
        ("doping_per_cm3", &doping),
    ] {
        array(to, name, values.chunks_exact(cols).rev().flatten().copied())?;
    }
    writeln!(to, "</PointData>\n<Coordinates>")?;
    array(to, "x_um", device.x.iter().map(|x| x * UM))?;
    array(to, "y_um", device.y.iter().rev().map(|y| -y * UM))?;
    array(to, "z_um", [0.0].into_iter())?;
    writeln!(to, "</Coordinates>\n</Piece>\n</RectilinearGrid>\n</VTKFile>")
}

fn array(to: &mut dyn Write, name: &str, values: impl Iterator<Item = f64>) -> io::Result<()> {
    writeln!(to, "<DataArray type=\"Float64\" Name=\"{name}\" format=\"ascii\">")?;
    for value in values {
        writeln!(to, "{value:e}")?;
    }
    writeln!(to, "</DataArray>")
}

/// Returns values of the nodes on pixels of equal size, row by row from the top, and the number of
/// pixels in a row; the longer side of the device has `most` pixels.
pub fn pixels(device: &Device, values: &[f64], most: usize) -> (usize, Vec<f64>) {
    let length = |places: &[f64]| places.last().copied().unwrap_or(0.0);
    let (width, height) = (length(&device.x), length(&device.y));
    let count = |length: f64| {
        let share = length / width.max(height).max(f64::MIN_POSITIVE);
        ((share * most as f64).round() as usize).max(2)
    };
    let (across, down) = (count(width), count(height));
    let (xs, ys) = (weights(&device.x, across), weights(&device.y, down));
    let at = |row: usize, col: usize| values.get(row * device.cols() + col).copied();
    let mut all = Vec::with_capacity(across * down);
    for (row, v) in &ys {
        for (col, u) in &xs {
            let line = |row| Some(at(row, *col)? * (1.0 - u) + at(row, col + 1)? * u);
            let pixel = line(*row).zip(line(row + 1)).map(|(a, b)| a * (1.0 - v) + b * v);
            all.push(pixel.unwrap_or(f64::NAN));
        }
    }
    (across, all)
}

/// Returns the line of the grid before the middle of each pixel, and the share of the way to the
/// next one.
fn weights(places: &[f64], pixels: usize) -> Vec<(usize, f64)> {
    let length = places.last().copied().unwrap_or(0.0);
    let of_pixel = |pixel: usize| {
        let place = length * (pixel as f64 + 0.5) / pixels as f64;
        let next = places.partition_point(|line| *line <= place).clamp(1, places.len() - 1);
        let (from, to) = (places[next - 1], places[next]);
        (next - 1, (place - from) / (to - from))
    };
    (0..pixels).map(of_pixel).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn pixels__a_plane_stays_a_plane_on_an_uneven_grid() {
        let text = "material m permittivity 10 gap 1 affinity 4 states 1e19 1e19 mobility 1 1 \
                    lifetime 1 1\ncolumns 3 over 1 grade 2\nlayer l m doping 0 thickness 2 rows 5 \
                    grade 0.7\ncontact c top\n";
        let device = Device::read(&mut text.as_bytes()).unwrap();
        let plane = |x: f64, y: f64| 3.0 * x - y;
        let nodes = device.y.iter().flat_map(|y| device.x.iter().map(|x| plane(*x, *y)));
        let (columns, pixels) = pixels(&device, &nodes.collect::<Vec<f64>>(), 8);
        assert_eq!((columns, pixels.len()), (4, 32));
        for (at, pixel) in pixels.iter().enumerate() {
            let (x, y) = ((at % 4) as f64 + 0.5, (at / 4) as f64 + 0.5);
            assert!((pixel - plane(x * 0.25e-4, y * 0.25e-4)).abs() < 1e-15, "{at}: {pixel}");
        }
    }
}
