//! Every benchmark runs and prints its lines. No test here checks speed.
#![allow(non_snake_case)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use weft_conformance::skip;

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft-bench"))
        .arg("bench")
        .args(words)
        .args(["--quick"])
        .output()
        .expect("weft starts")
}

/// Returns true if these files are built beside weft-bench; otherwise says what is missing.
fn are_built(files: &[&str]) -> bool {
    weft_conformance::are_built(env!("CARGO_BIN_EXE_weft-bench"), files)
}

fn text(words: &[&str]) -> String {
    let output = bench(words);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "weft bench {words:?}: {why}");
    String::from_utf8(output.stdout).expect("text")
}

fn lines(words: &[&str]) -> Vec<Value> {
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    let lines: Vec<Value> = text(&words)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect();
    assert!(!lines.is_empty(), "{words:?} measured nothing");
    for line in &lines {
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("{key} of {line}"));
        assert!(number("min") <= number("value") && number("value") <= number("max"), "{line}");
        for (of, ratio) in [("floor", "ratio_floor"), ("peer", "ratio_peer")] {
            assert!(line.get(of).is_some(), "no {of}: {line}");
            if let Some(other) = line[of].as_f64() {
                let want = number("value") / other;
                assert!((number(ratio) - want).abs() <= 1e-9 * want.abs(), "{line}");
            } else {
                assert!(line[of].is_null() && line[ratio].is_null(), "{line}");
            }
        }
        for key in ["bench", "link", "unit"] {
            assert!(line[key].is_string(), "no {key}: {line}");
        }
    }
    lines
}

/// Checks the lines of one benchmark: they name it, its link and the sizes asked for.
fn check(bench: &str, link: &str, sizes: &[u64], unit: &str) {
    let list: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let got = lines(&[bench, "--link", link, "--size", &list.join(",")]);
    for line in &got {
        assert_eq!((&line["bench"], &line["link"]), (&bench.into(), &link.into()));
        assert_eq!(line["unit"], unit);
        assert!(sizes.contains(&line["size"].as_u64().unwrap()), "{line}");
    }
    for size in sizes {
        assert!(got.iter().any(|line| line["size"] == *size), "no line for {size}");
    }
}

#[test]
fn pingpong__both_links() {
    check("pingpong", "shm", &[8, 4096, 100_000], "us");
    check("pingpong", "udp", &[16, 100_000], "us");
}

#[test]
fn bandwidth__both_links() {
    check("bandwidth", "shm", &[4096, 1_000_000], "GB/s");
    check("bandwidth", "udp", &[4096, 1_000_000], "GB/s");
}

#[test]
fn rate__both_links() {
    check("rate", "shm", &[8, 100], "M/s");
    check("rate", "udp", &[8], "M/s");
    check("rate", "shm", &[1 << 20], "1/s");
}

#[test]
fn logp__has_all_parameters_of_each_size() {
    let got = lines(&["logp", "--size", "8,64"]);
    for size in [8, 64] {
        for what in ["os", "or", "L", "g"] {
            let there = got.iter().any(|line| line["size"] == size && line["what"] == what);
            assert!(there, "{what} of {size} B");
        }
        let half = got.iter().find(|line| line["size"] == size && line["what"] == "half trip");
        let half = half.expect("half of a round trip");
        assert_eq!(half["floor_name"], "cache line", "{half}");
        assert!(["pipe", "unix"].contains(&half["peer_name"].as_str().unwrap()), "{half}");
    }
    let got = lines(&["logp", "--link", "udp", "--size", "16", "--netns", "off"]);
    let half = got.iter().find(|line| line["what"] == "half trip").expect("half of a round trip");
    assert_eq!((&half["floor_name"], &half["peer_name"]), (&"bare UDP".into(), &"tcp".into()));
}

#[test]
fn barrier__hops_of_more_ranks_beside_those_of_two() {
    if !are_built(&["weft"]) {
        return;
    }
    for (link, words, ranks) in [
        ("shm", &["barrier"][..], ["2 ranks", "4 ranks"]),
        ("udp", &["barrier"], ["2 ranks", "4 ranks"]),
        ("shm", &["barrier", "--link", "shm", "--ranks", "3"], ["2 ranks", "3 ranks"]),
    ] {
        let all = lines(words);
        let got: Vec<&Value> = all.iter().filter(|line| line["link"] == link).collect();
        assert_eq!(got.iter().map(|line| &line["what"]).collect::<Vec<_>>(), ranks);
        assert!(got.iter().all(|line| line["bench"] == "barrier" && line["unit"] == "us"));
        assert!(got[0]["floor"].is_null(), "two ranks are the floor: {}", got[0]);
        assert_eq!((&got[1]["floor"], &got[1]["floor_name"]), (&got[0]["value"], &ranks[0].into()));
    }
}

