//! The sequential program against Korf's results, and its parts.
#![allow(non_snake_case)]

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Mutex;
use weft_apps::{SplitMix, Stopped};
use weft_puzzle::{
    korf, korf_count, read_positions, report, search, sequential, write_iterations, write_solution,
    Board, Iteration, Job, Limits, Move, Outcome, Params, Step, Tally,
};

fn go_on(_: Step) -> Result<(), Stopped> {
    Ok(())
}

fn solve(start: Board, whole: bool) -> Outcome {
    sequential(&Params { start, whole }, &go_on).unwrap()
}

/// Moves the blank at random.
fn shuffled(steps: usize, seed: u64) -> Board {
    let mut random = SplitMix::new(seed);
    let mut board = Board::GOAL;
    for _ in 0..steps {
        board = board.after(Move::ALL[random.below(4) as usize]).unwrap_or(board);
    }
    board
}

fn arrives(outcome: &Outcome) -> bool {
    let end = outcome.moves.iter().try_fold(outcome.start, |board, step| board.after(*step));
    end == Some(Board::GOAL)
}

#[test]
fn korf__all_hundred_are_known() {
    assert_eq!(korf_count(), 100);
    assert!(korf(0).is_none() && korf(101).is_none());
    let all: Vec<_> = (1..=100).map(|number| korf(number).unwrap()).collect();
    assert!(all.iter().all(|known| known.start.distance() == known.distance));
    assert!(all.iter().all(|known| known.length >= known.distance));
    assert!(all.iter().all(|known| (known.length - known.distance) % 2 == 0));
    assert_eq!(all.iter().map(|known| u64::from(known.length)).sum::<u64>(), 5305);
    assert_eq!(Params::default().start, all[79].start);
}

#[test]
fn sequential__lengths_and_nodes_of_easy_positions() {
    let easy = [(79, 42, 540_860), (12, 45, 546_344), (42, 42, 877_823), (55, 41, 927_212)];
    for (number, length, nodes) in easy.into_iter().chain([(97, 44, 1_002_927)]) {
        let known = korf(number).unwrap();
        let outcome = solve(known.start, false);
        assert_eq!((outcome.length(), outcome.nodes()), (length, nodes), "position {number}");
        assert_eq!((usize::from(known.length), known.nodes), (length, nodes));
        assert!(arrives(&outcome));
    }
}

/// All of Korf's positions, those with the most nodes first, on all cores.
#[test]
#[ignore = "36 billion positions, minutes; the suite large runs it"]
fn sequential__lengths_of_all_hundred() {
    let mut all: Vec<_> = (1..=100).map(|number| korf(number).unwrap()).collect();
    all.sort_by_key(|known| known.nodes);
    let left = Mutex::new(all);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || left.lock().unwrap().pop();
                while let Some(known) = next() {
                    let outcome = solve(known.start, false);
                    assert_eq!(outcome.length(), usize::from(known.length), "{}", known.start);
                    assert!(arrives(&outcome));
                }
            });
        }
    });
}

/// Lengths by breadth-first search from the solved position, without any bound.
#[test]
fn sequential__lengths_are_those_of_breadth_first_search() {
    let mut seen = HashSet::from([Board::GOAL]);
    let mut layer = vec![Board::GOAL];
    for length in 0..=14 {
        for board in layer.iter().step_by(1 + layer.len() / 40) {
            let outcome = solve(*board, false);
            assert_eq!(outcome.length(), length, "{board}");
            assert!(arrives(&outcome));
        }
        let after = layer.iter().flat_map(|board| Move::ALL.map(|step| board.after(step)));
        layer = after.flatten().filter(|board| seen.insert(*board)).collect();
    }
}

/// Searches an iteration over a queue of jobs of 32 bytes, each expanded alone.
fn by_jobs(start: Board, threshold: u8, cut: u8) -> Tally {
    let mut tally = Tally::default();
    let mut queue = vec![Job::start(start).to_bytes()];
    while let Some(bytes) = queue.pop() {
        let job = Job::from_bytes(&bytes).unwrap();
        if job.is_solved() {
            tally.solve(job.path());
        } else if job.moves < cut {
            let expansion = job.expand(threshold, |child| queue.push(child.to_bytes()));
            tally.add(expansion);
        } else {
            let limits = Limits { threshold, whole: true };
            tally.merge(search(&job, limits, &mut |_| Ok(())).unwrap());
        }
    }
    tally
}

