//! The sequential program against its closed form, and its inputs and results.
#![allow(non_snake_case)]

use std::cell::Cell;
use weft_apps::{owned, Stopped};
use weft_leq::{
    change, report, sequential, write_solution, write_summary, End, Params, ParamsError, Rows,
    Step, System, PANEL,
};

fn go_on(_: Step) -> Result<(), Stopped> {
    Ok(())
}

fn ones(n: usize) -> Params {
    Params { system: System::ones(n), ..Params::default() }
}

/// Runs the iteration for the equations of ones with one unknown in place of all, which are equal:
/// the same operations in the same order. Returns the iterations, the last unknown and the one
/// before it.
fn one_unknown(n: usize) -> (u64, f64, f64) {
    let (mut x, mut iterations) = (0.0f64, 0);
    loop {
        let side = (1..n).fold(1.0, |side, _| side - x);
        let new = side / n as f64;
        let change: f64 = (0..n).map(|_| (new - x).abs()).sum();
        iterations += 1;
        if change < 1e-3 {
            return (iterations, new, x);
        }
        x = new;
    }
}

/// Returns the iterations by the closed form: the changes of iteration t sum to ((n-1)/n)^(t-1).
fn closed_form(n: usize) -> u64 {
    let shrink = (n - 1) as f64 / n as f64;
    1 + (1e-3f64.ln() / shrink.ln()).ceil() as u64
}

#[test]
fn closed_form__a_thousand_equations_take_6906_iterations() {
    let (iterations, last, before) = one_unknown(1000);
    assert_eq!((iterations, closed_form(1000)), (6906, 6906));
    assert_eq!(format!("{last:.9e}"), "4.997507247e-4");
    assert_eq!(format!("{before:.9e}"), "5.007500254e-4");
}

#[test]
fn sequential__iterations_and_bits_of_the_closed_form() {
    for (n, iterations) in [(100, 689), (200, 1380), (400, 2761)] {
        let outcome = sequential(&ones(n), &go_on).unwrap();
        let (expected, last, _) = one_unknown(n);
        assert_eq!(
            (outcome.iterations, expected, closed_form(n)),
            (iterations, iterations, iterations)
        );
        assert_eq!(outcome.end, End::Converged);
        assert!(outcome.x.iter().all(|x| x.to_bits() == last.to_bits()));
    }
}

#[test]
fn sequential__the_equations_of_the_paper() {
    let outcome = sequential(&Params::default(), &go_on).unwrap();
    assert_eq!(outcome.iterations, 6906);
    assert_eq!(format!("{:.9e}", outcome.x[999]), "4.997507247e-4");
    assert_eq!(outcome.x[0].to_bits(), one_unknown(1000).1.to_bits());
}

#[test]
fn sequential__solves_random_equations_that_are_not_degenerate() {
    for n in [1, 2, 15, 16, 17, 90] {
        let system = System::random(n, 7);
        assert!(system.dominance() < 1.0);
        let outcome = sequential(&Params { system, tolerance: 1e-13, ..ones(1) }, &go_on).unwrap();
        assert_eq!(outcome.end, End::Converged);
        assert!(outcome.residual < 1e-9, "{n}: {}", outcome.residual);
    }
}

#[test]
fn sweep__has_the_bits_of_single_rows_however_they_are_divided() {
    let n = 53;
    let system = System::random(n, 3);
    let x: Vec<f64> = (0..n).map(|i| (i as f64 + 0.3).recip()).collect();
    let naive = |i: usize| {
        let others = (0..n).filter(|j| *j != i);
        others.fold(system.b[i], |side, j| side - system.a.at(i, j) * x[j]) / system.a.at(i, i)
    };
    let expected: Vec<f64> = (0..n).map(naive).collect();
    for size in [1, 2, 3, 7, 53, 60] {
        let mut new = Vec::new();
        for rank in 0..size {
            let rows = Rows::new(&system, owned(rank, size, n));
            let mut part = vec![0.0; rows.range().len()];
            for (at, piece) in part.chunks_mut(2 * PANEL).enumerate() {
                rows.sweep(&x, at * 2 * PANEL, piece);
            }
            new.extend(part);
        }
        assert_eq!(new, expected);
        assert!(change(&x, &new) > 0.0);
    }
}