#[test]
fn collectives__in_this_host_have_lines_for_each_operation() {
    if !are_built(&["weft"]) {
        return;
    }
    let got = lines(&["collectives", "--netns", "off", "--size", "8,64K"]);
    assert!(got.iter().all(|line| line["bench"] == "collectives" && line["unit"] == "us"));
    for what in ["allreduce", "reduce_scatter", "allgather", "alltoall"] {
        let of = |line: &&Value| line["what"] == format!("2 ranks in a host, {what}");
        let line = got.iter().find(of).unwrap_or_else(|| panic!("no {what}"));
        assert_eq!(line["floor_name"], "message", "{line}");
    }
}

#[test]
fn barrier__refuses_what_it_would_ignore() {
    for words in [
        &["barrier", "--link", "packet"][..],
        &["barrier", "--size", "8"],
        &["barrier", "--netns", "on"],
        &["barrier", "--ranks", "1"],
        &["pingpong", "--ranks", "4"],
    ] {
        assert!(!bench(words).status.success(), "{words:?}");
    }
}

#[test]
fn wait__share_of_a_core_and_wake_up() {
    for link in ["shm", "udp"] {
        let got = lines(&["wait", "--link", link]);
        let units: Vec<_> = got.iter().map(|line| &line["unit"]).collect();
        assert_eq!(units, ["%", "us"]);
        assert_eq!(got[0]["peer_name"], "pipe", "{}", got[0]);
    }
}

#[test]
fn auth__by_itself_and_in_the_figures() {
    let got = lines(&["auth"]);
    let what = |name: &str| got.iter().filter(|line| line["what"] == name).count();
    assert_eq!((what("seal"), what("open"), what("pingpong"), what("bandwidth")), (2, 2, 1, 2));
}

/// Returns the lines over a link on raw Ethernet; none, with the reason printed, if this machine
/// has no lab hosts or no such link.
fn raw_lines(words: &[&str]) -> Vec<Value> {
    let output = bench(&[words, &["--json"]].concat());
    let why = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let known =
            ["two lab hosts", "no lab: ", "CAP_", "AF_XDP", "bpf(2)", "no link could be opened"];
        assert!(known.iter().any(|known| why.contains(known)), "weft bench {words:?}: {why}");
        weft_conformance::skip(&why);
        return Vec::new();
    }
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn pingpong__raw_ethernet_beside_its_own_sockets() {
    for (link, floor) in
        [("packet", "AF_PACKET"), ("gso", "AF_PACKET"), ("auto", "AF_PACKET"), ("xdp", "AF_XDP")]
    {
        for line in raw_lines(&["pingpong", "--link", link, "--size", "16,4K"]) {
            let want = if line["size"] == 16 { floor } else { "bare UDP" };
            assert_eq!(line["link"], link);
            // On a busy machine a bare frame may be lost; then there is no floor.
            assert!(line["floor"].is_null() || line["floor_name"] == want, "{line}");
            assert_eq!(line["peer_name"], "tcp", "{line}");
        }
        // Frames may be lost here, too, but not every time.
        let mut lines = Vec::new();
        let named = (0..5).any(|_| {
            lines = raw_lines(&["rate", "--link", link]);
            lines.iter().all(|line| line["floor_name"] == floor)
        });
        assert!(named, "no {floor}: {lines:?}");
    }
}

#[test]
fn ethernet__every_line_of_a_link_says_whether_its_target_is_met() {
    let got = raw_lines(&["ethernet", "--link", "packet", "--size", "16"]);
    for line in &got {
        assert_eq!((&line["bench"], &line["link"]), (&"ethernet".into(), &"packet".into()));
        assert!(!line["target_floor"].is_null() || !line["target_peer"].is_null(), "{line}");
        assert!(line["met"].is_boolean(), "{line}");
    }
    let whats: Vec<_> = got.iter().filter_map(|line| line["what"].as_str()).collect();
    let want = ["one way", "one way, blocking wait", "messages", "one way, 8 ranks a host"];
    assert!(got.is_empty() || want.iter().all(|what| whats.contains(what)), "{whats:?}");
}

#[test]
fn ethernet__loss_is_that_of_a_switch_for_weft_as_for_tcp() {
    let output = bench(&["ethernet", "--link", "auto", "--size", "1M"]);
    let (said, why) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        assert!(why.contains("two lab hosts") || why.contains("CAP_"), "{why}");
        return weft_conformance::skip(&why);
    }
    let line = said.lines().find(|line| line.trim_start().starts_with("bandwidth, 1 % loss"));
    let line = line.unwrap_or_else(|| panic!("no line with loss: {said}"));
    assert!(line.contains("no loss ") && line.contains("tcp, 1 % loss "), "{line}");
    assert!(said.contains("through a switch of their own"), "{said}");
}

#[test]
fn ethernet__without_lab_hosts_there_is_nothing_to_measure() {
    let output = bench(&["ethernet", "--netns", "off"]);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && why.contains("leave out --netns off"), "{why}");
}

