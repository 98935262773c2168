//! The sequential program against an independent one, against the rules, and against published
//! numbers.
#![allow(non_snake_case)]

use std::cell::Cell;
use std::collections::HashMap;
use weft_apps::Stopped;
use weft_awari::{
    after_a_move, positions, positions_to, rank, read_positions, report, sequential, unrank,
    write_answer, write_histogram, Board, Database, Level, Outcome, Params, ParamsError, Step,
    Update,
};

fn solve(stones: u8) -> Outcome {
    sequential(&Params { stones, ..Params::default() }, &|_: Step| Ok(())).unwrap()
}

#[test]
fn positions__published_counts() {
    let exact = [(6, 12_376), (10, 352_716), (12, 1_352_078), (13, 2_496_144)];
    for (stones, count) in exact {
        assert_eq!(positions(stones), count);
    }
    assert_eq!(positions_to(13), 5_200_300);
    assert_eq!((0..=13).map(positions).sum::<u64>(), positions_to(13));
    assert_eq!(after_a_move(13), 2_464_320);
    // All positions of the solved game: a move cannot leave 47 stones, and the start is one more.
    let all: u64 = (0..=48).filter(|stones| *stones != 47).map(after_a_move).sum();
    assert_eq!(all + 1, 889_063_398_406);
}

#[test]
fn unrank__inverts_and_numbers_every_position_once() {
    for stones in 0..=5 {
        for number in 0..positions(stones) {
            let board = unrank(stones, number);
            assert_eq!((board.stones(), rank(&board)), (stones, number));
        }
    }
    for number in (0..positions(31)).step_by(200_000_007).chain([positions(31) - 1]) {
        assert_eq!(rank(&unrank(31, number)), number);
    }
}

fn results(pits: [u8; 12]) -> Vec<(u8, u8, [u8; 12])> {
    Board(pits).moves().list().iter().map(|m| (m.pit, m.captured, m.board.0)).collect()
}

