//! Counters as a table that fits its terminal.
//!
//! A new column is one line of [`COLUMNS`].

use super::format::Row;
use super::waits;
use clap::ValueEnum;
use std::cmp::Ordering;
use weft_measure::layout::wrap;

/// One column of the table.
struct Column {
    title: &'static str,
    /// Numbers are aligned to the right.
    right: bool,
    /// Columns with the highest number are left out first where a line is too short; 0 stays.
    leaves: u8,
    text: fn(&Row) -> String,
}

const fn number(title: &'static str, leaves: u8, text: fn(&Row) -> String) -> Column {
    Column { title, right: true, leaves, text }
}

/// All columns, the job's name first: only its width shrinks before a column is left out.
const COLUMNS: [Column; 12] = [
    Column { title: "JOB", right: false, leaves: 0, text: |row| row.job.clone() },
    number("RANK", 0, |row| format!("{}/{}", row.rank, row.size)),
    Column { title: WAITING, right: false, leaves: 1, text: waits::cell },
    Column { title: HOST, right: false, leaves: 2, text: |row| row.host.clone() },
    number(USER, 4, |row| row.user.to_string()),
    number("PID", 3, |row| row.pid.to_string()),
    number("TIME", 4, |row| format!("{:.0}s", row.seconds)),
    number("MSGS/S", 0, |row| format!("{:.0}", row.messages_per_s)),
    number("MB/S", 1, |row| format!("{:.1}", row.bytes_per_s / 1e6)),
    number("RETRANS", 2, |row| row.get("retransmitted").to_string()),
    number("WAITS", 6, |row| row.get("waits").to_string()),
    number("PEERS", 5, |row| row.peers.to_string()),
];

/// Title of the column of long waits; the column is shown while a rank waits for long.
const WAITING: &str = "WAITING";
/// Titles of the columns of hosts and users; the first is shown where there is another host than
/// this, the second where there are several.
const HOST: &str = "HOST";
const USER: &str = "USER";

/// Least width of a job's name, in characters, before columns are left out.
const JOB_LEAST: usize = 12;

/// The order of the ranks; the busiest come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Job, then rank.
    #[default]
    Rank,
    /// Messages per second.
    Messages,
    /// Bytes per second.
    Bytes,
    /// Retransmitted packets.
    Retransmitted,
    /// Age, the oldest first.
    Time,
}

impl Order {
    /// Returns the name of its option.
    fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// Returns the next order; after the last comes the first.
    pub fn next(self) -> Order {
        let all = Order::value_variants();
        let at = all.iter().position(|order| *order == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let first = match self {
            Order::Rank => Ordering::Equal,
            Order::Messages => b.messages_per_s.total_cmp(&a.messages_per_s),
            Order::Bytes => b.bytes_per_s.total_cmp(&a.bytes_per_s),
            Order::Retransmitted => b.get("retransmitted").cmp(&a.get("retransmitted")),
            Order::Time => b.seconds.total_cmp(&a.seconds),
        };
        let place = |row: &Row| (row.job.clone(), row.user, row.rank, row.host.clone(), row.pid);
        first.then_with(|| place(a).cmp(&place(b)))
    }
}

/// Cuts a text to this many characters.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// Returns the columns with their widths, at most `most` characters in all.
fn layout(rows: &[Row], most: usize) -> Vec<(&'static Column, usize)> {
    let natural = |column: &'static Column| {
        let texts = rows.iter().map(|row| (column.text)(row).chars().count());
        (column, texts.max().unwrap_or(0).max(column.title.len()))
    };
    let several = |differ: fn(&Row, &Row) -> bool| rows.windows(2).any(|w| differ(&w[0], &w[1]));
    let shown = COLUMNS.iter().filter(|column| match column.title {
        WAITING => rows.iter().any(|row| row.waiting.is_some()),
        HOST => rows.iter().any(|row| row.is_away),
        USER => several(|a, b| a.user != b.user),
        _ => true,
    });
    let mut kept: Vec<_> = shown.map(natural).collect();
    let name = kept[0].1;
    let rest = |kept: &[(&Column, usize)]| kept[1..].iter().map(|(_, width)| width + 1).sum();
    while name.min(JOB_LEAST) + rest(&kept) > most {
        let Some(last) = kept.iter().map(|(c, _)| c.leaves).max().filter(|l| *l > 0) else { break };
        kept.retain(|(column, _)| column.leaves != last);
    }
    let room: usize = most.saturating_sub(rest(&kept));
    kept[0].1 = name.min(room.max(1));
    kept
}

fn line(columns: &[(&Column, usize)], text: impl Fn(&Column) -> String, most: usize) -> String {
    let mut cells = Vec::with_capacity(columns.len());
    for &(column, width) in columns {
        let text = cut(&text(column), width);
        cells.push(match column.right {
            true => format!("{text:>width$}"),
            false => format!("{text:<width$}"),
        });
    }
    cut(cells.join(" ").trim_end(), most)
}

