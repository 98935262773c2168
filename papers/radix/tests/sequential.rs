//! The sequential program, its parts, its generator and its files.
#![allow(non_snake_case)]

use std::cell::RefCell;
use weft_apps::{owned, SplitMix, Stopped};
use weft_radix::{
    histogram, passes, permute, read_binary, read_text, report, sequential, starts, write_binary,
    write_histogram, write_summary, write_text, Digit, Generator, Outcome, Params, ParamsError,
    Step, PIECE, SEED,
};

fn sort(keys: Vec<u32>, radix: u32) -> Outcome {
    sequential(&Params { keys, radix }, &|_: Step| Ok(())).unwrap()
}

fn random(count: usize, seed: u64) -> Vec<u32> {
    let mut random = SplitMix::new(seed);
    (0..count).map(|_| random.bits() as u32 >> (random.bits() % 32)).collect()
}

#[test]
fn sequential__sorts_with_every_radix() {
    for radix in [2, 8, 128, 1 << 11, 1 << 16] {
        for count in [0, 1, 2, 1000] {
            let keys = random(count, u64::from(radix));
            let mut expected = keys.clone();
            expected.sort_unstable();
            let outcome = sort(keys, radix);
            assert_eq!(outcome.keys, expected);
            assert!(outcome.is_sorted());
        }
    }
}

#[test]
fn passes__as_many_as_digits() {
    let counts =
        [(0, 1), (127, 1), (128, 2), ((1 << 19) - 1, 3), ((1 << 26) - 1, 4), (u32::MAX, 5)];
    for (largest, expected) in counts {
        assert_eq!(passes(largest, 128), expected, "{largest}");
    }
    assert_eq!((passes(u32::MAX, 2), passes(u32::MAX, 1 << 16)), (32, 2));
    assert_eq!(Digit::new(4, 128).of(u32::MAX), 15);
    assert_eq!(Digit::new(7, 128).of(u32::MAX), 0);
}

/// The upper bits number the keys; the pass sorts by the lower ones alone.
#[test]
fn permute__is_stable_and_does_not_depend_on_the_owners() {
    let digit = Digit::new(0, 16);
    let keys: Vec<u32> = random(500, 3).iter().zip(0..).map(|(key, i)| i << 4 | key & 15).collect();
    let mut expected = keys.clone();
    expected.sort_by_key(|key| key & 15);
    for size in [1, 2, 3, 7, 600] {
        let part = |rank| &keys[owned(rank, size, keys.len())];
        let histograms: Vec<_> = (0..size).map(|rank| histogram(part(rank), digit)).collect();
        let mut sorted = vec![0; keys.len()];
        for rank in (0..size).rev() {
            let mut places = starts(histograms.iter().map(|counts| &counts[..]), rank);
            for piece in part(rank).chunks(33) {
                permute(piece, digit, &mut places, |place, key| sorted[place as usize] = key);
            }
        }
        assert_eq!(sorted, expected, "{size} owners");
    }
}

/// The first keys by the definition of the generator, on numbers of 128 bits.
#[test]
fn generator__keys_by_definition_from_any_place() {
    let modulus = 1u128 << 46;
    let factor = 5u128.pow(13);
    let mut state = u128::from(SEED);
    let mut expected = Vec::new();
    for _ in 0..300 {
        let mut sum = 0;
        for _ in 0..4 {
            state = state * factor % modulus;
            sum += state;
        }
        expected.push((sum * (1 << 26) / (4 * modulus)) as u32);
    }
    for size in [1, 3, 64] {
        let parts = (0..size).map(|rank| owned(rank, size, 300));
        let keys: Vec<u32> = parts
            .flat_map(|p| Generator::new(p.start as u64, 1 << 26, SEED).take(p.len()))
            .collect();
        assert_eq!(keys, expected, "{size} owners");
    }
}

