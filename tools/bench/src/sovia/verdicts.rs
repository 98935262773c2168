//! The verdicts of the paper: which of them stand here.

use super::{Part, Study, NAME, NATIVE, TCP};
use crate::table::{Other, Row, Table};
use crate::target::{Aim, Check};

/// A verdict of the paper: text with its ratios (M-VIA, cLAN), one figure, the one beside it, size,
/// and the ratio up to which it stands.
type Verdict = (&'static str, (Part, &'static str), (Part, &'static str), usize, f64);

const L: Part = Part::Latency;
const B: Part = Part::Bandwidth;

const VERDICTS: [Verdict; 20] = [
    (
        "the application beats a handler thread (0.69, 0.41)",
        (L, "SOVIA_SINGLE"),
        (L, "SOVIA_HANDLER"),
        4,
        1.0,
    ),
    (
        "a handler thread beats a notify thread (0.94)",
        (L, "SOVIA_HANDLER"),
        (L, "SOVIA_NOTIFY"),
        4,
        1.0,
    ),
    ("SOVIA_SINGLE beats TCP (0.76, 0.22)", (L, "SOVIA_SINGLE"), (L, TCP), 4, 1.0),
    ("native beats TCP (0.57, 0.15)", (L, NATIVE), (L, TCP), 4, 1.0),
    (
        "short messages: a copy beats pinning (0.78, 0.85)",
        (L, "SOVIA_COPY"),
        (L, "SOVIA_REG"),
        4,
        1.0,
    ),
    (
        "long messages: pinning beats a copy (0.97, 0.76)",
        (L, "SOVIA_REG"),
        (L, "SOVIA_COPY"),
        32768,
        1.0,
    ),
    (
        "by length is as good as a copy (1.00, 1.00)",
        (L, "SOVIA_HYBRID"),
        (L, "SOVIA_COPY"),
        4,
        1.05,
    ),
    (
        "by length is as good as pinning (1.00, 1.00)",
        (L, "SOVIA_HYBRID"),
        (L, "SOVIA_REG"),
        32768,
        1.05,
    ),
    ("the layer costs little (1.04, 1.27)", (L, "SOVIA_HYBRID"), (L, NATIVE), 4, 1.3),
    (
        "to copy 1 KiB costs less than to pin it",
        (Part::Memory, "copied, cached"),
        (Part::Memory, "pinned"),
        1024,
        1.0,
    ),
    (
        "to pin 32 KiB costs less than to copy it",
        (Part::Memory, "pinned"),
        (Part::Memory, "copied, cold"),
        32768,
        1.0,
    ),
    (
        "one core: the application beats a handler thread (0.69, 0.41)",
        (Part::OneCore, "SOVIA_SINGLE"),
        (Part::OneCore, "SOVIA_HANDLER"),
        4,
        1.0,
    ),
    (
        "polling beats sleeping (-, 0.54)",
        (L, "SOVIA_HYBRID"),
        (Part::Asleep, "SOVIA_HYBRID"),
        4,
        1.0,
    ),
    ("a window beats none", (B, "SOVIA_FLOWCNTL"), (B, "SOVIA_BASE"), 1024, 1.0),
    (
        "delayed acknowledgements beat prompt ones",
        (B, "SOVIA_DACKS"),
        (B, "SOVIA_FLOWCNTL"),
        1024,
        1.0,
    ),
    (
        "long messages: the layer costs nothing (1.0, 1.0)",
        (B, "SOVIA_DACKS"),
        (B, NATIVE),
        32768,
        0.95,
    ),
    ("long messages: SOVIA_DACKS beats TCP (-, 1.8)", (B, "SOVIA_DACKS"), (B, TCP), 32768, 1.0),
    ("short messages: combining beats none", (B, "SOVIA_COMBINE"), (B, "SOVIA_DACKS"), 4, 1.0),
    (
        "sleeping ends lose little bandwidth (-, 0.96)",
        (Part::Shares, "rate"),
        (B, "SOVIA_COMBINE"),
        32768,
        0.9,
    ),
    (
        "the receiver copies: its user time is the greater",
        (Part::Shares, "sender, user"),
        (Part::Shares, "receiver, user"),
        32768,
        1.0,
    ),
];

impl Study<'_> {
    fn judge(&self, verdict: &Verdict) -> Option<Check> {
        let &(what, (part, name), (other, beside), size, aim) = verdict;
        let ours = self.get(part, name, size)?;
        // Nothing was counted in the time of the measurement.
        let floor = self.get(other, beside, size).filter(|floor| floor.median > 0.0)?;
        let floors = vec![Other { name: beside, sample: Some(floor) }];
        let (_, mut unit, mut better) = part.text();
        if name == "rate" {
            (unit, better) = (B.text().1, B.text().2);
        }
        let rows = vec![Row { what, size, ours, floors, peers: Vec::new() }];
        let (link, notes) = (name, Vec::new());
        let table =
            Table { bench: NAME, link, what: "a verdict of the paper", unit, better, rows, notes };
        Some(Check { table, aim: Aim { floor: Some(aim), peer: None }, goal: None })
    }

    /// Returns each verdict whose figures were measured, which stands if its target is met, and the
    /// texts of the others.
    pub(super) fn verdicts(&self) -> (Vec<Check>, Vec<&'static str>) {
        let files: [Verdict; 2] = [
            (
                "a file comes sooner than over TCP (-, 2.6)",
                (Part::Files, NATIVE),
                (Part::Files, TCP),
                13_827_767,
                1.0,
            ),
            (
                "a longer file, too (-, 2.2)",
                (Part::Files, NATIVE),
                (Part::Files, TCP),
                65_257_948,
                1.0,
            ),
        ];
        let (mut all, mut others) = (Vec::new(), Vec::new());
        for verdict in VERDICTS.iter().chain(&files) {
            match self.judge(verdict) {
                Some(check) => all.push(check),
                None => others.push(verdict.0),
            }
        }
        (all, others)
    }
}