/// Returns a line about all ranks.
fn summary(rows: &[Row]) -> String {
    let mut jobs: Vec<_> = rows.iter().map(|row| (row.user, row.job.as_str())).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let plural = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let sum = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>();
    format!(
        "{}, {}: {:.0} messages/s, {:.1} MB/s",
        plural(jobs.len(), "job"),
        plural(rows.len(), "rank"),
        sum(|row| row.messages_per_s),
        sum(|row| row.bytes_per_s) / 1e6,
    )
}

/// Returns the text for a user who sees no rank: root sees those of all users.
fn nothing() -> String {
    let whose = if rustix::process::geteuid().is_root() { "" } else { " of this user" };
    format!("no ranks{whose} run here")
}

/// Width and height of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub width: usize,
    /// Lines.
    pub height: usize,
}

/// The part of the table that is shown, and its order.
#[derive(Clone, Copy, Debug, Default)]
pub struct View {
    /// The order of the ranks.
    pub order: Order,
    /// Number of rows before the first one shown.
    pub first: usize,
}

/// Keys that move or sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Lines down, or up where negative.
    Lines(isize),
    /// Pages down, or up where negative.
    Pages(isize),
    /// The next order.
    Sort,
}

/// Lines of a page that show no rank, beside the head: titles, and the help for keys.
const FRAME: usize = 2;

impl Size {
    /// Returns the number of ranks of a page with so many lines at its head.
    fn rows(self, head: usize) -> usize {
        self.height.saturating_sub(FRAME + head).max(1)
    }
}

impl View {
    /// Handles a key. [`page`](Self::page) limits `first`, because only it knows the number of
    /// ranks.
    pub fn press(&mut self, key: Key, size: Size) {
        let lines = match key {
            Key::Lines(lines) => lines,
            Key::Pages(pages) => pages.saturating_mul(size.rows(1) as isize),
            Key::Sort => {
                self.order = self.order.next();
                self.first = 0;
                return;
            }
        };
        self.first = self.first.saturating_add_signed(lines);
    }

    /// Returns a page of the table for a terminal; limits `first` to the rows that there are.
    pub fn page(&mut self, rows: &mut [Row], notes: &[String], size: Size) -> String {
        rows.sort_by(|a, b| self.order.compare(a, b));
        let mut head = match rows.is_empty() {
            true => nothing(),
            // A deadlock matters more than the summary.
            false => waits::deadlocks(rows).into_iter().next().unwrap_or_else(|| summary(rows)),
        };
        notes.iter().for_each(|note| head += &format!("; {note}"));
        let mut lines = wrap(&head, size.width);
        lines.truncate((size.height / 3).max(1));
        let shown = size.rows(lines.len()).min(rows.len());
        self.first = self.first.min(rows.len() - shown);
        let last = self.first + shown;
        let columns = layout(rows, size.width);
        if !rows.is_empty() {
            lines.push(line(&columns, |column| column.title.to_owned(), size.width));
            let page = rows[self.first..last].iter();
            lines.extend(page.map(|row| line(&columns, |c| (c.text)(row), size.width)));
        }
        let mut keys = String::new();
        if shown < rows.len() {
            keys = format!("{}-{last} of {}, arrows and pages move; ", self.first + 1, rows.len());
        }
        lines.push(format!("{keys}by {}, s sorts; q ends", self.order.name()));
        // A terminal too small for the frame shows only ranks.
        if lines.len() > size.height.max(1) {
            let frame = lines.len() - 1 - shown;
            lines = lines.split_off(frame.min(lines.len() - 1));
            lines.truncate(size.height.max(1));
        }
        lines.iter().map(|line| cut(line, size.width)).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the whole table at its full width.
pub fn whole(rows: &mut [Row], notes: &[String], order: Order) -> String {
    if rows.is_empty() {
        let lines = std::iter::once(nothing()).chain(notes.iter().cloned());
        return lines.map(|line| line + "\n").collect();
    }
    rows.sort_by(|a, b| order.compare(a, b));
    let columns = layout(rows, usize::MAX);
    let title = line(&columns, |column| column.title.to_owned(), usize::MAX);
    let lines = rows.iter().map(|row| line(&columns, |c| (c.text)(row), usize::MAX));
    let lines = std::iter::once(title).chain(lines).chain(waits::deadlocks(rows));
    let lines = lines.chain(notes.iter().cloned());
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::look::Seen;
    use super::*;
    use std::time::{Duration, SystemTime};
    use weft::counters::Snapshot;

    /// Returns a rank with counters as large as after a day.
    fn row(job: &str, rank: u64, sent: u64) -> Row {
        let start = SystemTime::now() - Duration::from_secs(86_400);
        let counter = |name: &str, value| (name.to_string(), value);
        Row::new(
            &Seen::here(Snapshot {
                pid: 4_194_303,
                job: job.into(),
                rank,
                size: 4096,
                start,
                updated: start,
                peers: 4095,
                waiting: None,
                counters: [
                    counter("messages_sent", sent),
                    counter("bytes_sent", sent * 1_000_000),
                    counter("retransmitted", 123_456_789),
                    counter("waits", 1_234_567_890),
                ]
                .into(),
            }),
            None,
        )
    }

    fn rows(count: u64) -> Vec<Row> {
        let job = "weft-4194303-0123456789abcdef";
        (0..count).map(|rank| row(job, rank, 86_400 * 100 * (rank + 1))).collect()
    }

    #[test]
    fn page__fits_terminals_of_every_size() {
        for count in [0, 1, 2, 4096] {
            for (width, height) in [(80, 24), (40, 10), (200, 50), (20, 4), (80, 2), (1, 1)] {
                let page = View::default().page(&mut rows(count), &[], Size { width, height });
                assert!(page.lines().count() <= height, "{width}x{height}: {page}");
                let widest = page.lines().map(|line| line.chars().count()).max();
                assert!(widest <= Some(width), "{width}x{height}: {page}");
            }
        }
    }

    #[test]
    fn page__has_job_rank_and_rates_in_80_columns() {
        let page = View::default().page(&mut rows(4096), &[], Size { width: 80, height: 24 });
        for part in ["weft-4194303", "0/4096", "20/4096", "MSGS/S", "MB/S", "RETRANS", "q ends"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.starts_with("1 job, 4096 ranks: "), "{page}");
        assert!(page.contains("1-21 of 4096"), "{page}");
    }

    #[test]
    fn wrap__between_words_and_in_long_ones() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("one two three", 80), ["one two three"]);
        assert_eq!(wrap("a bcdefgh i", 3), ["a", "bcd", "efg", "h i"]);
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(wrap("ab", 0), ["a", "b"]);
    }

