//! `weft sim app` and `weft sim paper004`: the nine applications on simulated hosts, and the
//! clusters of paper 004.
#![allow(non_snake_case)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use weft_conformance::commands::{Called, Scratch};

const SIM: Called =
    Called { program: env!("CARGO_BIN_EXE_weft-papers"), first: "sim", without: &["WEFT_SEEDS"] };
const TMP: &str = env!("CARGO_TARGET_TMPDIR");

/// An application with a small input, and the name of what it computes.
struct Case {
    app: &'static str,
    input: &'static [&'static str],
    things: &'static str,
    /// An error of its program's options.
    wrong: (&'static [&'static str], &'static str),
}

const CASES: [Case; 11] = [
    Case {
        app: "asp",
        input: &["--nodes", "60", "--degree", "4"],
        things: "cells",
        wrong: (&["--graph", "/nowhere.gr"], "/nowhere.gr cannot be opened"),
    },
    Case {
        app: "awari",
        input: &["--stones", "4"],
        things: "positions and updates",
        wrong: (&["--stones", "32"], "more than 31"),
    },
    Case {
        app: "awari",
        input: &["--stones", "4", "--by", "calls"],
        things: "positions and updates",
        wrong: (&["--by=jobs", "--per-call", "3"], "belongs to --by calls"),
    },
    Case {
        app: "barnes",
        input: &["--bodies", "200", "--steps", "2"],
        things: "interactions",
        wrong: (&["--steps", "0"], "at least one is needed"),
    },
    Case {
        app: "dd",
        input: &["--iterations", "2"],
        things: "exponentials and points",
        wrong: (&["--tolerance", "nan"], "is not a number above 0"),
    },
    Case {
        app: "dd",
        input: &["--iterations", "2", "--by", "objects"],
        things: "exponentials and points",
        wrong: (&["--by=objects", "--per-rank", "1024"], "too few for"),
    },
    Case {
        app: "leq",
        input: &["--equations", "40", "--random", "3"],
        things: "products",
        wrong: (&["--equations", "0"], "there is no equation"),
    },
    Case {
        app: "puzzle",
        input: &["--position", "1 10 0 6 11 2 15 3 4 13 5 7 8 12 9 14", "--whole", "--jobs", "4"],
        things: "positions",
        wrong: (&["--position", "1 2 3"], "16"),
    },
    Case {
        app: "qr",
        input: &["--size", "30x20"],
        things: "values",
        wrong: (&["--size", "0"], "no rows or no columns"),
    },
    Case {
        app: "radix",
        input: &["--keys", "1000", "--below", "4096", "--radix", "16", "--region", "32"],
        things: "keys",
        wrong: (&["--radix", "100"], "power of two"),
    },
    Case {
        app: "sor",
        input: &["--size", "30x40"],
        things: "cells",
        wrong: (&["--size", "2"], "3 x 3"),
    },
];

impl Case {
    fn words<'a>(&self, more: &[&'a str]) -> Vec<&'a str> {
        [&["app", self.app], self.input, &["--hosts", "4"], more].concat()
    }
}

/// Returns the report of a run, without what depends on the time of day.
fn report(words: &[&str]) -> Value {
    let mut all = SIM.lines(words);
    let mut line = all.pop().expect("a line");
    assert!(all.is_empty(), "{all:?}");
    line.as_object_mut().expect("an object").remove("wall_seconds");
    line
}

#[test]
fn paper004__a_plot_in_a_missing_folder_is_refused_before_the_work() {
    let missing = format!("{TMP}/no-such-folder/a.svg");
    let said = SIM.refused(&["paper004", "--plot", &missing]);
    assert!(said.contains("no-such-folder/a.svg: No such file"), "{said}");
}

