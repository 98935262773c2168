#![allow(non_snake_case)]

use super::*;
use weft_cluster::counters::decode;

fn who(job: &str) -> RankId {
    RankId { job: job.to_string(), rank: 3, size: 4 }
}

#[test]
fn scan__finds_a_page_of_this_process() {
    let job = format!("test-{}", std::process::id());
    let mut page = Page::create(&who(&job)).unwrap();
    page.write(Instant(0), 2, |put| put("messages_sent", 7));
    let found = scan().unwrap();
    let mine = found.iter().find(|s| s.job == job).unwrap();
    assert_eq!((mine.pid, mine.rank, mine.size), (std::process::id(), 3, 4));
    assert_eq!((mine.get("messages_sent"), mine.get("waits"), mine.peers), (7, 0, 2));
    drop(page);
    assert!(!scan().unwrap().iter().any(|s| s.job == job));
}

#[test]
fn scan__the_endpoints_of_a_rank_are_one() {
    let job = format!("two-{}", std::process::id());
    let pages = [1, 5].map(|peers| {
        let mut page = Page::create(&who(&job)).unwrap();
        page.write(Instant(0), peers, |put| put("messages_sent", 7));
        page
    });
    let found = scan().unwrap();
    let mine: Vec<_> = found.iter().filter(|s| s.job == job).collect();
    assert_eq!(mine.len(), 1);
    assert_eq!((mine[0].get("messages_sent"), mine[0].peers), (14, 5));
    drop(pages);
}

#[test]
fn note__at_most_every_interval() {
    let mut page = Page::create(&who("j")).unwrap();
    assert!(page.note(false, Instant(0)), "a new page is written");
    page.write(Instant(0), 0, |_| {});
    assert!(!page.note(false, Instant(u64::MAX)), "nothing changed");
    assert_eq!(page.note_wait(), None);
    assert!(!page.note(true, Instant(1)), "too early");
    let due = page.note_wait().unwrap();
    assert!(page.note(false, due));
}

#[test]
fn decode__refuses_other_pages() {
    let mut words = [0; WORDS];
    assert_eq!(decode(1, &words), None);
    (words[0], words[1]) = (MAGIC, VERSION + 1);
    assert_eq!(decode(1, &words), None);
    (words[1], words[8]) = (VERSION, MOST as u64 + 1);
    assert_eq!(decode(1, &words), None);
    words[8] = u64::MAX;
    assert_eq!(decode(1, &words), None);
}

#[test]
fn decode__any_words_do_no_harm() {
    let mut words = [u64::MAX; WORDS];
    (words[0], words[1], words[8]) = (MAGIC, VERSION, MOST as u64);
    let snapshot = decode(1, &words).unwrap();
    assert!(snapshot.counters.is_empty());
    assert!(snapshot.job.chars().all(|c| c == '?'));
}

#[test]
fn write__long_texts_and_many_counters_are_cut() {
    let job = format!("{}-{}", std::process::id(), "j".repeat(200));
    let mut page = Page::create(&who(&job)).unwrap();
    page.write(Instant(0), 0, |put| {
        (0..2 * MOST).for_each(|i| put(&format!("c{i}_{}", "x".repeat(30)), 1));
    });
    let found = scan().unwrap();
    let mine = found.iter().find(|s| s.job == job[..64]).unwrap();
    assert_eq!(mine.counters.len(), MOST);
}