    #[test]
    fn page__shows_a_deadlock_whole_in_80_columns() {
        let stuck = super::super::waits::circle("weft-4194303-0123456789abcdef", 4);
        let page = View::default().page(&mut { stuck }, &[], Size { width: 80, height: 24 });
        let head: Vec<&str> = page.lines().take_while(|line| !line.starts_with("JOB")).collect();
        let head = head.join(" ");
        assert!(
            head.starts_with("DEADLOCK in weft-4194303-0123456789abcdef, all 4 ranks"),
            "{page}"
        );
        assert!(head.ends_with("3 for 0 (tag 0x7)"), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
        assert!(page.contains(" 3/4 "), "the ranks follow: {page}");
    }

    #[test]
    fn page__scrolls_to_the_last_rank_and_no_further() {
        let (mut rows, size) = (rows(100), Size { width: 80, height: 13 });
        let mut view = View::default();
        view.press(Key::Lines(-1), size);
        assert!(view.page(&mut rows, &[], size).contains("1-10 of 100"));
        view.press(Key::Pages(1), size);
        view.press(Key::Lines(1), size);
        assert!(view.page(&mut rows, &[], size).contains("12-21 of 100"));
        view.press(Key::Lines(isize::MAX), size);
        let end = view.page(&mut rows, &[], size);
        assert!(end.contains("91-100 of 100") && end.contains("99/4096"), "{end}");
        // The view moves up when ranks end, so that no page is empty.
        assert!(view.page(&mut rows[..20], &[], size).contains("11-20 of 20"));
    }

    #[test]
    fn page__sorts_by_what_was_asked() {
        let (mut rows, size) = (rows(30), Size { width: 80, height: 24 });
        let mut view = View::default();
        let first = |page: &str| page.lines().nth(2).map(str::to_owned).unwrap_or_default();
        assert!(first(&view.page(&mut rows, &[], size)).contains(" 0/4096"));
        view.press(Key::Sort, size);
        assert_eq!(view.order, Order::Messages);
        assert!(first(&view.page(&mut rows, &[], size)).contains("29/4096"));
        for _ in 1..Order::value_variants().len() {
            view.press(Key::Sort, size);
        }
        assert_eq!(view.order, Order::Rank);
    }

    #[test]
    fn whole__shows_every_column_of_every_rank() {
        let table = whole(&mut rows(300), &[], Order::Rank);
        assert_eq!(table.lines().count(), 301);
        assert!(table.contains("weft-4194303-0123456789abcdef") && table.contains("1234567890"));
        let rare = [WAITING, HOST, USER];
        let shown = |column: &Column| rare.contains(&column.title) || table.contains(column.title);
        assert!(COLUMNS.iter().all(shown), "{table}");
    }
}
