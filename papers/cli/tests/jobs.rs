//! Applications over the models on three ranks: values that are known, and input that is wrong.

#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::are_built;

const PAPERS: &str = env!("CARGO_BIN_EXE_weft-papers");

/// Returns `weft`, which starts the ranks. `None`, with the reason printed, if it is not built.
fn weft() -> Option<PathBuf> {
    are_built(PAPERS, &["weft"]).then(|| Path::new(PAPERS).with_file_name("weft"))
}

/// The end of a job.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Done {
    fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
    }
}

/// Runs an application on so many ranks.
fn job(weft: &Path, ranks: &str, words: &[&str]) -> Done {
    let mut command = Command::new(weft);
    command.args(["run", "--timeout", "300", "-n", ranks, PAPERS, "app"]).args(words);
    let done = command.output().expect("weft starts");
    let [out, err] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).expect("text"));
    Done { code: done.status.code(), out, err }
}

fn app(weft: &Path, args: &str) -> Done {
    job(weft, "3", &args.split(' ').collect::<Vec<_>>())
}

#[test]
fn models__applications_find_what_is_known() {
    let Some(weft) = weft() else { return };
    for (args, expected) in [
        // ((n - 1) / n)^t is below 0.001 after 688 iterations.
        ("leq --equations 100 --check", "iterations       689 (converged)"),
        ("dd --check --tolerance 1e-4", "solutions        7 (all converged)"),
        ("dd --unbalanced --check --tolerance 1e-3", "0 rows moved"),
        ("dd --by objects --check --tolerance 1e-4", "solutions        7 (all converged)"),
        ("dd --by objects --strategy rotate --check --tolerance 1e-3", "rows moved"),
        ("dd --by sockets --check --tolerance 1e-4", "solutions        7 (all converged)"),
        ("puzzle --korf 79 --check", "shortest         42 moves"),
        ("puzzle --korf 12 --jobs 4", "shortest         45 moves"),
        ("qr --size 60x40 --check", "independent      40 columns"),
        ("radix --keys 20000 --region 256 --check", "sorted           yes"),
        ("barnes --bodies 600 --steps 4 --check", "600 bodies, 4 steps of 0.025, 3 ranks"),
        ("awari --stones 7 --check", "of 7 stones      31824"),
        ("awari --stones 7 --by calls --check", "of 7 stones      31824"),
        ("awari --stones 6 --by calls --per-call 1 --check", "updates          "),
        ("awari --stones 5 --position 0,0,0,0,1,2,0,2,0,0,0,0", "pit 6       +1, captures 3, best"),
    ] {
        let done = app(&weft, args);
        done.assert_code(0);
        assert!(done.out.contains(expected), "{args}: {}", done.out);
        assert_eq!(args.contains("--check"), done.out.contains("PASS"), "{args}: {}", done.out);
    }
}

#[test]
fn awari__same_databases_by_calls_and_by_jobs_on_two_and_four_ranks() {
    let Some(weft) = weft() else { return };
    for ranks in ["2", "4"] {
        let [by_jobs, by_calls] = ["jobs", "calls"].map(|by| {
            let words = ["awari", "--stones", "8", "--by", by, "--check", "--json"];
            let done = job(&weft, ranks, &words);
            done.assert_code(0);
            let report: serde_json::Value = serde_json::from_str(&done.out).expect("one object");
            assert_eq!(report["check"]["pass"], true, "{by} on {ranks}: {}", done.out);
            (report["checksum"].clone(), report["result"].clone())
        });
        assert_eq!(by_jobs, by_calls, "{ranks} ranks");
    }
}

#[test]
fn models__wrong_input_is_named() {
    let Some(weft) = weft() else { return };
    for (args, expected) in [
        ("leq --equations 0", "there is no equation"),
        ("puzzle --position 1", "--position 1: 1 tiles, but"),
        ("puzzle --korf 101", "101 is not in 1..=100"),
        ("radix --radix 3", "radix 3 is not a power of two"),
        ("barnes --bodies 0", "there is no body"),
        ("awari --stones 99", "99 stones are more than"),
        ("awari --stones 3 --per-call 9", "--per-call belongs to --by calls"),
    ] {
        let done = app(&weft, args);
        done.assert_code(2);
        assert!(done.err.contains(expected), "{args}: {}", done.err);
    }
}