#[test]
fn sequential__says_that_it_diverges_or_runs_out() {
    let mut params = ones(3);
    params.system.a.values = vec![1.0, 5.0, 5.0, 5.0, 1.0, 5.0, 5.0, 5.0, 1.0];
    let outcome = sequential(&params, &go_on).unwrap();
    assert_eq!(outcome.end, End::Diverged);
    assert!(report(&outcome).contains("diverged"));
    let few = Params { max_iterations: 4, ..ones(50) };
    let outcome = sequential(&few, &go_on).unwrap();
    assert_eq!((outcome.end, outcome.iterations), (End::Limit, 4));
}

#[test]
fn sequential__stops_when_its_caller_says_so() {
    let seen = Cell::new(0);
    let stop = |step: Step| {
        seen.set(step.iterations);
        if step.iterations == 5 {
            Err(Stopped)
        } else {
            Ok(())
        }
    };
    assert_eq!(sequential(&ones(20), &stop).unwrap_err(), Stopped);
    assert_eq!(seen.get(), 5);
}

#[test]
fn read__files_and_their_faults() {
    let a = "%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 4\n2 2 2\n1 2 1\n";
    let b = "%%MatrixMarket matrix array real general\n2 1\n9\n2\n";
    let mut system = System::read(&mut a.as_bytes(), &|_| Ok(())).unwrap();
    assert_eq!(system.b, [1.0, 1.0]);
    system.read_sides(&mut b.as_bytes()).unwrap();
    let outcome = sequential(&Params { system, tolerance: 1e-12, ..ones(1) }, &go_on).unwrap();
    assert_eq!(outcome.x, [2.0, 1.0]);
    let read = |a: &str, b: &str| {
        let few = |n| if n > 9 { Err(format!("{n} are too many")) } else { Ok(()) };
        let read = System::read(&mut a.as_bytes(), &few);
        read.and_then(|mut system| system.read_sides(&mut b.as_bytes())).unwrap_err().to_string()
    };
    assert_eq!(read(&a.replace("1 2 1", "1 x 1"), b), "line 5: `x` is not a column from 1 to 2");
    let wide = a.replace("2 2 3", "% a note\n2 3 3");
    assert_eq!(read(&wide, b), "line 3: 2 x 3 equations are not square");
    assert_eq!(read(&a.replace("2 2 3", "10 10 3"), b), "line 2: 10 are too many");
    let row = "%%MatrixMarket matrix array real general\n1 2\n9\n2\n";
    assert_eq!(read(a, row), "line 2: a right-hand side of 1 x 2 for 2 equations");
}

#[test]
fn check__names_the_equation() {
    let refused = |change: fn(&mut Params)| {
        let mut params = ones(3);
        change(&mut params);
        params.check().unwrap_err()
    };
    assert_eq!(refused(|p| p.system.a.set(1, 1, 0.0)), ParamsError::Diagonal(1));
    assert_eq!(refused(|p| p.system.a.set(2, 1, f64::NAN)), ParamsError::NotFinite(2));
    assert_eq!(refused(|p| p.system.b[1] = f64::INFINITY), ParamsError::NotFinite(1));
    assert_eq!(refused(|p| p.tolerance = -1.0), ParamsError::Tolerance(-1.0));
    assert_eq!(refused(|p| p.system = System::ones(0)), ParamsError::Empty);
    let short = refused(|p| p.system.b.truncate(1));
    assert!(short.to_string().contains("3 x 3 matrix with 1 right-hand sides"));
    assert!(refused(|p| p.system.a.set(1, 1, 0.0)).to_string().contains("equation 2"));
}

#[test]
fn write__a_person_can_read_it() {
    let outcome = sequential(&ones(3), &go_on).unwrap();
    let text = report(&outcome);
    assert!(text.lines().count() <= 24 && text.lines().all(|l| l.len() <= 80));
    assert!(text.contains("3 equations") && text.contains("converged"));
    let mut csv = Vec::new();
    write_solution(&mut csv, &outcome).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let last: f64 = csv.lines().last().unwrap().strip_prefix("3,").unwrap().parse().unwrap();
    assert_eq!(last.to_bits(), outcome.x[2].to_bits());
    let mut summary = Vec::new();
    write_summary(&mut summary, &outcome).unwrap();
    assert!(String::from_utf8(summary).unwrap().contains("\nend,converged\n"));
}
