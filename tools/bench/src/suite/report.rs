//! The report: one HTML file that needs no other file, and a table for other programs.

use super::advice::{best, ranges, Best};
use super::measure::{Measure, Results};
use super::plan::{carriers, Carrier, Family, Situation};
use super::plot::{plot, show, COLOURS};
use super::Run;
use crate::pair::Sample;
use crate::table::human;
use maud::{html, Markup, PreEscaped, DOCTYPE};
use std::fmt::Write;
use weft_plot::css;

/// Returns a CSV line for each figure.
pub fn csv(results: &Results) -> String {
    let mut out = String::from(
        "place,mtu,load,way,family,reliable,size_bytes,measure,unit,median,min,max,repetitions\n",
    );
    for p in &results.points {
        let (place, mtu) = match p.situation.place {
            super::Place::Between(mtu) => ("between", mtu.to_string()),
            _ => ("inside", String::new()),
        };
        let family = match p.carrier.family {
            Family::Weft => "weft",
            Family::Kernel => "kernel",
            Family::Floor => "floor",
        };
        let unit = match p.measure {
            Measure::Latency => "s",
            Measure::Throughput => "B/s",
            Measure::Efficiency => "B/cpu s",
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{place},{mtu},{},{},{family},{},{},{},{unit},{:e},{:e},{:e},{}",
            p.situation.load(),
            p.carrier.name,
            p.carrier.reliable,
            p.size,
            p.measure.name(),
            p.sample.median,
            p.sample.min,
            p.sample.max,
            p.repeat
        );
    }
    out
}

const STYLE: &str = "
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; color: #1e1e1e; background: #fff; max-width: 1080px;
  margin: 0 auto; padding: 24px }
h1 { font-size: 30px; margin: 0 0 4px } h2 { font-size: 23px; margin: 44px 0 8px }
h3 { font-size: 18px; margin: 28px 0 6px } p { max-width: 76ch } .dim { color: #666 }
code { background: #f3f3f3; padding: 1px 5px; border-radius: 4px }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th, td { text-align: left; padding: 6px 9px; border-bottom: 1px solid #e4e4e4;
  vertical-align: top }
thead th { border-bottom: 2px solid #999; font-weight: 600 }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
td.n small { display: block; color: #777; font-size: 11px } td.top { background: #eaf6ea }
.carrier { display: inline-block; white-space: nowrap; color: #fff; border-radius: 4px;
  padding: 0 7px; font-weight: 600; font-size: 13px }
.row { margin-bottom: 3px } .value { white-space: nowrap; font-weight: 600 }
.warn { background: #fff3d6; border-left: 4px solid #e0a000; padding: 6px 12px }
.small { font-size: 12px; color: #666 }
svg { width: 100%; height: auto; border: 1px solid #eee; border-radius: 6px; margin: 6px 0 }
details { margin: 4px 0 16px } summary { cursor: pointer; color: #245 }
nav a { margin-right: 14px } .scroll { overflow-x: auto }";

/// Returns the report.
pub fn html(run: &Run, results: &Results) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "What to use when: weft bench suite" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(run))
                (contents(results))
                (glance(run, results))
                (by_size(run, results))
                @for (at, situation) in shown(results) {
                    h2 id=(format!("s{at}")) { (situation.title()) }
                    @for measure in Measure::ALL {
                        (section(run, results, situation, measure))
                    }
                }
                (absent(results))
                (PreEscaped(HOW))
            }
        }
    };
    page.into_string()
}

/// Returns the date, the machine and the command, and a warning if the machine had other work.
fn head(run: &Run) -> Markup {
    html! {
        h1 { "What to use when" }
        p.dim {
            (run.date) br;
            (run.machine) br;
            code { (run.command) } br;
            (run.effort) "; " (format!("{:.0} s", run.took.as_secs_f64()))
        }
        @if let Some(busy) = &run.busy {
            p.warn { (busy) }
        }
    }
}

fn contents(results: &Results) -> Markup {
    html! {
        nav {
            a href="#glance" { "At a glance" }
            a href="#sizes" { "By size" }
            @for (at, situation) in shown(results) {
                a href=(format!("#s{at}")) { (situation.title()) }
            }
            a href="#absent" { "Not measured" }
            a href="#how" { "How to read this" }
        }
    }
}

/// Returns the situations that have figures.
fn shown(results: &Results) -> impl Iterator<Item = (usize, Situation)> + '_ {
    let there = |s: &Situation| results.points.iter().any(|p| p.situation == *s);
    Situation::ALL.into_iter().enumerate().filter(move |(_, s)| there(s))
}

/// Returns the name of a channel on its colour.
fn chip(carrier: &Carrier) -> Markup {
    let colour = css(COLOURS[carrier.colour % COLOURS.len()]);
    html! { span.carrier style=(format!("background:{colour}")) { (carrier.name) } }
}

fn heading(measure: Measure) -> &'static str {
    match measure {
        Measure::Latency => "The answer soonest (latency)",
        Measure::Throughput => "The most bytes (throughput)",
        Measure::Efficiency => "The least processor (efficiency)",
    }
}

