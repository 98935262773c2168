//! The text format of Prometheus, version 0.0.4, read as strictly as `promtool check metrics` does
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::collections::{BTreeMap, BTreeSet};

/// Units that `promtool` requires to be written out, as seconds.
const SHORT_UNITS: [&str; 12] =
    ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "m", "h"];

#[derive(Default)]
struct Metric {
    kind: String,
    help: bool,
    series: BTreeSet<String>,
}

fn named(text: &str, more: &[u8]) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || more.contains(&b);
    !text.is_empty() && !text.as_bytes()[0].is_ascii_digit() && text.bytes().all(good)
}

/// Splits `{a="x",b="y"} 1` into its labels and the rest.
fn labels(text: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut found = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else { return Ok((found, text)) };
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((found, rest));
        }
        let (name, after) = rest.split_once("=\"").ok_or("a label without a quoted value")?;
        if !named(name, b"") {
            return Err(format!("label {name:?}"));
        }
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().ok_or("a value without an end")? {
                (at, '"') => break at,
                (_, '\\') => match chars.next() {
                    Some((_, c @ ('\\' | '"' | 'n'))) => value.push(c),
                    other => return Err(format!("escaped {other:?}")),
                },
                (_, c) => value.push(c),
            }
        };
        if found.insert(name.to_owned(), value).is_some() {
            return Err(format!("label {name} twice"));
        }
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

fn lint(name: &str, kind: &str) -> Result<(), String> {
    let total = name.ends_with("_total");
    if (kind == "counter") != total {
        return Err(format!("a {kind} of this name: counters, and they alone, end in _total"));
    }
    let mut words = name.split('_');
    if let Some(unit) = words.find(|word| SHORT_UNITS.contains(word)) {
        return Err(format!("abbreviated unit {unit}"));
    }
    if name.bytes().any(|b| b.is_ascii_uppercase() || b == b':') {
        return Err("capital letters or colons".into());
    }
    match ["counter", "gauge", "summary", "histogram"].iter().find(|k| name.contains(**k)) {
        Some(kind) => Err(format!("the type {kind} within the name")),
        None => Ok(()),
    }
}

/// Checks one line about the metric `current`, or the first about another.
fn line(
    line: &str,
    all: &mut BTreeMap<String, Metric>,
    current: &mut String,
) -> Result<(), String> {
    let comment = line.strip_prefix("# ").map(|rest| rest.splitn(3, ' ').collect::<Vec<_>>());
    let name = match &comment {
        Some(words) => (*words.get(1).ok_or("a comment without a name")?).to_owned(),
        None => line.split(['{', ' ']).next().unwrap_or_default().to_owned(),
    };
    if !named(&name, b":") {
        return Err(format!("name {name:?}"));
    }
    if *current != name && all.contains_key(&name) {
        return Err("lines of one metric do not stand together".into());
    }
    current.clone_from(&name);
    let metric = all.entry(name.clone()).or_default();
    match comment.as_deref() {
        Some(["HELP", _, text]) if !text.trim().is_empty() && !metric.help => metric.help = true,
        Some(["TYPE", _, kind @ ("counter" | "gauge")])
            if metric.kind.is_empty() && metric.series.is_empty() =>
        {
            metric.kind = (*kind).to_owned();
            lint(&name, kind)?;
        }
        Some(_) => return Err("neither HELP with a text nor TYPE, once, before the values".into()),
        None => {
            let (labels, rest) = labels(&line[name.len()..])?;
            let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
            value.parse::<f64>().map_err(|e| format!("value {value:?}: {e}"))?;
            if !metric.series.insert(format!("{labels:?}")) {
                return Err("the same labels twice".into());
            }
            if metric.kind.is_empty() || !metric.help {
                return Err("a value before HELP and TYPE".into());
            }
        }
    }
    Ok(())
}

/// Checks a text; returns the names of its metrics with the number of their values.
///
/// # Errors
/// The line that breaks a rule, and the rule.
pub fn check(text: &str) -> Result<BTreeMap<String, usize>, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line does not end".into());
    }
    let (mut all, mut current) = (BTreeMap::new(), String::new());
    for words in text.lines() {
        line(words, &mut all, &mut current).map_err(|why| format!("{words}: {why}"))?;
    }
    Ok(all.into_iter().map(|(name, metric)| (name, metric.series.len())).collect())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::check;

    #[test]
    fn check__takes_what_promtool_takes_and_refuses_what_it_refuses() {
        let head = "# HELP a_total Help.\n# TYPE a_total counter\n";
        let good = format!("{head}a_total{{x=\"q\\\"\\\\\\n\",y=\"\"}} 5\na_total 1e3\n");
        assert_eq!(check(&good), Ok([("a_total".to_owned(), 2)].into()));
        for bad in [
            "a_total 1\n".to_owned(),
            format!("{head}a_total 1"),
            format!("{head}a_total 1\na_total 2\n"),
            format!("{head}a_total{{x=\"1\",x=\"2\"}} 1\n"),
            format!("{head}a_total{{x=\"\\q\"}} 1\n"),
            format!("{head}a_total{{1=\"\"}} 1\n"),
            format!("{head}a_total one\n"),
            format!("{head}{head}a_total 1\n"),
            "# TYPE a_total counter\na_total 1\n".to_owned(),
            "# HELP a_total \n# TYPE a_total counter\na_total 1\n".to_owned(),
            "# HELP a Help.\n# TYPE a counter\na 1\n".to_owned(),
            "# HELP a_total Help.\n# TYPE a_total gauge\na_total 1\n".to_owned(),
            "# HELP wait_ns Help.\n# TYPE wait_ns gauge\nwait_ns 1\n".to_owned(),
            format!("{head}a_total 1\n# HELP b x\n# TYPE b gauge\nb 1\na_total{{x=\"\"}} 2\n"),
        ] {
            assert!(check(&bad).is_err(), "{bad}");
        }
    }
}
