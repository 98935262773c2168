//! The sequential program against the definition of its factors.
#![allow(non_snake_case)]

use weft_apps::{Matrix, Stopped};
use weft_qr::{
    report, sequential, write_diagonal, write_summary, Candidate, Columns, Outcome, Params,
    ParamsError, Step,
};

fn factor(matrix: &Matrix) -> Outcome {
    sequential(&Params { matrix: matrix.clone() }, &|_: Step| Ok(())).unwrap()
}

/// Asserts that the factors multiply to the matrix, that Q is orthogonal, and that the diagonal
/// does not increase.
fn check(matrix: &Matrix, outcome: &Outcome) {
    let (rows, cols) = (matrix.rows, matrix.cols);
    let what = format!("{rows} x {cols}");
    let error = outcome.factors.error(matrix);
    assert!(error < 1e-15 * (10 + rows.max(cols)) as f64, "{what}: {error:e}");
    let diagonal = outcome.factors.diagonal();
    assert_eq!(diagonal.len(), rows.min(cols));
    for pair in diagonal.windows(2) {
        assert!(pair[1].abs() <= pair[0].abs() * (1.0 + 1e-13), "{what}: {pair:?}");
    }
    for i in 0..rows.min(5) {
        let mut unit = vec![0.0; rows];
        unit[i] = 1.0;
        outcome.factors.multiply_q(&mut unit);
        let norm: f64 = unit.iter().map(|x| x * x).sum();
        assert!((norm - 1.0).abs() < 1e-13, "{what}: {norm}");
        outcome.factors.multiply_transposed_q(&mut unit);
        assert!((unit[i] - 1.0).abs() < 1e-13);
    }
    let mut order = outcome.factors.order().to_vec();
    order.sort_unstable();
    assert!(order.into_iter().eq(0..cols));
}

#[test]
fn sequential__factors_of_every_shape() {
    for (rows, cols) in [(1, 1), (1, 7), (7, 1), (2, 2), (30, 30), (40, 17), (17, 40), (128, 128)] {
        let matrix = Matrix::random(rows, cols, (rows * 100 + cols) as u64);
        let outcome = factor(&matrix);
        check(&matrix, &outcome);
        assert_eq!(outcome.factors.rank(), rows.min(cols));
    }
}

#[test]
fn sequential__finds_the_rank_and_takes_zeros() {
    let mut matrix = Matrix::random(20, 12, 5);
    for j in 4..12 {
        let sum: Vec<f64> = (0..20).map(|i| matrix.at(i, j % 4) + matrix.at(i, 0)).collect();
        matrix.col_mut(j).copy_from_slice(&sum);
    }
    let outcome = factor(&matrix);
    check(&matrix, &outcome);
    assert_eq!(outcome.factors.rank(), 4);
    let zero = Matrix::zero(4, 3);
    let outcome = factor(&zero);
    check(&zero, &outcome);
    assert_eq!(outcome.factors.rank(), 0);
    assert_eq!(outcome.factors.order(), [0, 1, 2]);
}

#[test]
fn sequential__values_at_the_ends_of_the_range() {
    for factor_of in [1e300, 1e-300, f64::MIN_POSITIVE / 8.0] {
        let mut matrix = Matrix::random(12, 12, 9);
        matrix.values.iter_mut().for_each(|value| *value *= factor_of);
        let outcome = factor(&matrix);
        let diagonal = outcome.factors.diagonal();
        assert!(diagonal.iter().all(|value| value.is_finite()));
        let first =
            matrix.values.chunks(12).map(|c| Matrix { rows: 12, cols: 1, values: c.to_vec() });
        let norm = first.map(|c| c.frobenius()).fold(0.0, f64::max);
        assert!((diagonal[0].abs() / norm - 1.0).abs() < 1e-6, "{factor_of}");
    }
}

#[test]
fn columns__every_division_gives_the_bits_of_one_owner() {
    let matrix = Matrix::random(33, 29, 2);
    let expected = factor(&matrix);
    for size in [2, 3, 5, 29, 40] {
        let mut owners: Vec<Columns> =
            (0..size).map(|rank| Columns::new(&matrix, rank, size)).collect();
        for step in 0..owners[0].steps() {
            let candidates = owners.iter().rev().filter_map(|owner| owner.candidate());
            let pivot = candidates.reduce(Candidate::better).unwrap();
            let reflector = owners[pivot.column % size].reflect(pivot.column, step);
            owners.iter_mut().for_each(|owner| _ = owner.apply(&reflector));
        }
        let digest = owners.iter().fold(0u64, |sum, owner| sum.wrapping_add(owner.digest()));
        let all = owners.into_iter().flat_map(Columns::into_columns).collect();
        assert_eq!(Columns::factors(&matrix, all), expected.factors);
        assert_eq!(digest, expected.checksum);
    }
}

#[test]
fn better__equal_norms_go_to_the_lowest_column() {
    let of = |norm, column| Candidate { norm, column };
    assert_eq!(of(1.0, 3).better(of(1.0, 2)), of(1.0, 2));
    assert_eq!(of(1.0, 2).better(of(1.0, 3)), of(1.0, 2));
    assert_eq!(of(1.0, 2).better(of(2.0, 3)), of(2.0, 3));
}

#[test]
fn sequential__stops_when_its_caller_says_so() {
    let params = Params { matrix: Matrix::random(9, 9, 1) };
    let stop = |step: Step| if step.steps == 4 { Err(Stopped) } else { Ok(()) };
    assert_eq!(sequential(&params, &stop).unwrap_err(), Stopped);
}

#[test]
fn check__names_the_value() {
    let mut matrix = Matrix::random(3, 4, 1);
    matrix.set(1, 2, f64::NAN);
    let error = Params { matrix: matrix.clone() }.check().unwrap_err();
    assert_eq!(error, ParamsError::NotFinite { row: 1, col: 2 });
    assert!(error.to_string().contains("row 2, column 3"));
    matrix.values.pop();
    let shape = ParamsError::Shape { rows: 3, cols: 4, values: 11 };
    assert_eq!(Params { matrix }.check(), Err(shape));
    assert_eq!(Params { matrix: Matrix::zero(0, 4) }.check(), Err(ParamsError::Empty));
}

#[test]
fn write__a_person_can_read_it() {
    let matrix = Matrix::random(6, 4, 3);
    let outcome = factor(&matrix);
    let text = report(&outcome, Some(outcome.factors.error(&matrix)));
    assert!(text.lines().count() <= 24 && text.lines().all(|l| l.len() <= 80));
    assert!(text.contains("6 x 4") && text.contains("|AP - QR|"));
    let mut csv = Vec::new();
    write_diagonal(&mut csv, &outcome).unwrap();
    assert_eq!(String::from_utf8(csv).unwrap().lines().count(), 5);
    let mut summary = Vec::new();
    write_summary(&mut summary, &outcome).unwrap();
    assert!(String::from_utf8(summary).unwrap().contains("\nrank,4\n"));
    let r = outcome.factors.r();
    assert!((0..4).all(|j| (j + 1..4).all(|i| r.at(i, j) == 0.0)));
}