#[test]
fn against_tcp__each_line_stands_beside_tcp_used_in_the_same_way() {
    for link in ["unprivileged", "auto"] {
        let got = raw_lines(&["against-tcp", "--link", link, "--size", "16,64,1M"]);
        for line in &got {
            assert_eq!((&line["bench"], &line["link"]), (&"against-tcp".into(), &link.into()));
            assert!(line["peer_name"].as_str().is_some_and(|name| name.contains("tcp")), "{line}");
            // Without rights there is no target for a wait that sleeps.
            let free = line["what"] == "one way, blocking wait" && link == "unprivileged";
            assert_eq!(line["target_peer"].is_null(), free, "{line}");
            assert_eq!(line["met"].is_null(), free, "{line}");
        }
        let whats: Vec<_> = got.iter().filter_map(|line| line["what"].as_str()).collect();
        let want = ["one way", "stream, time of a message", "one way, blocking wait"];
        assert!(got.is_empty() || want.iter().all(|what| whats.contains(what)), "{whats:?}");
    }
}

#[test]
fn containers__shm_between_namespaces_stands_beside_shm_in_one() {
    if !are_built(&["weftd"]) {
        return;
    }
    let got = raw_lines(&["containers"]);
    for line in &got {
        assert_eq!((&line["bench"], &line["link"]), (&"containers".into(), &"shm".into()));
        assert_eq!((&line["peer_name"], &line["target_peer"]), (&"shm in one".into(), &1.1.into()));
        assert!(line["met"].is_boolean() && line["target_floor"].is_null(), "{line}");
    }
    let sizes: Vec<_> = got.iter().filter_map(|line| line["size"].as_u64()).collect();
    assert!(got.is_empty() || sizes == [8, 1 << 20], "{sizes:?}");
}

#[test]
fn names__every_figure_has_its_target() {
    if !are_built(&["weft", "weftd"]) {
        return;
    }
    let got = raw_lines(&["names"]);
    for line in &got {
        assert_eq!((&line["bench"], &line["link"]), (&"names".into(), &"udp".into()));
        let has_target = line["target"].is_number() || line["target_peer"].is_number();
        assert!(has_target && line["met"].is_boolean(), "{line}");
        for field in ["value", "min", "max"] {
            assert!(line[field].is_number(), "{line}");
        }
    }
    let targets: Vec<f64> = got.iter().filter_map(|line| line["target"].as_f64()).collect();
    assert!(got.is_empty() || targets == [1.0, 1.0, 10.0, 50.0, 1500.0, 0.1, 8.0], "{targets:?}");
    let ours: Vec<&Value> = got.iter().filter(|line| line["size"] == 16).collect();
    assert!(got.is_empty() || ours[0]["peer_name"] == "to its endpoint", "{ours:?}");
}

