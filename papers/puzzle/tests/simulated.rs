//! The parallel program on simulated clusters: the same solutions as the sequential one.
#![allow(non_snake_case)]

use weft_puzzle::{korf, run, sequential, Board, Division, Outcome, Params};
use weft_sim::{test_sim, SimConfig};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, division: Division) -> Vec<Outcome> {
    let sim = test_sim!("puzzle", config);
    sim.outcomes(
        params,
        move |net, params| async move { run(&net, &params, &division, &|_| {}).await },
    )
}

/// A position some moves from the solved one.
fn near(moves: usize) -> Board {
    let mut board = Board::GOAL;
    let mut state = 7u64;
    for _ in 0..moves {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let step = weft_puzzle::Move::ALL[(state >> 33) as usize % 4];
        board = board.after(step).unwrap_or(board);
    }
    board
}

#[test]
fn run__all_nodes_and_the_first_solution_of_a_whole_search_under_loss() {
    for (moves, ranks) in [(0, 2), (30, 1), (60, 3), (80, 5)] {
        let params = Params { start: near(moves), whole: true };
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for per_message in [4, 64] {
            let division = Division { per_message, depth: 80, ..Division::default() };
            let outcomes = simulate(&params, SimConfig::new(ranks, moves as u64).lossy(), division);
            assert_eq!(outcomes.len(), ranks as usize);
            assert!(outcomes.iter().all(|o| o.agrees_with(&expected)), "{moves} on {ranks}");
        }
    }
}

#[test]
fn run__lengths_of_the_easiest_of_korfs_positions_on_four_ranks() {
    for number in [79, 12] {
        let known = korf(number).unwrap();
        let params = Params { start: known.start, whole: false };
        let outcomes = simulate(&params, SimConfig::new(4, 1), Division::default());
        assert!(outcomes.iter().all(|o| o.length() == usize::from(known.length)), "{number}");
    }
}