#[test]
fn app__equals_sequential_with_loss_and_is_repeatable() {
    for case in &CASES {
        let app = case.app;
        let faults = ["--loss", "1%", "--dup", "--reorder", "2%", "--corrupt", "--seed", "5"];
        let words = case.words(&faults);
        let told = report(&words);
        assert_eq!(told["scenario"], format!("app {app}"), "{told}");
        assert_eq!((&told["pass"], &told["hosts"]), (&true.into(), &4.into()), "{told}");
        assert_eq!(told["work"]["things"], case.things, "{told}");
        for counter in ["lost", "duplicated", "held_back", "corrupted"] {
            assert!(told["network"][counter].as_u64() > Some(0), "{app}: {counter} of {told}");
        }
        assert!(told["retransmitted"].as_u64() > Some(0), "{told}");
        assert!(told["result"].as_object().is_some_and(|result| !result.is_empty()), "{told}");
        let number = |key: &str| told[key].as_f64().unwrap_or_else(|| panic!("{key} of {told}"));
        let work = |key: &str| told["work"][key].as_f64().expect("a number");
        let alone = number("alone_ms");
        assert!((alone - work("count") * work("ns_each") / 1e6).abs() < 1e-9 * alone, "{told}");
        assert!((number("speedup") - alone / number("virtual_ms")).abs() < 1e-6, "{told}");
        assert_eq!(told, report(&words), "the same seed, the same numbers");
        // The network has no part in the result.
        let plain = report(&case.words(&["--seed", "5"]));
        assert_eq!(told["checksum"], plain["checksum"], "{app}");
        assert!(told["virtual_ms"].as_f64() > plain["virtual_ms"].as_f64(), "{told} {plain}");
    }
}

#[test]
fn app__computing_takes_its_time() {
    for case in &CASES {
        let help = SIM.text(&["app", case.app, "--help"]);
        let cost = help.split_whitespace().find(|word| word.starts_with("--ns-per-"));
        let cost = cost.unwrap_or_else(|| panic!("no cost in {help}"));
        let slow = report(&case.words(&[cost, "50000"]));
        let [speedup, ms, alone] = ["speedup", "virtual_ms", "alone_ms"].map(|key| &slow[key]);
        // Each host computes a fair share, and messages take next to nothing.
        assert!(speedup.as_f64() > Some(1.2) && speedup.as_f64() < Some(4.001), "{slow}");
        assert!(ms.as_f64() < alone.as_f64(), "{slow}");
        let free = report(&case.words(&[cost, "0"]));
        assert_eq!(free["checksum"], slow["checksum"], "{}", case.app);
        assert_eq!(free["alone_ms"], 0.0, "{free}");
        for wrong in ["-1", "nan", "fast", "1e7"] {
            let why = SIM.refused(&case.words(&[cost, wrong]));
            assert!(why.contains("nanoseconds from 0 to 1000000 are wanted"), "{why}");
        }
    }
}

#[test]
fn app__one_host_and_more_hosts_than_work() {
    for case in &CASES {
        let all = ["1", "7"].map(|hosts| {
            let words = [&["app", case.app], case.input, &["--hosts", hosts]].concat();
            report(&words)
        });
        assert_eq!(all[0]["checksum"], all[1]["checksum"], "{all:?}");
    }
}

#[test]
fn app__text_names_cost_and_verdict() {
    for case in &CASES {
        let told = SIM.text(&case.words(&[]));
        for word in [case.app, "virtual time", "one host alone", "ns each", "checksum", "PASS"] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
        assert!(told.contains(case.things), "{told}");
    }
}

#[test]
fn app__hosts_pause_and_are_cut_off_and_the_result_is_the_same() {
    let fates = ["--partition", "0,2-3@1ms..40ms", "--pause", "1@2ms..90ms"];
    let size = ["app", "sor", "--hosts", "5", "--size", "40x64"];
    let plain = report(&size);
    let got = report(&[&size[..], &fates].concat());
    assert_eq!(got["checksum"], plain["checksum"]);
    assert!(got["network"]["partitioned"].as_u64() > Some(0), "{got}");
    assert!(got["virtual_ms"].as_f64() > plain["virtual_ms"].as_f64(), "{got}");
}