#[test]
fn sockets__every_figure_has_its_target() {
    if !are_built(&["weft", "weftd", "libweft_sockets.so"]) {
        return;
    }
    let output = bench(&["sockets", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Each measurement is told as it ends; the table comes last.
    for measured in ["request and answer, one way, 64, us: Weft ", "stream, 64K, GB/s: Weft "] {
        assert!(said.contains(&format!("weft bench: {measured}")), "{said}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let got: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for line in &got {
        assert_eq!((&line["bench"], &line["link"]), (&"sockets".into(), &"sockets".into()));
        let has_target = line["target"].is_number() || line["floor_name"] == "tcp";
        let is_judged = has_target && line["met"].is_boolean();
        let has_none = line["what"] == "memory of the library in two processes";
        assert!((is_judged || has_none) && line["value"].is_number(), "{line}");
    }
    let whats: Vec<_> = got.iter().filter_map(|line| line["what"].as_str()).collect();
    let want = [
        "request and answer, one way",
        "stream",
        "connections of one request",
        "a call on a connection by TCP, more than without",
        "memory of a connection",
        "memory of the library in two processes",
        "processor time of an idle connection in a second",
    ];
    assert!(want.iter().all(|what| whats.contains(what)), "{whats:?}");
}

#[test]
fn sovia__every_verdict_of_the_paper_is_judged() {
    if !are_built(&["weft", "weftd", "libweft_sockets.so"]) {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sovia");
    let got = raw_lines(&["sovia", "--out", folder.to_str().unwrap()]);
    let page = std::fs::read_to_string(folder.join("sovia.md")).unwrap();
    for number in 5..=10 {
        let name = format!("figure-{number}");
        assert!(page.contains(&format!("({name}.png)")), "{page}");
        assert!(std::fs::read(folder.join(name).with_extension("png")).unwrap().len() > 5000);
    }
    assert!(page.contains("a window beats none"), "{page}");
    let judged: Vec<_> = got.iter().filter(|line| line["met"].is_boolean()).collect();
    // A kernel that counts ticks may see none in the short time of a test.
    let uncounted = got.iter().any(|line| {
        let is = (&line["what"], &line["size"]) == (&"receiver, user".into(), &32768.into());
        is && line["met"].is_null() && line["value"] == 0.0
    });
    assert_eq!(judged.len() + usize::from(uncounted), 22, "{judged:?}");
    let has = |what: &str| got.iter().any(|line| line["what"].as_str().is_some_and(|w| w == what));
    let want = ["SOVIA_NOTIFY", "SOVIA_HYBRID", "SOVIA_COMBINE", "receiver, kernel", "pinned"];
    assert!(want.into_iter().all(has), "{got:?}");
}

#[test]
fn udp__over_loopback_says_so() {
    let got = text(&["pingpong", "--link", "udp", "--size", "16", "--netns", "off"]);
    assert!(got.contains("over loopback"), "{got}");
}

#[test]
fn table__has_machine_command_and_ratios() {
    let got = text(&["pingpong", "--size", "1K"]);
    for word in
        ["bench pingpong", "cores", "Linux", "lower is better", "weft/floor", "weft/peer", "1K"]
    {
        assert!(got.contains(word), "no {word:?} in {got}");
    }
}

#[test]
fn suite__writes_table_plots_and_a_report_that_needs_nothing_else() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("suite-{}", std::process::id()));
    let situations = ["inside-idle", "between-1500-loaded", "between-9000-idle"];
    let (out, situations) = (folder.to_str().expect("text"), situations.join(","));
    let said = text(&["suite", "--out", out, "--situations", &situations, "--size", "64,8K"]);
    let read = |name: &str| std::fs::read(folder.join(name)).expect("a file of the report");
    let table = String::from_utf8(read("results.csv")).expect("text");
    let mut lines = table.lines();
    let columns = lines.next().expect("a heading").split(',').count();
    assert!(lines.clone().all(|line| line.split(',').count() == columns), "{table}");
    for way in ["weft shm", "pipe", "FIFO", "Unix socket", "TCP", "UDP", "floor"] {
        let figure = format!("inside,,idle,{way},");
        assert!(lines.clone().any(|line| line.starts_with(&figure)), "no {way}: {said}");
    }
    let html = String::from_utf8(read("report.html")).expect("text");
    for word in ["At a glance", "<svg", "weft shm", "bench suite", "Linux", "median", "floor"] {
        assert!(html.contains(word), "no {word:?} in the report");
    }
    // The name of a namespace is no address.
    let addresses = html.replace("http://www.w3.org/2000/svg", "");
    assert!(!addresses.contains("http"), "the report needs the network");
    assert!(read("inside-idle-latency.png").starts_with(b"\x89PNG"));
    if said.contains("CAP_SYS_ADMIN") {
        return weft_conformance::skip("no hosts of a lab");
    }
    for way in ["System V queue", "TCP no offload", "weft udp"] {
        assert!(table.contains(way), "no {way}: {said}");
    }
    for situation in ["between,1500,loaded", "between,9000,idle"] {
        let figure = format!("{situation},weft udp,weft,true,8192,efficiency,B/cpu s,");
        assert!(table.contains(&figure), "no {figure}: {said}");
        // Each missing figure is listed with a reason.
        for way in ["packet", "gso", "xdp", "auto", "agent"].map(|link| format!("weft {link}")) {
            let (figure, reason) = (format!("{situation},{way},"), format!("{way}: "));
            assert!(table.contains(&figure) || said.contains(&reason), "{figure}: {said}");
        }
    }
    assert!(html.contains("Between hosts, MTU 9000, idle"));
    assert!(read("between-9000-idle-throughput.png").starts_with(b"\x89PNG"));
    std::fs::remove_dir_all(&folder).expect("removing the report");
}

#[test]
fn suite__without_hosts_of_a_lab_measures_inside_this_one() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("suite-off-{}", std::process::id()));
    let out = folder.to_str().expect("text");
    let situations = "inside-idle,between-1500-idle";
    let words = ["suite", "--out", out, "--netns", "off", "--situations", situations];
    let said = text(&[&words[..], &["--size", "64"]].concat());
    for why in ["everything: --netns off", "System V queue: "] {
        assert!(said.contains(why), "no {why:?}: {said}");
    }
    let table = std::fs::read_to_string(folder.join("results.csv")).expect("a table");
    assert!(table.contains("inside,,idle,weft shm,") && !table.contains("between,"), "{table}");
    std::fs::remove_dir_all(&folder).expect("removing the report");
}

#[test]
fn suite__stopped_leaves_what_was_measured() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("suite-stopped-{}", std::process::id()));
    let (out, table) = (folder.to_str().expect("text"), folder.join("results.csv"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    command.args(["bench", "suite", "--quick", "--out", out, "--netns", "off"]);
    command.args(["--situations", "inside-idle", "--repeat", "1000", "--size"]);
    // The suite would take more than a minute; it is stopped long before.
    command.arg(vec!["64"; 200].join(","));
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("weft starts");
    while !table.exists() && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    // Not INT, which processes started in the background may ignore.
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(kill.expect("kill").success());
    let done = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success());
    assert!(said.contains("interrupted, ") && said.contains("results.csv, no report"), "{said}");
    let table = std::fs::read_to_string(table).expect("a table");
    assert!(table.lines().count() > 1 && table.contains("inside,,idle,weft shm,"), "{table}");
    std::fs::remove_dir_all(&folder).expect("removing the folder");
}