fn glance(run: &Run, results: &Results) -> Markup {
    html! {
        h2 id="glance" { "At a glance" }
        p {
            "The best channel that delivers all bytes sent, by message size in bytes. If several "
            "are equally good within the spread of this run, the table names the one that is among "
            "the best over the most sizes."
        }
        div.scroll { table {
            thead { tr {
                th { "Situation" }
                @for measure in Measure::ALL { th { (heading(measure)) } }
            } }
            tbody {
                @for (_, situation) in shown(results) {
                    tr {
                        th { (situation.title()) }
                        @for measure in Measure::ALL {
                            td {
                                @for (by, range) in
                                    ranges(results, situation, measure, &run.sizes)
                                {
                                    div.row { (chip(by)) " " (range) }
                                }
                            }
                        }
                    }
                }
            }
        } }
    }
}

fn advice(measure: Measure, best: &Best) -> Markup {
    let note = best.other.as_ref().map(|(other, ratio)| {
        match best.equals.iter().any(|carrier| carrier.name == other.name) {
            true => format!("as good: {}", other.name),
            false => format!("{ratio:.1} times {}", other.name),
        }
    });
    html! {
        (chip(best.carrier))
        div.value { (show(measure, best.value)) }
        @if let Some(note) = note {
            div.small { (note) }
        }
    }
}