#[test]
fn default__is_the_paper_s_configuration() {
    let params = Params::default();
    assert_eq!((params.keys.len(), params.radix), (3_000_000, 128));
    assert!(params.keys.iter().all(|key| *key < 1 << 26));
    // The mean of four uniform numbers is near the middle.
    let middle = params.keys.iter().filter(|key| (1 << 24..3 << 24).contains(*key)).count();
    assert!((2_700_000..2_800_000).contains(&middle), "{middle}");
    let outcome = sequential(&params, &|_| Ok(())).unwrap();
    assert!(outcome.is_sorted());
    assert_eq!(outcome.passes, 4);
}

#[test]
fn sequential__reports_pieces_and_stops() {
    let seen = RefCell::new(Vec::new());
    let keys = vec![200; PIECE + 1];
    let params = Params { keys, radix: 128 };
    let note = |step: Step| {
        seen.borrow_mut().push((step.passes, step.of, step.keys));
        Ok(())
    };
    sequential(&params, &note).unwrap();
    let expected = [(0, 2, PIECE), (1, 2, PIECE + 1), (1, 2, PIECE), (2, 2, PIECE + 1)];
    assert_eq!(seen.into_inner(), expected);
    assert_eq!(sequential(&params, &|_| Err(Stopped)), Err(Stopped));
}

#[test]
fn read__files_and_their_faults() {
    let read = |text: &str| read_text(&mut text.as_bytes(), 4).map_err(|e| e.to_string());
    assert_eq!(read("5, 4\n# none\n\n0 4294967295 # most\n").unwrap(), [5, 4, 0, u32::MAX]);
    let number = "is not a whole number from 0 to 4294967295";
    assert_eq!(read("1\n2 x\n").unwrap_err(), format!("line 2: `x` {number}"));
    assert_eq!(read("-1").unwrap_err(), format!("line 1: `-1` {number}"));
    assert_eq!(read("4294967296").unwrap_err(), format!("line 1: `4294967296` {number}"));
    assert_eq!(read("1 2 3\n4 5").unwrap_err(), "line 2: more than the limit of 4 keys");
    let binary = |bytes: &[u8]| read_binary(&mut &bytes[..], 2).map_err(|e| e.to_string());
    assert_eq!(binary(&[1, 0, 0, 0, 0, 1, 0, 0]).unwrap(), [1, 256]);
    assert_eq!(binary(&[]).unwrap(), []);
    let cut = "3 bytes behind the last key of 4 bytes, key 1";
    assert_eq!(binary(&[0; 7]).unwrap_err(), cut);
    assert_eq!(binary(&[0; 9]).unwrap_err(), "more than the limit of 2 keys");
}

#[test]
fn check__radix() {
    for radix in [0, 1, 100, 1 << 17] {
        assert_eq!(Params { keys: vec![], radix }.check(), Err(ParamsError::Radix(radix)));
    }
}

#[test]
fn write__reads_back_and_a_person_can_read_it() {
    let outcome = sort(random(100, 8), 128);
    let (mut text, mut binary) = (Vec::new(), Vec::new());
    write_text(&mut text, &outcome).unwrap();
    write_binary(&mut binary, &outcome).unwrap();
    assert_eq!(read_text(&mut &text[..], 100).unwrap(), outcome.keys);
    assert_eq!(read_binary(&mut &binary[..], 100).unwrap(), outcome.keys);
    let mut csv = Vec::new();
    write_histogram(&mut csv, &sort(vec![0, 9, 4, 5, 3], 4), 3).unwrap();
    assert_eq!(String::from_utf8(csv).unwrap(), "from,to,keys\n0,3,2\n4,7,2\n8,9,1\n");
    let report = report(&outcome);
    assert!(report.lines().count() <= 24 && report.lines().all(|l| l.len() <= 80));
    assert!(report.contains("100 keys") && report.contains("yes"));
    let mut summary = Vec::new();
    write_summary(&mut summary, &outcome).unwrap();
    assert!(String::from_utf8(summary).unwrap().contains("\nkeys,100\n"));
}
