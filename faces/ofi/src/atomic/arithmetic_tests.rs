#![allow(non_snake_case)]

use super::super::{is_valid, Form};
use super::*;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns values near each other and near the ends, so that all outcomes of a comparison occur.
fn value(state: &mut u64) -> i64 {
    let r = random(state);
    match r % 4 {
        0 => (r >> 8) as i64 % 3,
        1 => i64::MAX - (r >> 8) as i64 % 3,
        2 => i64::MIN + (r >> 8) as i64 % 3,
        _ => (r >> 2) as i64,
    }
}

fn one(datatype: Datatype, op: Operator, a: &[u8], b: &[u8], c: &[u8]) -> Vec<u8> {
    let mut target = a.to_vec();
    execute(datatype, op, &mut target, b, c);
    target
}

/// Computes the operators on integers so wide that nothing overflows.
fn model(op: Operator, a: i128, b: i128, c: i128) -> i128 {
    let swap = |yes| if yes { b } else { a };
    let truth = |yes| i128::from(yes);
    match op {
        Operator::Min => a.min(b),
        Operator::Max => a.max(b),
        Operator::Sum => a + b,
        Operator::Product => a.wrapping_mul(b),
        Operator::LogicalOr => truth(a != 0 || b != 0),
        Operator::LogicalAnd => truth(a != 0 && b != 0),
        Operator::BitOr => a | b,
        Operator::BitAnd => a & b,
        Operator::LogicalXor => truth((a != 0) != (b != 0)),
        Operator::BitXor => a ^ b,
        Operator::Read => a,
        Operator::Write => b,
        Operator::SwapEqual => swap(c == a),
        Operator::SwapUnequal => swap(c != a),
        Operator::SwapLessEqual => swap(c <= a),
        Operator::SwapLess => swap(c < a),
        Operator::SwapGreaterEqual => swap(c >= a),
        Operator::SwapGreater => swap(c > a),
        Operator::SwapMasked => (b & c) | (a & !c),
        Operator::Difference => a - b,
    }
}

macro_rules! against_model {
    ($($t:ty => $datatype:ident),*) => { $(
        for op in Operator::ALL {
            let mut state = 0x9e37_79b9_7f4a_7c15;
            for round in 0..500 {
                let mut next = || value(&mut state) as $t;
                let (a, b, c) = (next(), next(), next());
                let datatype = Datatype::$datatype;
                let (x, y, z) = (a.to_ne_bytes(), b.to_ne_bytes(), c.to_ne_bytes());
                let got = one(datatype, op, &x, &y, &z);
                let want = model(op, a as i128, b as i128, c as i128) as $t;
                assert_eq!(got, want.to_ne_bytes(), "{datatype:?} {op:?} {a} {b} {c} ({round})");
            }
        }
    )* };
}

#[test]
fn execute__integers_do_what_wide_ones_do() {
    against_model!(i8 => Int8, u8 => Uint8, i16 => Int16, u16 => Uint16, i32 => Int32,
        u32 => Uint32, i64 => Int64, u64 => Uint64);
}

#[test]
fn execute__swaps_by_order_agree_with_each_other() {
    let mut state = 7;
    for _ in 0..2000 {
        let mut next = || f64::from((value(&mut state) % 3) as i32);
        let (a, b, c) = (next(), next() + 10.0, next());
        let bytes = |v: f64| v.to_ne_bytes();
        let swapped =
            |op| one(Datatype::Double, op, &bytes(a), &bytes(b), &bytes(c)) == bytes(b).to_vec();
        assert_ne!(swapped(Operator::SwapLess), swapped(Operator::SwapGreaterEqual));
        assert_ne!(swapped(Operator::SwapGreater), swapped(Operator::SwapLessEqual));
        assert_ne!(swapped(Operator::SwapEqual), swapped(Operator::SwapUnequal));
        let both = swapped(Operator::SwapLessEqual) && swapped(Operator::SwapGreaterEqual);
        assert_eq!(both, swapped(Operator::SwapEqual));
    }
}

#[test]
fn execute__floats_and_complex_numbers() {
    let f = |values: &[f32]| values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>();
    let a = f(&[1.0, 2.0, -3.0, 0.0]);
    let b = f(&[4.0, -5.0, 0.5, 7.0]);
    let float = |op| one(Datatype::Float, op, &a, &b, &[]);
    assert_eq!(float(Operator::Sum), f(&[5.0, -3.0, -2.5, 7.0]));
    assert_eq!(float(Operator::Difference), f(&[-3.0, 7.0, -3.5, -7.0]));
    assert_eq!(float(Operator::Min), f(&[1.0, -5.0, -3.0, 0.0]));
    assert_eq!(float(Operator::LogicalAnd), f(&[1.0, 1.0, 1.0, 0.0]));
    let complex = |op| one(Datatype::FloatComplex, op, &a, &b, &[]);
    // (1+2i)(4-5i) = 14+3i, (-3)(0.5+7i) = -1.5-21i
    assert_eq!(complex(Operator::Product), f(&[14.0, 3.0, -1.5, -21.0]));
    assert_eq!(complex(Operator::LogicalXor), f(&[0.0, 0.0, 0.0, 0.0]));
}

#[test]
fn execute__what_is_not_a_number_compares_false() {
    let nan = f64::NAN.to_ne_bytes();
    let one_ = 1f64.to_ne_bytes();
    assert_eq!(one(Datatype::Double, Operator::Min, &one_, &nan, &[]), one_);
    assert_eq!(one(Datatype::Double, Operator::SwapEqual, &nan, &one_, &nan), nan);
    assert_eq!(one(Datatype::Double, Operator::SwapUnequal, &nan, &one_, &nan), one_);
}

#[test]
fn execute__every_valid_operation_does_something_and_no_other() {
    for datatype in Datatype::ALL {
        for op in Operator::ALL {
            let changes = (0..64u8).any(|i| {
                let len = datatype.size();
                let a = vec![i; len];
                let mut b = vec![i.wrapping_mul(29).wrapping_add(3) & 0x3f; len];
                b[0] |= 1;
                [vec![i; len], vec![i ^ 1; len], vec![0; len], vec![0x7f; len]]
                    .iter()
                    .any(|c| one(datatype, op, &a, &b, c) != a)
            });
            let valid = [Form::Write, Form::Fetch, Form::Compare]
                .iter()
                .any(|form| is_valid(*form, datatype, op));
            assert_eq!(changes, valid && op != Operator::Read, "{datatype:?} {op:?}");
        }
    }
}