#[test]
fn app__the_death_of_a_host_ends_the_others_with_its_name() {
    for case in &CASES {
        let plain = report(&case.words(&[]));
        let half = plain["virtual_ms"].as_f64().expect("a number") / 2.0;
        // At once, while ranks find each other, and in the midst of the work.
        let half = format!("2@{half}ms");
        for death in ["2@0us", "2@20us", &half] {
            let words = case.words(&["--death", death]);
            let got = report(&words);
            assert_eq!((&got["pass"], &got["died"]), (&true.into(), &[2].into()), "{got}");
            let errors = got["errors"].as_array().expect("a list");
            let names = |e: &Value| {
                e.as_str().is_some_and(|e| e.contains("rank 2 over sim (host 2) failed"))
            };
            assert!(errors.iter().any(names), "{} at {death}: {got}", case.app);
        }
        let told = SIM.text(&case.words(&["--death", &half]));
        assert!(told.contains("hosts [2] died"), "{told}");
        // Too late to have an effect.
        let late = report(&case.words(&["--death", "2@10s"]));
        assert_eq!((&late["checksum"], &late["died"]), (&plain["checksum"], &Value::Array(vec![])));
    }
    assert!(SIM.refused(&["app", "sor", "--hosts", "3", "--death", "3@1ms"]).contains("no host 3"));
}

#[test]
fn app__hosts_without_a_row_wait_for_the_others() {
    // The barrier at the end of the hosts is no operation of the program's group.
    for nodes in ["0", "1", "3", "5"] {
        let got = report(&["app", "asp", "--nodes", nodes, "--hosts", "8"]);
        assert_eq!(got["pass"], true, "{nodes}: {got}");
    }
}

#[test]
fn app__the_death_of_all_hosts_is_a_failure_that_says_so() {
    let words = ["app", "sor", "--hosts", "2", "--death", "0@1us", "--death", "1@1us"];
    let told = SIM.refused(&words);
    assert!(told.contains("every host died"), "{told}");
}

#[test]
fn app__a_host_may_die_when_nothing_is_needed_of_it() {
    // Rank 3 has sent its last row and waits for the sums, for which the others do not need it.
    let words = ["app", "asp", "--nodes", "60", "--degree", "4", "--hosts", "4"];
    let plain = report(&words);
    let words = [&words[..], &["--death", "3@100us"]].concat();
    let got = report(&words);
    assert_eq!((&got["died"], &got["checksum"]), (&[3].into(), &plain["checksum"]), "{got}");
    assert!(SIM.text(&words).contains("PASS: hosts [3] died when nothing was needed"));
}

#[test]
fn app__invalid_options_are_refused() {
    for case in &CASES {
        let (words, why) = case.wrong;
        let output = SIM.run(&[&["app", case.app], words].concat());
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(why), "{}: {told}", case.app);
    }
    let too_large = ["app", "leq", "--equations", "1000", "--memory", "1"];
    assert!(SIM.refused(&too_large).contains("above the limit of 1.0 MiB"));
    assert!(SIM.refused(&["app", "chess"]).contains("chess"));
}

#[test]
fn app__reads_files_and_writes_packets() {
    let (keys, log) = (Scratch::new(TMP, "app-keys.txt"), Scratch::new(TMP, "app-radix.txt"));
    std::fs::write(keys.path(), "7 5 3\n9 1\n").expect("a file");
    let words = ["app", "radix", "--input", keys.path(), "--hosts", "2", "--log", log.path()];
    let told = report(&words);
    let result = &told["result"];
    assert_eq!((&result["keys"], &result["sorted"]), (&5.into(), &true.into()), "{told}");
    assert!(std::fs::read(log.path()).expect("a log").starts_with(b" "));
}

