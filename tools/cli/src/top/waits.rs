//! Ranks that wait, and jobs in which no rank can continue.

use super::format::Row;
use std::collections::BTreeMap;
use weft::counters::{AwaitedOp, Waiting};

/// Seconds after which a wait may be part of a deadlock: a lost message has been retransmitted by
/// then.
const LONG: f64 = 5.0;

/// Returns the ranks that a rank waits for: numbers, `any`, or `?` for a peer of unknown rank.
pub fn whom(waiting: &Waiting) -> String {
    let one = |awaited: &AwaitedOp| match awaited.rank {
        Some(rank) => rank.to_string(),
        None if awaited.anybody => "any".to_string(),
        None => "?".to_string(),
    };
    let mut all: Vec<String> = waiting.awaited.iter().map(one).collect();
    all.dedup();
    if waiting.count > waiting.awaited.len() as u64 {
        all.push("...".into());
    }
    all.join(",")
}

/// Returns the cell of the table: seconds of the wait, and the ranks awaited.
pub fn cell(row: &Row) -> String {
    let waiting = row.waiting.as_ref();
    waiting.map_or(String::new(), |w| format!("{:.0}s for {}", w.ago.as_secs_f64(), whom(w)))
}

/// Returns the ranks of a job that wait only for each other, so that none of them can continue.
fn stuck<'a>(job: &[&'a Row]) -> Vec<&'a Row> {
    let long = |row: &Row| row.waiting.as_ref().is_some_and(|w| w.ago.as_secs_f64() >= LONG);
    let mut stuck: BTreeMap<u64, &Row> =
        job.iter().filter(|row| long(row)).map(|row| (row.rank, *row)).collect();
    loop {
        let all = job.first().is_some_and(|row| stuck.len() as u64 == row.size);
        let hopes = |row: &Row| {
            let Some(waiting) = &row.waiting else { return true };
            let unnamed = waiting.count > waiting.awaited.len() as u64;
            let hope = |awaited: &AwaitedOp| match awaited.rank {
                Some(rank) => !stuck.contains_key(&u64::from(rank)),
                None => !all,
            };
            unnamed && !all || waiting.awaited.iter().any(hope)
        };
        let going: Vec<u64> =
            stuck.iter().filter(|(_, row)| hopes(row)).map(|(rank, _)| *rank).collect();
        if going.is_empty() {
            return stuck.into_values().collect();
        }
        stuck.retain(|rank, _| !going.contains(rank));
    }
}

/// Returns a line for each job with a deadlock: its waiting ranks and those that they wait for.
pub fn deadlocks(rows: &[Row]) -> Vec<String> {
    // Jobs of two users may have one name.
    let mut jobs: BTreeMap<(u32, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        jobs.entry((row.user, &row.job)).or_default().push(row);
    }
    let said = |((_, job), rows): ((u32, &str), Vec<&Row>)| {
        let stuck = stuck(&rows);
        let one = |row: &&Row| {
            let waiting = row.waiting.as_ref()?;
            let tag = waiting.awaited.first()?.tag;
            let who = whom(waiting).replace("any", "any rank");
            Some(format!("{} for {who} (tag {:#x})", row.rank, tag))
        };
        let list: Vec<String> = stuck.iter().filter_map(one).collect();
        let size = rows.first()?.size;
        let ranks = match stuck.len() as u64 {
            0 => return None,
            all if all == size => format!("all {all} ranks"),
            some => format!("{some} of {size} ranks"),
        };
        Some(format!("DEADLOCK in {job}, {ranks} wait: {}", list.join(", ")))
    };
    jobs.into_iter().filter_map(said).collect()
}

/// Returns a job of `size` ranks of which each waits for the next.
#[cfg(test)]
pub fn circle(job: &str, size: u64) -> Vec<Row> {
    let next = |rank| Some(((rank + 1) % size) as u32);
    let mut rows: Vec<Row> =
        (0..size).map(|rank| tests::row(rank, size, 9, &[next(rank)])).collect();
    rows.iter_mut().for_each(|row| row.job = job.to_owned());
    rows
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::look::Seen;
    use super::*;
    use std::time::{Duration, SystemTime};
    use weft::counters::Snapshot;
    use weft::OpKind;

    /// Returns a rank of a job of `size` that has waited for `secs` for these; `None`: any rank.
    pub fn row(rank: u64, size: u64, secs: u64, of: &[Option<u32>]) -> Row {
        let awaited = |&rank: &Option<u32>| AwaitedOp {
            kind: OpKind::Recv,
            anybody: rank.is_none(),
            rank,
            tag: 7,
        };
        let waiting = Waiting {
            ago: Duration::from_secs(secs),
            count: of.len() as u64,
            awaited: of.iter().map(awaited).collect(),
        };
        let snapshot = Snapshot {
            pid: 1,
            job: "j".into(),
            rank,
            size,
            start: SystemTime::now(),
            updated: SystemTime::now(),
            peers: 0,
            waiting: (!of.is_empty()).then_some(waiting),
            counters: BTreeMap::new(),
        };
        Row::new(&Seen::here(snapshot), None)
    }

    fn ranks(rows: &[Row]) -> Vec<u64> {
        stuck(&rows.iter().collect::<Vec<_>>()).iter().map(|row| row.rank).collect()
    }

    #[test]
    fn stuck__a_circle_of_waits_and_the_ranks_that_wait_for_it() {
        let two = [row(0, 2, 9, &[Some(1)]), row(1, 2, 9, &[Some(0)])];
        assert_eq!(ranks(&two), [0, 1]);
        let said = deadlocks(&two);
        assert_eq!(said, ["DEADLOCK in j, all 2 ranks wait: 0 for 1 (tag 0x7), 1 for 0 (tag 0x7)"]);
        let three = [row(0, 3, 9, &[Some(1)]), row(1, 3, 9, &[Some(0)]), row(2, 3, 9, &[])];
        assert_eq!(ranks(&three), [0, 1], "the third goes on, which helps nobody");
        let tail = [row(0, 3, 9, &[Some(1)]), row(1, 3, 9, &[Some(0)]), row(2, 3, 9, &[Some(0)])];
        assert_eq!(ranks(&tail), [0, 1, 2]);
    }

    #[test]
    fn stuck__no_rank_where_one_may_go_on() {
        let chain = [row(0, 3, 9, &[Some(1)]), row(1, 3, 9, &[Some(2)]), row(2, 3, 9, &[])];
        assert_eq!(ranks(&chain), [0; 0]);
        let short = [row(0, 2, 9, &[Some(1)]), row(1, 2, 1, &[Some(0)])];
        assert_eq!(ranks(&short), [0; 0], "a message may be on its way");
        let either =
            [row(0, 3, 9, &[Some(1), Some(2)]), row(1, 3, 9, &[Some(0)]), row(2, 3, 9, &[])];
        assert_eq!(ranks(&either), [0; 0], "either may end the wait");
        // Two of four ranks run on another host and are unknown here.
        let any = [row(0, 4, 9, &[None]), row(1, 4, 9, &[Some(0)])];
        assert_eq!(ranks(&any), [0; 0]);
    }

    #[test]
    fn stuck__all_of_a_job_wait_for_any_rank() {
        let all = [row(0, 2, 9, &[None]), row(1, 2, 9, &[None])];
        assert_eq!(ranks(&all), [0, 1]);
        assert!(deadlocks(&all)[0].contains("0 for any rank"));
    }
}
