//! The sequential program against mathematics, and the checks of parameters.
#![allow(non_snake_case)]

use std::cell::RefCell;
use weft_sor::{parse_size, report, sequential, Params, ParamsError, Step};

fn quiet(_: Step) {}

/// Returns the exact solution of the discrete problem: `sin(pi j / (n-1))` along the heated edge,
/// falling off as `sinh(mu (m-1-i))` with `cosh(mu) = 2 - cos(pi / (n-1))`.
fn exact(rows: usize, cols: usize, i: usize, j: usize) -> f64 {
    let angle = std::f64::consts::PI / (cols - 1) as f64;
    let mu = (2.0 - angle.cos()).acosh();
    let depth = (mu * (rows - 1 - i) as f64).sinh() / (mu * (rows - 1) as f64).sinh();
    100.0 * (angle * j as f64).sin() * depth
}

#[test]
fn sequential__reaches_the_closed_form_solution() {
    for (rows, cols) in [(3, 3), (40, 40), (25, 60), (61, 20)] {
        let params = Params { rows, cols, tolerance: 1e-11, keep_grid: true, ..Params::default() };
        let outcome = sequential(&params, &quiet);
        assert!(outcome.converged);
        let grid = outcome.grid.unwrap();
        for (at, value) in grid.values.iter().enumerate() {
            let expected = exact(rows, cols, at / cols, at % cols);
            assert!((value - expected).abs() < 1e-7, "{at}: {value} {expected}");
        }
    }
}

#[test]
fn optimal_omega__needs_the_fewest_iterations() {
    let iterations = |omega: Option<f64>| {
        let params = Params { rows: 50, cols: 50, tolerance: 1e-6, omega, ..Params::default() };
        sequential(&params, &quiet).iterations
    };
    let best = iterations(None);
    assert!(best < iterations(Some(1.0)) / 10);
    assert!(best < iterations(Some(1.7)));
    assert!(best < iterations(Some(1.98)));
}

#[test]
fn sequential__tolerance_zero_does_the_iterations_asked_for() {
    let params =
        Params { rows: 5, cols: 4, tolerance: 0.0, max_iterations: 500, ..Params::default() };
    let outcome = sequential(&params, &quiet);
    assert_eq!((outcome.iterations, outcome.converged), (500, false));
    assert!(outcome.grid.is_none());
    let none = sequential(&Params { max_iterations: 0, ..params }, &quiet);
    assert_eq!((none.iterations, none.residual), (0, 0.0));
    assert!(!none.agrees_with(&outcome));
}

#[test]
fn sequential__reports_each_iteration() {
    let seen = RefCell::new(Vec::new());
    let params =
        Params { rows: 6, cols: 6, tolerance: 0.0, max_iterations: 3, ..Params::default() };
    let outcome = sequential(&params, &|step| seen.borrow_mut().push(step));
    let counts: Vec<_> = seen.borrow().iter().map(|s| (s.iterations, s.max_iterations)).collect();
    assert_eq!(counts, [(1, 3), (2, 3), (3, 3)]);
    assert_eq!(seen.borrow()[2].residual, outcome.residual);
}

#[test]
fn report__one_screen_with_the_essentials() {
    let params = Params { rows: 20, cols: 30, ..Params::default() };
    let outcome = sequential(&params, &quiet);
    let text = report(&outcome);
    assert!(text.lines().count() <= 24 && text.lines().all(|l| l.len() <= 80));
    assert!(text.contains("20 x 30") && text.contains("converged"));
    assert!(text.contains(&format!("{:016x}", outcome.checksum)));
}

#[test]
fn check__names_what_is_wrong() {
    let refused = |change: fn(&mut Params)| {
        let mut params = Params::default();
        change(&mut params);
        params.check().unwrap_err()
    };
    assert_eq!(Params::default().check(), Ok(()));
    assert_eq!(refused(|p| p.rows = 2), ParamsError::TooSmall { rows: 2, cols: 1536 });
    assert!(matches!(refused(|p| p.cols = usize::MAX), ParamsError::TooLarge { .. }));
    assert!(matches!(refused(|p| p.omega = Some(2.0)), ParamsError::Omega(_)));
    assert!(matches!(refused(|p| p.omega = Some(f64::NAN)), ParamsError::Omega(_)));
    assert!(matches!(refused(|p| p.tolerance = -1.0), ParamsError::Tolerance(_)));
    assert!(matches!(refused(|p| p.ns_per_cell = Some(f64::INFINITY)), ParamsError::Cost(_)));
}

#[test]
fn parse_size__squares_rectangles_and_nonsense() {
    assert_eq!(parse_size("1536"), Ok((1536, 1536)));
    assert_eq!(parse_size("12x34"), Ok((12, 34)));
    assert_eq!(parse_size("12 X 34"), Ok((12, 34)));
    for bad in ["", "x", "12x", "x3", "-1", "1x2x3", "1.5", "99999999999999999999999"] {
        assert_eq!(parse_size(bad), Err(ParamsError::Size(bad.to_string())), "{bad}");
    }
}