#[test]
fn failures__name_what_failed_in_words() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    command.args(["bench", "pingpong", "--quick", "--size", "8"]).env("WEFT_SECURITY", "bogus");
    let output = command.output().expect("weft starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("weft: weft ping-pong, rank 0: "), "{said}");
}

#[test]
fn bandwidth__the_note_has_the_window() {
    let got = text(&["bandwidth", "--size", "1K"]);
    assert!(got.contains("as many as fit 1 MiB (2 to 32)"), "{got}");
}

#[test]
fn args__what_a_benchmark_would_ignore_is_refused_with_a_reason() {
    for (words, why) in [
        (&["suite", "--out", "x", "--link", "udp"][..], "leave out --link"),
        (&["agent", "--link", "xdp"], "leave out --link"),
        (&["mpi", "--link", "udp"], "leave out --link"),
        (&["agent", "--netns", "off"], "leave out --netns off"),
        (&["models", "--table", "14,12", "--netns", "off"], "leave out --netns off"),
        (&["models", "--table", "VI,other", "--ranks", "2"], "leave out --ranks"),
        (&["models", "--table", "VII,12", "--link", "udp"], "leave out --link"),
        (&["ethernet", "--link", "packet,shm"], "connects no two hosts"),
        (&["ethernet", "--link", "udp", "--netns", "off"], "leave out --netns off"),
    ] {
        let output = bench(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
    }
}

#[test]
fn args__bad_ones_are_refused() {
    for words in [
        &["suite"][..],
        &["suite", "--out", "x", "--situations", "outside"],
        &["pingpong", "--size", "many"],
        &["pingpong", "--link", "pigeon"],
        &["auth", "--link", "shm"],
        &["pingpong", "--repeat", "0"],
        &["pingpong", "--link", "udp", "--ranks", "4"],
        &["pingpong", "--link", "packet", "--netns", "off"],
        &["suite", "--loaded"],
        &["pingpong", "--size", "1X"],
    ] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(2), "{words:?} was accepted");
        assert!(!output.stderr.is_empty(), "{words:?} was refused without a word");
    }
}

#[test]
fn models__every_figure_stands_beside_what_it_is_made_of() {
    let got = lines(&["models", "--link", "shm", "--table", "V,VI,other"]);
    let line = |what: &str| {
        let found = got.iter().find(|line| line["what"] == what);
        found.unwrap_or_else(|| panic!("no {what}: {got:?}"))
    };
    for (what, floor, most) in [
        ("call and answer", "packets", Some(1.25)),
        ("null operation, remote object", "packets", Some(1.4)),
        ("clean write miss of a region", "packets", Some(1.25)),
        ("call and answer, multi-threaded", "packets", None),
        ("calls, one way", "packets", None),
        ("calls by four threads", "packets", None),
        ("operations, remote object", "packets", None),
        ("reads of regions", "packets", None),
        ("broadcast, last delivery", "multicast", None),
        ("ordered, 4 ranks, last delivery", "multicast + f&a", Some(1.0)),
        ("write, replicated object", "multicast + f&a", None),
        ("broadcasts", "multicasts", None),
        ("ordered broadcasts", "multicasts", None),
        ("writes, replicated object", "multicasts", None),
    ] {
        let line = line(what);
        assert_eq!((&line["floor_name"], &line["target_floor"]), (&floor.into(), &most.into()));
        assert_eq!(line["met"].is_boolean(), most.is_some(), "{line}");
    }
    for (what, goal) in [
        ("read of a replicated object", 50.0),
        ("ordered, 4 ranks on one host", 200.0),
        ("jobs by the aggregator", 20.0),
    ] {
        assert!(line(what)["target"] == goal && line(what)["met"].is_boolean(), "{got:?}");
    }
    assert_eq!(line("call and answer")["peer_name"], "rpc over tcp");
    assert!(line("fetch-and-add: a ticket")["met"].is_null());
    // Programs of an MPI stand there where one is installed that can use weft.
    let mpi = got.iter().filter(|line| line["what"].as_str().is_some_and(|w| w.contains("MPI")));
    let mpi: Vec<&Value> = mpi.collect();
    assert!([0, 4].contains(&mpi.len()), "{mpi:?}");
    assert!(mpi.iter().all(|line| line["floor"].is_number() && line["peer"].is_number()));
    // The best peer of those that are installed here.
    for (what, peers) in [
        ("fetch-and-add: a ticket", &["redis INCR", "openshmem"][..]),
        ("clean write miss of a region", &["openshmem"]),
    ] {
        let name = &line(what)["peer_name"];
        assert!(name.is_null() || peers.iter().any(|peer| name == peer), "{name}");
    }
    for line in raw_lines(&["models", "--link", "auto", "--table", "V"]) {
        assert_eq!((&line["bench"], &line["link"]), (&"models".into(), &"auto".into()));
    }
}