fn by_size(run: &Run, results: &Results) -> Markup {
    html! {
        h2 id="sizes" { "By size" }
        p {
            "The best channel and its median; below it, how many times better than the best of the "
            "other kind (weft, or the kernel's own)."
        }
        @for measure in Measure::ALL {
            h3 { (heading(measure)) }
            div.scroll { table {
                thead { tr {
                    th { "Bytes" }
                    @for (_, situation) in shown(results) { th { (situation.title()) } }
                } }
                tbody {
                    @for &size in &run.sizes {
                        tr {
                            th { (human(size)) }
                            @for (_, situation) in shown(results) {
                                td {
                                    @match best(results, situation, measure, size) {
                                        Some(best) => (advice(measure, &best)),
                                        None => "\u{2013}",
                                    }
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn section(run: &Run, results: &Results, s: Situation, measure: Measure) -> Markup {
    let Some(picture) = plot(results, s, measure) else { return Markup::default() };
    let figures = |carrier: &Carrier| -> Vec<Option<Sample>> {
        run.sizes.iter().map(|&size| results.find(s, measure, carrier.name, size)).collect()
    };
    let is_best = |carrier: &Carrier, size| {
        best(results, s, measure, size).is_some_and(|best| best.carrier.name == carrier.name)
    };
    let rows = carriers(s).iter().map(|carrier| (carrier, figures(carrier)));
    html! {
        (PreEscaped(picture.svg(&format!("{}, {}", measure.name(), s.title()))))
        details {
            summary { "The figures: median, and least to most of the repetitions" }
            div.scroll { table {
                thead { tr {
                    th {}
                    @for &size in &run.sizes { th { (human(size)) } }
                } }
                tbody {
                    @for (carrier, row) in rows.filter(|(_, row)| row.iter().any(Option::is_some)) {
                        tr {
                            td { (chip(carrier)) }
                            @for (sample, &size) in row.iter().zip(&run.sizes) {
                                td.n.top[sample.is_some() && is_best(carrier, size)] {
                                    (figure(measure, *sample))
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

/// Returns a cell: median and spread.
fn figure(measure: Measure, sample: Option<Sample>) -> Markup {
    let Some(sample) = sample else { return html! { "\u{2013}" } };
    html! {
        (show(measure, sample.median))
        small { (show(measure, sample.min)) " to " (show(measure, sample.max)) }
    }
}

fn absent(results: &Results) -> Markup {
    // A reason that holds in several situations is printed once.
    let mut reasons: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for absence in &results.absent {
        let same = |r: &&mut (&str, &str, Vec<&str>)| r.0 == absence.carrier && r.1 == absence.why;
        match reasons.iter_mut().find(same) {
            Some(reason) => reason.2.push(&absence.situation),
            None => reasons.push((absence.carrier, &absence.why, vec![&absence.situation])),
        }
    }
    html! {
        h2 id="absent" { "Not measured" }
        @if reasons.is_empty() {
            p { "Everything was." }
        } @else {
            table {
                thead { tr { th { "What" } th { "Why" } th { "Where" } } }
                tbody {
                    @for (carrier, why, situations) in &reasons {
                        tr {
                            td { (carrier) }
                            td { (why) }
                            td.small { (situations.join("; ")) }
                        }
                    }
                }
            }
        }
    }
}

const HOW: &str = "<h2 id=\"how\">How to read this</h2>
<ul>
<li><b>Latency</b> is half a round trip of one message. <b>Throughput</b> is that of a stream in one
direction. <b>Efficiency</b> is the bytes of that stream for each second of processor time, user
and system, of both processes together; what the kernel does in interrupts counts for whoever was
running then.</li>
<li>Lines are medians; the thin upright strokes reach from the least to the most of the
repetitions. Where strokes of two lines overlap, this run cannot tell which is better.</li>
<li>The <b>floor</b> (dashed) is what the machine does without any message passing. Inside a host:
a word handed from core to core (latency up to 4K), a copy by the kernel from the other process
(latency above), memcpy (throughput). Between hosts: bare UDP sockets, spinning (latency), with
GSO and GRO (throughput).</li>
<li><b>Inside a host</b>: two processes on one host of <code>weft lab</code>, on two cores.
<b>Between hosts</b>: on two hosts of a lab, joined by a veth pair: no card and no cable, so these
figures compare software.</li>
<li><b>Loaded</b>: every core also has a thread that computes without pause at the same priority.
Who spins then waits for its time slice.</li>
<li><b>TCP</b> has TCP_NODELAY, <b>TCP Nagle</b> has not; <b>TCP no offload</b> is without
segmentation, coalescing and checksums by the interface; <b>TCP spinning</b> waits without
sleeping (latency only). All others of the kernel block. A pipe holds 1 MiB, a
FIFO 64 KiB; a System V queue takes at most 8 KiB a message, larger ones go in parts.</li>
<li><b>UDP</b> loses what the receiver is too slow for: its throughput is what arrived, and it is
recommended nowhere. A datagram carries at most 65507 bytes, larger messages go in several.</li>
<li>Weft's frames between hosts are authenticated. Messages of up to 4K go by its blocking calls,
larger ones with several under way. A waiting rank spins for a moment, then sleeps.</li>
</ul>
";