#[test]
fn paper004__every_table_prints_its_numbers_and_the_orderings_come_with_all() {
    for table in ["III", "IV", "V", "fig6", "fig7", "fig9", "orderings"] {
        let of_it = SIM.lines(&["paper004", "--table", table]);
        assert!(!of_it.is_empty(), "{table}");
        for line in &of_it {
            let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
            let mut wanted =
                ["table", "row", "platform", "unit", "paper", "simulated", "error", "calibrated"];
            wanted.sort_unstable();
            assert_eq!(keys, wanted, "{line}");
            assert_eq!(line["table"], table, "{line}");
            let [paper, simulated, error] =
                ["paper", "simulated", "error"].map(|key| line[key].as_f64().expect("a number"));
            assert!((error - (simulated / paper - 1.0)).abs() < 1e-9, "{line}");
        }
    }
    let table_4 = SIM.lines(&["paper004", "--table", "IV"]);
    let of = |choice: &str| {
        table_4.iter().filter(|l| l["row"].as_str().is_some_and(|r| r.starts_with(choice))).count()
    };
    assert_eq!(["l-sdma", "l-pio", "l-rcpy"].map(of), [10; 3]);
    let all = SIM.lines(&["paper004"]);
    assert!(all.iter().any(|line| line["table"] == "orderings"));
    assert_eq!(all, SIM.lines(&["paper004", "--seed", "1"]), "the same seed, the same numbers");
    let systems = SIM.lines(&["paper004", "--table", "systems"]);
    assert_eq!(systems.len(), 44);
    let mut errors = Vec::new();
    for line in &systems {
        let error = line["error"].as_f64().expect("a number").abs();
        assert!(line["table"].as_str().is_some_and(|t| ["V", "VI"].contains(&t)), "{line}");
        assert!(error < 0.3, "{line}");
        if line["calibrated"] == false {
            errors.push(error);
        }
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors[errors.len() / 2] <= 0.12, "median {}", errors[errors.len() / 2]);
    let text = SIM.text(&["paper004", "--table", "orderings"]);
    assert!(text.starts_with("orderings the paper states: "), "{text}");
}

#[test]
fn paper004__long_tables_say_how_far_they_are_without_a_terminal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-papers"));
    command.args(["sim", "paper004", "--table", "VII"]).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("weft starts");
    let mut first = String::new();
    let mut err = BufReader::new(child.stderr.take().expect("a pipe"));
    err.read_line(&mut first).expect("a line");
    child.kill().expect("it runs: the whole table takes minutes");
    child.wait().expect("an end");
    assert!(first.starts_with("weft sim: simulated runs: 0 of "), "{first}");
}

#[test]
fn paper000__a_figure_has_all_its_points_and_is_repeatable() {
    let words = ["paper000", "--figure", "15", "--steps", "4", "--json"];
    let text = SIM.text(&words);
    assert_eq!(text, SIM.text(&words));
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("one object")).collect();
    assert_eq!(lines.len(), 4 * 7, "{text}");
    let speed = |curve: &str, ranks: u64| {
        let is_it = |line: &&Value| line["curve"] == curve && line["ranks"] == ranks;
        lines.iter().find(is_it).expect("a point")["simulated"].as_f64().expect("a number")
    };
    for curve in ["tcp", "tipc"] {
        assert!((speed(curve, 1) - 1.0).abs() < 0.1, "{text}");
        let by_cost = speed(&format!("{curve}, rows by cost"), 23);
        assert!(by_cost > 1.2 * speed(curve, 23), "{text}");
    }
    assert!(SIM.refused(&["paper000", "--figure", "7"]).contains("one of 5, 6, 15, all"));
    assert!(SIM.refused(&["paper000", "--ns-per-unit", "0"]).contains("nanoseconds from 1"));
}

/// `weft` lists the commands that this program has: a user finds and starts them there.
#[test]
fn weft__knows_each_command_of_this_program() {
    let names = |help: &str| -> Vec<String> {
        let list = help.split_once("Commands:\n").expect("a list of commands").1;
        let list = list.lines().take_while(|line| !line.is_empty());
        let names = list.filter(|line| !line.starts_with("   "));
        names.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
    };
    let help = |mut of: clap::Command| of.render_help().to_string();
    let app = <weft_app::Args as clap::Args>::augment_args(clap::Command::new("app"));
    let sim = <weft_simulate::Args as clap::Args>::augment_args(clap::Command::new("sim"));
    for (first, listed) in [("app", help(app)), ("sim", help(sim))] {
        let here = names(&Called { first, ..SIM }.text(&["--help"]));
        assert!(here.len() > 2, "{here:?}");
        for name in here {
            let starts = |line: &str| line.split_whitespace().next() == Some(&name);
            assert!(listed.lines().any(starts), "weft {first} does not list {name}:\n{listed}");
        }
    }
}