#[test]
fn moves__the_rules_one_by_one() {
    // Sowing skips the emptied pit on its way round; the two last stones make twos.
    let round = results([0, 0, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0]);
    assert_eq!(round, [(5, 4, [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0])]);
    // Two and three are captured backwards, up to a pit with another number.
    let captures = results([0, 0, 0, 0, 0, 4, 4, 1, 2, 1, 0, 1]);
    assert_eq!(captures, [(5, 7, [5, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0])]);
    // Pits of the player who moves are not captured.
    assert_eq!(
        results([1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])[0],
        (0, 0, [0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0])
    );
    // A move that leaves the opponent nothing is not allowed if another one leaves something.
    let feed = results([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(feed, [(5, 0, [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0])]);
    // Such a move is allowed if all moves leave nothing.
    let board = Board([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(board.moves().list().iter().all(|m| m.starves));
    let slam = Board([0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
    assert!(slam.moves().list()[0].starves);
    let database = solve(2).database;
    assert_eq!((database.score(&board), database.score(&slam)), (Some(1), Some(2)));
    assert_eq!(database.score(&Board([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1])), Some(-2));
}

/// The positions after all allowed moves with the stones captured, or the score of a position whose
/// game is over: the rules once more, on a ring of pits.
fn play(pits: &[u8; 12]) -> Result<Vec<(i8, [u8; 12])>, i8> {
    let stones: u8 = pits.iter().sum();
    if pits[..6] == [0; 6] {
        return Err(-(stones as i8));
    }
    let mut moves = Vec::new();
    for from in (0..6).filter(|from| pits[*from] > 0) {
        let mut after = *pits;
        let others: Vec<usize> = (1..12).map(|far| (from + far) % 12).collect();
        let sown: Vec<usize> = others.iter().cycle().take(pits[from].into()).copied().collect();
        after[from] = 0;
        sown.iter().for_each(|pit| after[*pit] += 1);
        let last = *sown.last().unwrap();
        let row = (6..=last).rev().take_while(|pit| [2, 3].contains(&after[*pit]));
        let taken: Vec<usize> = row.collect();
        let captured: u8 = taken.iter().map(|pit| std::mem::take(&mut after[*pit])).sum();
        if after[6..] != [0; 6] {
            let turned = std::array::from_fn(|pit| after[(pit + 6) % 12]);
            moves.push((captured as i8, turned));
        }
    }
    if moves.is_empty() {
        Err(stones as i8)
    } else {
        Ok(moves)
    }
}

/// Scores by playing forward: the score of a game that ends after `t` moves without gain, for
/// rising `t`, until nothing changes.
fn forward(stones: u8, smaller: &HashMap<[u8; 12], i8>) -> HashMap<[u8; 12], i8> {
    let all: Vec<_> = (0..positions(stones)).map(|number| unrank(stones, number).0).collect();
    let moves: Vec<_> = all.iter().map(play).collect();
    let mut scores: HashMap<_, _> = all.iter().map(|pits| (*pits, 0i8)).collect();
    loop {
        let score = |(captured, pits): &(i8, [u8; 12])| {
            captured - smaller.get(pits).or_else(|| scores.get(pits)).unwrap()
        };
        let value = |moves: &Result<Vec<_>, i8>| match moves {
            Ok(moves) => moves.iter().map(score).max().unwrap(),
            Err(end) => *end,
        };
        let next: HashMap<_, _> =
            all.iter().zip(&moves).map(|(pits, moves)| (*pits, value(moves))).collect();
        if next == scores {
            return scores;
        }
        scores = next;
    }
}

#[test]
fn sequential__scores_are_those_of_playing_forward() {
    let database = solve(6).database;
    let mut expected = HashMap::new();
    for stones in 0..=6 {
        let level = forward(stones, &expected);
        for (pits, score) in &level {
            assert_eq!(database.score(&Board(*pits)), Some(*score), "{pits:?}");
        }
        expected.extend(level);
    }
    assert_eq!(database.len(), expected.len() as u64);
}

#[test]
fn sequential__scores_are_the_best_of_the_moves() {
    let outcome = solve(8);
    let database = &outcome.database;
    assert_eq!(database.len(), positions_to(8));
    for stones in 0..=8 {
        for number in 0..positions(stones) {
            let answer = database.answer(&unrank(stones, number)).unwrap();
            let best = answer.moves.iter().map(|m| m.score).max();
            assert_eq!(best.unwrap_or(-(stones as i8)), answer.score, "{}", answer.board);
        }
        let counts = database.histogram(stones).unwrap();
        assert_eq!(counts.iter().sum::<u64>(), positions(stones));
    }
    assert_eq!(database.answer(&Board([9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])), None);
}

/// The table of nine stones, which playing forward confirmed once.
#[test]
fn sequential__the_table_stays_what_it_is() {
    assert_eq!(format!("{:016x}", solve(9).checksum), "d0b6d27ac45d3e1b");
}

#[test]
#[ignore = "plays forward through 300,000 positions; the suite large runs it"]
fn sequential__nine_stones_are_those_of_playing_forward() {
    let database = solve(9).database;
    let mut expected = HashMap::new();
    for stones in 0..=9 {
        let level = forward(stones, &expected);
        assert!(level.iter().all(|(pits, score)| database.score(&Board(*pits)) == Some(*score)));
        expected.extend(level);
    }
}

/// A position whose score and moves are published; 30 million positions lead to it.
#[test]
#[ignore = "computes 30 million positions; the suite large runs it"]
fn sequential__the_published_position() {
    let database = solve(16).database;
    let answer = database.answer(&"1 1 1 1 1 2 4 2 3 0 0 0".parse().unwrap()).unwrap();
    let moves: Vec<i8> = answer.moves.iter().map(|m| m.score).collect();
    assert_eq!((answer.score, &moves[..]), (0, &[-1, -1, -2, -2, -2, 0][..]));
}

/// Carries updates as messages, gathered and in reverse, until no owner has one.
fn run_round(levels: &mut [Level]) {
    let (mut waiting, mut updates) = (Vec::new(), Vec::new());
    loop {
        let mut idle = true;
        for level in levels.iter_mut() {
            idle &= !level.next_updates(&mut updates);
            waiting.extend(updates.drain(..).map(Update::to_bytes));
        }
        if idle && waiting.is_empty() {
            return;
        }
        if idle || waiting.len() > 40 {
            for update in waiting.drain(..).rev().map(Update::from_bytes) {
                let owner = levels[0].owner_of(update);
                levels[owner].apply(update);
            }
        }
    }
}

#[test]
fn level__scores_do_not_depend_on_owners_or_on_the_order_of_updates() {
    let expected = solve(6);
    for owners in [2, 3, 7] {
        let (mut database, mut sent) = (Database::new(), 0);
        for stones in 0..=6u8 {
            let mut levels: Vec<Level> =
                (0..owners).map(|owner| Level::new(stones, owner, owners)).collect();
            for level in &mut levels {
                level.prepare(0..level.len(), |stones, number| database.at(stones, number));
            }
            for round in (1..=stones).rev() {
                levels.iter_mut().for_each(|level| level.start_round(round));
                run_round(&mut levels);
            }
            sent += levels.iter().map(Level::updates).sum::<u64>();
            let shares: Vec<Vec<i8>> = levels.into_iter().map(Level::into_scores).collect();
            let number = |at: usize| shares[at % owners][at / owners];
            database.push((0..positions(stones) as usize).map(number).collect());
        }
        assert_eq!((&database, sent), (&expected.database, expected.updates), "{owners} owners");
    }
}

#[test]
fn sequential__stops_when_its_caller_says_so() {
    let last = Cell::new(None);
    let stop = |step: Step| {
        last.set(Some(step));
        if step.stones == 5 && step.round == Some(3) {
            Err(Stopped)
        } else {
            Ok(())
        }
    };
    let params = Params { stones: 7, ..Params::default() };
    assert_eq!(sequential(&params, &stop), Err(Stopped));
    let step = last.get().unwrap();
    assert_eq!((step.of, step.positions), (7, positions(5)));
    assert!(step.done <= step.positions);
}

#[test]
fn check__names_the_limit() {
    let stones = Params { stones: 32, ..Params::default() }.check().unwrap_err();
    assert_eq!(stones, ParamsError::Stones(32));
    let large = Params { stones: 30, ..Params::default() }.check().unwrap_err();
    assert!(large.to_string().contains("above the limit of 4096 MiB"), "{large}");
    assert_eq!(Params::default().check(), Ok(()));
}

#[test]
fn read_positions__lines_and_their_faults() {
    let read = |text: &str| read_positions(&mut text.as_bytes()).map_err(|e| e.to_string());
    let boards = read("# start\n4 4 4 4 4 4 4 4 4 4 4 4\n1,0,0,0,0,0,0,0,0,0,0,0\n").unwrap();
    assert_eq!((boards[0], boards[1].stones()), (Board([4; 12]), 1));
    assert_eq!(boards[0].to_string(), "4 4 4 4 4 4 4 4 4 4 4 4");
    let faults = [
        ("\n# none\n", "line 3: no position"),
        ("1 2 3", "line 1: 3 pits, but a position has 12"),
        ("0 0 0 0 0 0 0 0 0 0 0 x", "line 1: `x` is not a number from 0 to 48"),
        ("0 0 0 0 0 0 0 0 0 0 0 49", "line 1: `49` is not a number from 0 to 48"),
        ("\n5 4 4 4 4 4 4 4 4 4 4 4", "line 2: 49 stones, but the game has 48"),
    ];
    for (text, expected) in faults {
        assert_eq!(read(text).unwrap_err(), expected);
    }
}

#[test]
fn database__files_and_their_faults() {
    let database = solve(4).database;
    let mut bytes = Vec::new();
    database.write(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, 17 + positions_to(4) + 8);
    assert_eq!(Database::read(&mut &bytes[..]).unwrap(), database);
    let fault = |change: fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        Database::read(&mut &bytes[..]).unwrap_err().to_string()
    };
    assert_eq!(fault(|b| b[0] = 0), "not a database of this version");
    assert_eq!(fault(|b| b[16] = 40), "40 stones are more than 31");
    assert_eq!(fault(|b| b.truncate(20)), "2 of the 12 scores of 1 stones");
    assert_eq!(fault(|b| b[40] = 9), "a score of 9 with 2 stones");
    let changed = fault(|b| b[18] = u8::from(b[18] != 1));
    assert_eq!(changed, "the digest is another one: the file was changed");
}

#[test]
fn write__a_person_can_read_it() {
    let outcome = solve(5);
    let text = report(&outcome);
    assert!(text.lines().count() <= 24 && text.lines().all(|l| l.len() <= 80), "{text}");
    assert!(text.contains("positions        6188\n"));
    let mut csv = Vec::new();
    write_histogram(&mut csv, &outcome.database).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert_eq!(csv.lines().count(), 1 + (0..=5).map(|n| 2 * n + 1).sum::<usize>());
    assert!(csv.contains("\n0,0,1\n"));
    let answer = outcome.database.answer(&Board([0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0])).unwrap();
    let mut out = Vec::new();
    write_answer(&mut out, &answer).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("of 4 stones") && out.contains("pit 6") && out.contains("best"), "{out}");
}