/// The programs of Table VII, which have an efficiency and traffic for each number of ranks.
const PROGRAMS: [&str; 9] =
    ["ASP", "Awari", "Barnes", "LEQ", "Puzzle-4", "Puzzle-64", "QR", "Radix", "SOR"];

#[test]
fn models__programs_on_several_numbers_of_ranks_with_a_plot() {
    if !are_built(&["weft", "weft-papers"]) {
        return;
    }
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("models-programs");
    let out = folder.to_str().expect("a path of UTF-8");
    let got = lines(&["models", "--table", "VII,11", "--ranks", "2,3", "--out", out]);
    let of = |table: &str, what: &str| {
        let is_it = |line: &&Value| line["table"] == table && line["what"] == what;
        got.iter().filter(is_it).cloned().collect::<Vec<Value>>()
    };
    for program in PROGRAMS {
        let cells = of("VII", program);
        let ranks: Vec<&Value> = cells.iter().map(|cell| &cell["ranks"]).collect();
        assert_eq!(ranks, [1, 2, 3], "{program}: {got:?}");
        let traffic = of("11", &format!("{program}, packets"));
        assert_eq!(traffic.len(), 2, "{program}");
        let rate = |cell: &Value| cell["value"].as_f64().unwrap();
        assert!(traffic.iter().all(|cell| rate(cell) > 0.0), "{traffic:?}");
    }
    for plot in ["models-vii-speedup", "models-11-packets", "models-11-bytes"] {
        assert!(folder.join(format!("{plot}.png")).is_file(), "{plot}");
        let svg = std::fs::read_to_string(folder.join(format!("{plot}.svg"))).expect(plot);
        assert!(PROGRAMS.iter().all(|name| svg.contains(&format!(">{name}<"))), "{plot}");
    }
}

#[test]
fn models__a_number_of_ranks_that_stands_twice_is_measured_once() {
    if !are_built(&["weft", "weft-papers"]) {
        return;
    }
    let got = lines(&["models", "--table", "vii", "--ranks", "2,2"]);
    assert_eq!(got.len(), PROGRAMS.len() * 2, "one rank and two: {got:?}");
}

