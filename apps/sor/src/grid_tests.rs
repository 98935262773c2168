#![allow(non_snake_case)]

use super::*;

/// Runs the textbook program on a plain matrix, for comparison.
fn textbook(rows: usize, cols: usize, omega: f64, iterations: usize) -> (Vec<f64>, f64) {
    let mut u = vec![0.0; rows * cols];
    for (col, value) in u[..cols].iter_mut().enumerate() {
        *value = heated_edge(col, cols);
    }
    let mut change = 0.0f64;
    for _ in 0..iterations {
        change = 0.0;
        for colour in 0..2 {
            for i in 1..rows - 1 {
                for j in (1..cols - 1).filter(|j| (i + j) % 2 == colour) {
                    let at = i * cols + j;
                    let around = [u[at - cols], u[at + cols], u[at - 1], u[at + 1]];
                    let new = relaxed(u[at], around, omega);
                    change = change.max((new - u[at]).abs());
                    u[at] = new;
                }
            }
        }
    }
    (u, change)
}

/// Runs the blocks of `size` ranks by hand: relaxes, then copies border rows between neighbours.
fn blocks(rows: usize, cols: usize, size: usize, iterations: usize) -> (Vec<f64>, f64, u64) {
    let mut blocks: Vec<Block> =
        (0..size).map(|rank| Block::new(owned_rows(rank, size, rows), cols)).collect();
    let used = blocks.iter().filter(|b| b.owned() > 0).count();
    let mut change = 0.0f64;
    for _ in 0..iterations {
        change = 0.0;
        for colour in [Colour::Red, Colour::Black] {
            for block in &mut blocks {
                change = change.max(block.relax(colour, 1..block.owned() + 1, 1.7));
            }
            for upper in 0..used.saturating_sub(1) {
                let down = blocks[upper].border(colour, blocks[upper].owned());
                let up = blocks[upper + 1].border(colour, 1);
                blocks[upper + 1].set_halo(colour, Side::Above, &down);
                blocks[upper].set_halo(colour, Side::Below, &up);
            }
        }
    }
    let mut values = vec![0.0; rows * cols];
    for (col, value) in values[..cols].iter_mut().enumerate() {
        *value = heated_edge(col, cols);
    }
    for block in &blocks {
        for local in 1..=block.owned() {
            block.copy_row(local, &mut values[(block.first + local - 1) * cols..][..cols]);
        }
    }
    let digest = blocks.iter().fold(digest_edges(rows, cols), |d, b| d.wrapping_add(b.digest()));
    (values, change, digest)
}

#[test]
fn owned_rows__cover_the_inside_once_and_evenly() {
    for rows in 0..40 {
        for size in 1..24 {
            let ranges: Vec<_> = (0..size).map(|r| owned_rows(r, size, rows)).collect();
            let listed: Vec<usize> = ranges.iter().cloned().flatten().collect();
            assert_eq!(listed, (1..rows.saturating_sub(1).max(1)).collect::<Vec<_>>());
            let longest = ranges.iter().map(Range::len).max().unwrap();
            let shortest = ranges.iter().map(Range::len).min().unwrap();
            assert!(longest - shortest <= 1);
            assert!(ranges.windows(2).all(|w| w[0].len() >= w[1].len()));
        }
    }
}

#[test]
fn relax__same_bits_as_the_textbook_for_all_small_shapes() {
    for rows in 3..9 {
        for cols in 3..24 {
            let (expected, change) = textbook(rows, cols, 1.7, 5);
            let (values, got_change, _) = blocks(rows, cols, 1, 5);
            assert_eq!(values, expected, "{rows} x {cols}");
            assert_eq!(got_change.to_bits(), change.to_bits(), "{rows} x {cols}");
        }
    }
}

#[test]
fn relax__same_bits_and_digest_for_every_number_of_blocks() {
    for (rows, cols) in [(3, 5), (8, 17), (13, 40), (14, 33)] {
        let alone = blocks(rows, cols, 1, 7);
        for size in 2..rows + 3 {
            assert_eq!(blocks(rows, cols, size, 7), alone, "{rows} x {cols} on {size}");
        }
    }
}

#[test]
fn digest__sees_a_swap_and_a_single_bit() {
    let row = [1.0, 2.0, 3.0];
    let whole = digest_row(4, &row);
    assert_ne!(whole, digest_row(5, &row));
    assert_ne!(whole, digest_row(4, &[2.0, 1.0, 3.0]));
    assert_ne!(whole, digest_row(4, &[1.0, 2.0, f64::from_bits(3.0f64.to_bits() ^ 1)]));
    assert_ne!(digest_row(4, &[0.0]), digest_row(4, &[-0.0]));
}

#[test]
fn heated_edge__symmetric_with_cold_corners() {
    for cols in 3..20 {
        assert_eq!(heated_edge(0, cols), 0.0);
        for col in 0..cols {
            assert_eq!(heated_edge(col, cols), heated_edge(cols - 1 - col, cols));
        }
    }
    assert_eq!(heated_edge(4, 9), HEAT);
}