#[test]
fn jobs__every_division_has_the_sums_of_the_whole() {
    for seed in 0..6 {
        let start = shuffled(60, seed);
        let whole = solve(start, true);
        for cut in [1, 5, 80] {
            let mut threshold = start.distance();
            let mut iterations = Vec::new();
            let first = loop {
                let tally = by_jobs(start, threshold, cut);
                let (nodes, solutions) = (tally.nodes, tally.solutions);
                iterations.push(Iteration { threshold, nodes, solutions });
                match tally.first {
                    Some(first) => break first,
                    None => threshold = tally.beyond.unwrap(),
                }
            };
            assert_eq!((first, iterations), (whole.moves.clone(), whole.iterations.clone()));
        }
        let early = solve(start, false);
        assert!(early.agrees_with(&whole) && early.nodes() <= whole.nodes());
        assert_eq!(early.moves, whole.moves);
    }
}

#[test]
fn from_bytes__refuses_contradictions() {
    let bytes = Job::start(korf(1).unwrap().start).to_bytes();
    assert_eq!(Job::from_bytes(&bytes), Some(Job::start(korf(1).unwrap().start)));
    for (at, value) in [(0, 0xff), (28, 81), (29, 1), (30, 16), (30, 3), (31, 5)] {
        let mut bad = bytes;
        bad[at] = value;
        assert_eq!(Job::from_bytes(&bad), None, "byte {at}");
    }
}

#[test]
fn sequential__the_solved_position_takes_no_move() {
    let outcome = solve(Board::GOAL, true);
    assert_eq!((outcome.length(), outcome.nodes()), (0, 1));
    assert_eq!(outcome.iterations, [Iteration { threshold: 0, nodes: 0, solutions: 1 }]);
}

#[test]
fn sequential__stops_when_its_caller_says_so() {
    let calls = Cell::new(0);
    let stop = |step: Step| {
        calls.set(calls.get() + 1);
        if step.nodes > 2_000_000 {
            Err(Stopped)
        } else {
            Ok(())
        }
    };
    assert_eq!(sequential(&Params::default(), &stop), Err(Stopped));
    assert!(calls.get() > 2);
}

#[test]
fn read_positions__lines_and_their_faults() {
    let read = |text: &str| read_positions(&mut text.as_bytes()).map_err(|e| e.to_string());
    let good = "# two\n0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n\n\
                1,0,2,3,4,5,6,7,8,9,10,11,12,13,14,15 | 1 1\n";
    let boards = read(good).unwrap();
    assert_eq!((boards.len(), boards[0]), (2, Board::GOAL));
    assert_eq!(solve(boards[1], false).moves, [Move::Left]);
    let faults = [
        ("", "line 1: no position"),
        ("\n1 2 3", "line 2: 3 tiles, but a position has 16"),
        ("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 x", "line 1: `x` is not a tile from 0 to 15"),
        ("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 16", "line 1: tile 16 is above 15"),
        ("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 14", "line 1: tile 14 occurs twice"),
        (
            "0 2 1 3 4 5 6 7 8 9 10 11 12 13 14 15",
            "line 1: the position cannot be solved: two tiles are exchanged",
        ),
    ];
    for (text, expected) in faults {
        assert_eq!(read(text).unwrap_err(), expected);
    }
}

#[test]
fn write__a_person_can_read_it() {
    let outcome = solve(shuffled(200, 11), true);
    let text = report(&outcome);
    assert!(text.lines().count() <= 24 && text.lines().all(|l| l.len() <= 80), "{text}");
    assert!(text.contains("solutions") && text.contains("moves of the blank"));
    let mut csv = Vec::new();
    write_solution(&mut csv, &outcome).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert_eq!(csv.lines().count(), outcome.length() + 2);
    assert!(csv.lines().last().unwrap().ends_with(&Board::GOAL.to_string()));
    let mut iterations = Vec::new();
    write_iterations(&mut iterations, &outcome).unwrap();
    let iterations = String::from_utf8(iterations).unwrap();
    assert_eq!(iterations.lines().count(), outcome.iterations.len() + 1);
}