#[test]
fn models__refuses_a_folder_before_it_measures() {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("models-no-folder");
    std::fs::write(&file, "").expect("a file");
    let inside = file.join("inside");
    for out in [&file, &inside] {
        let words = ["bench", "models", "--table", "VII", "--quick", "--out"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
        let done = command.args(words).arg(out).output().expect("weft starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains("is no folder"), "{said}");
    }
    std::fs::remove_file(&file).expect("removing the file");
}

/// Returns the processes that have this word in their environment.
fn with_mark(mark: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let has = |process: &std::fs::DirEntry| {
        let of = std::fs::read(process.path().join("environ")).unwrap_or_default();
        of.split(|&byte| byte == 0).any(|word| word == mark.as_bytes())
    };
    all.filter(has).map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn models__stopped_starts_no_further_program_and_prints_no_table() {
    if !are_built(&["weft", "weft-papers"]) {
        return;
    }
    let mark = format!("WEFT_TEST_MARK={}", std::process::id());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    command.args(["bench", "models", "--table", "VII", "--ranks", "2"]);
    command.env("WEFT_TEST_MARK", std::process::id().to_string());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("weft starts");
    // A launcher, at least, beside the benchmark.
    while with_mark(&mark).len() < 2 && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(kill.expect("kill").success());
    let done = child.wait_with_output().expect("an end");
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(!done.status.success() && !printed.contains("Table VII"), "{printed}");
    let left = with_mark(&mark);
    assert!(left.is_empty(), "processes {left:?} are left");
}

#[test]
fn models__choices_of_programs_between_hosts() {
    if !are_built(&["weft", "weft-papers"]) {
        return;
    }
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("models-choices");
    let out = folder.to_str().expect("a path of UTF-8");
    let words = ["models", "--table", "13,14", "--ranks", "2", "--out", out];
    let got = raw_lines(&words);
    if got.is_empty() {
        return;
    }
    let count = |table: &str| got.iter().filter(|line| line["table"] == table).count();
    assert_eq!((count("13"), count("14")), (9 * 4, 4 * 4), "{got:?}");
    assert!(got.iter().any(|line| line["what"] == "SOR, 12288 columns, rcpy, early"), "{got:?}");
    assert!(folder.join("models-13-choices.png").is_file());
}

#[test]
fn models__without_hosts_the_reason_is_said() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    // No program is found that makes the hosts of a lab, or starts others on them.
    command.args(["bench", "models", "--table", "14", "--ranks", "2", "--quick"]).env("PATH", "/");
    let done = command.output().expect("weft starts");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("no program was measured: "), "{said}");
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(printed.contains("Figure 14") && !printed.contains("program "), "{printed}");
}

#[test]
fn apps__four_ranks_beside_one() {
    if !are_built(&["weft", "weft-papers"]) {
        return;
    }
    let got = lines(&["apps"]);
    let apps: Vec<&str> = got.iter().filter_map(|line| line["what"].as_str()).collect();
    assert_eq!(apps, ["asp", "awari", "barnes", "dd", "leq", "puzzle", "qr", "radix", "sor"]);
    assert!(got.iter().all(|line| line["peer_name"] == "1 rank"), "{got:?}");
    assert_eq!(got.iter().filter(|line| line["met"].is_boolean()).count(), 5);
}

#[test]
fn faces__mx_and_via_beside_their_endpoint() {
    for (name, sizes, first) in [("mx", "16,1M", "MX"), ("via", "4,64K", "VIA")] {
        let got = lines(&[name, "--link", "shm", "--size", sizes]);
        let begins = |line: &Value, with: &str| line["what"].as_str().unwrap().starts_with(with);
        let own: Vec<&Value> = got.iter().filter(|line| begins(line, first)).collect();
        assert_eq!(own.len(), 2, "{got:?}");
        // Programs of sockets stand beside virtual interfaces where their library is built.
        assert!(got.iter().all(|line| begins(line, first) || begins(line, "sockets")), "{got:?}");
        for line in own {
            assert_eq!((&line["bench"], &line["link"]), (&name.into(), &"shm".into()));
            assert!(line["floor"].is_number() && line["target_floor"].is_number(), "{line}");
        }
    }
    for line in raw_lines(&["mxoe", "--size", "16,1M"]) {
        assert_eq!(line["bench"], "mxoe");
        assert!(["tcp", "as Open-MX"].contains(&line["peer_name"].as_str().unwrap()), "{line}");
    }
    for (name, size) in [("mx", "16"), ("via", "4")] {
        for line in raw_lines(&[name, "--link", "auto", "--size", size]) {
            assert_eq!((&line["bench"], &line["link"]), (&name.into(), &"auto".into()));
            // Operations of both ranks at once stand beside TCP alone.
            let has_floor = line["what"].as_str().unwrap().contains(", one way");
            assert_eq!(line["floor"].is_number(), has_floor, "{line}");
            assert_eq!(line["peer_name"], "tcp", "{line}");
        }
    }
}

/// A signal to the benchmark alone, not to the programs that it has started.
#[test]
fn apps__stopped_leaves_no_folder_and_no_rank() {
    if !are_built(&["weft", "weft-papers"]) {
        return;
    }
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("apps-stopped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    command.args(["bench", "apps", "--repeat", "1000"]).env("TMPDIR", &folder);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("weft starts");
    // Programs that the benchmark runs have files there as well.
    let is_own =
        |entry: std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"weft-");
    let is_there = || std::fs::read_dir(&folder).expect("a folder").flatten().any(is_own);
    let is_rank = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.contains("(weft") && !stat.contains(") Z")
    };
    let of = |process: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        let lists = tasks.flatten().map(|task| task.path().join("children"));
        let all: String = lists.filter_map(|list| std::fs::read_to_string(list).ok()).collect();
        all.split_whitespace().map(|word| word.parse().expect("a number")).collect::<Vec<u32>>()
    };
    let ranks = loop {
        // Ranks of the launcher that the benchmark has started.
        let ranks: Vec<u32> = of(child.id()).into_iter().flat_map(of).filter(is_rank).collect();
        if is_there() && !ranks.is_empty() {
            break ranks;
        }
        std::thread::yield_now();
    };
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(kill.expect("kill").success());
    let done = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("interrupted, "), "{said}");
    assert!(!is_there(), "a folder is left in {}", folder.display());
    assert!(!ranks.iter().any(is_rank), "a rank is left");
    std::fs::remove_dir_all(&folder).expect("removing the folder");
}

#[test]
fn busy__rows_have_a_target_beside_tcp_also_inside_this_host() {
    let got = lines(&["busy", "--netns", "off", "--size", "8"]);
    for line in &got {
        assert_eq!((&line["bench"], &line["size"]), (&"busy".into(), &8.into()));
        assert_eq!(line["target_peer"], 1.1);
        assert!(line["met"].is_boolean() && line["peer"].is_number(), "{line}");
    }
    assert!(got.iter().any(|line| line["what"] == "endpoints, one way"), "{got:?}");
    let refused = bench(&["busy", "--loaded"]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("load of its own"), "{why}");
}

#[test]
fn busy__interrupted_keeps_what_it_had() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    command.args(["bench", "busy", "--quick", "--netns", "off", "--json"]);
    // No MPI takes part: the endpoints are the first part.
    command.env("PATH", "/usr/bin/none");
    let piped = std::process::Stdio::piped;
    let mut child = command.stdout(piped()).stderr(piped()).spawn().expect("weft starts");
    let mut said = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    std::io::BufRead::read_line(&mut said, &mut first).expect("a line");
    let line: Value = serde_json::from_str(&first).expect("a row");
    assert_eq!(line["bench"], "busy");
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(kill.expect("kill").success());
    let done = child.wait_with_output().expect("an end");
    let why = String::from_utf8_lossy(&done.stderr);
    // The benchmark may have ended by itself just before.
    assert!(done.status.success() || why.contains("all parts before are printed"), "{why}");
}

/// Returns the user without rights that a test takes on, if this process is root: the words before
/// its command. `None`, with the reason printed, if that user cannot run `weft`.
fn without_root() -> Option<Vec<&'static str>> {
    if !rustix::process::geteuid().is_root() {
        return Some(vec!["env"]);
    }
    let words = vec!["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut may = Command::new(words[0]);
    may.args(&words[1..]).args(["test", "-x", env!("CARGO_BIN_EXE_weft-bench")]);
    if !may.status().is_ok_and(|status| status.success()) {
        skip("another user cannot be taken on (setpriv), or cannot run the build");
        return None;
    }
    Some(words)
}

#[test]
fn mpi__programs_of_an_mpi_in_path_run_over_weft() {
    if !are_built(&["weft", "libweft_fi.so"]) {
        return;
    }
    let words = ["mpi", "--size", "16"];
    let why = String::from_utf8_lossy(&bench(&words).stderr).into_owned();
    if why.contains("no MPI here can use weft") {
        return skip("no MPI that can use weft is installed (Debian package openmpi-bin)");
    }
    let got = lines(&words);
    let is_over_weft =
        |line: &&Value| line["what"].as_str().is_some_and(|w| w.contains("round trip"));
    assert!(got.iter().filter(is_over_weft).any(|line| line["value"].is_number()), "{got:?}");
}

#[test]
fn mpi__without_root_measures_inside_the_host_and_says_so() {
    if !are_built(&["weft"]) {
        return;
    }
    let Some(mpis) = std::env::var_os("WEFT_TEST_MPIS") else {
        return skip("needs WEFT_TEST_MPIS=FOLDER with v-mpich (pip install mpich)");
    };
    let mpich = Path::new(&mpis).join("v-mpich");
    let Some(user) = without_root() else { return };
    let folder = std::env::temp_dir().join(format!("weft-bench-mpi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&folder, open).expect("a folder for all");
    let mut command = Command::new(user[0]);
    command.args(&user[1..]).arg(env!("CARGO_BIN_EXE_weft-bench"));
    command.args(["bench", "mpi", "--quick", "--size", "16", "--json"]);
    command.env("VIRTUAL_ENV", mpich).env("PATH", "/usr/bin:/bin").env("HOME", &folder);
    for name in ["TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"] {
        command.env(name, &folder);
    }
    let done = command.output().expect("weft starts");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{out}{err}");
    assert!(err.contains("without root there are no lab hosts"), "{err}");
    let here = out.lines().find(|line| line.contains("mpich, here, half round trip"));
    assert!(here.is_some_and(|line| line.contains("\"value\"")), "{out}{err}");
    std::fs::remove_dir_all(&folder).expect("removing the folder");
}

#[test]
fn interrupted__what_was_measured_is_printed() {
    let sizes: Vec<String> = (64..464).map(|size| size.to_string()).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    command.args(["bench", "pingpong", "--link", "shm", "--quick", "--size", &sizes.join(",")]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("weft starts");
    let err = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    let mut lines = std::io::BufRead::lines(err).map_while(Result::ok);
    // The line of a second size comes when the first one was measured.
    let steps = lines.by_ref().filter(|line| line.contains(": step ")).take(2).count();
    assert_eq!(steps, 2, "the benchmark ended early");
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(kill.expect("kill").success());
    let said: String = lines.collect();
    let done = child.wait_with_output().expect("an end");
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(!done.status.success() && said.contains("interrupted, what was measured"), "{said}");
    let first = out.lines().find(|line| line.starts_with("pingpong over shm, 64 B: "));
    assert!(first.is_some_and(|line| line.ends_with("(median of 1)")), "{out}");
}

#[test]
fn output__to_a_closed_pipe_ends_quietly() {
    // A process started by another test may have a copy of the reading end for a moment: then the
    // pipe only fills, or the command ends normally.
    let ended = (0..50).map(|_| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
        command.args(["pingpong", "--link", "shm", "--size", "8", "--quick"]);
        let done = command.stdout(writer).output().expect("weft starts");
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
        done.status.code()
    });
    let codes: Vec<_> = ended.take_while(|code| *code != Some(141)).collect();
    assert!(codes.len() < 50, "{codes:?}");
}
