//! Days in UTC.

use std::time::Duration;

/// Returns the day in UTC from the time since 1970 (proleptic Gregorian calendar).
pub fn date(since_epoch: Duration) -> String {
    let mut days = since_epoch.as_secs() / 86_400;
    let leap = |year: u64| match year.is_multiple_of(100) {
        true => year.is_multiple_of(400),
        false => year.is_multiple_of(4),
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn date__knows_leap_years() {
        let day = |n: u64| date(Duration::from_secs(n * 86_400));
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(789), "1972-02-29");
        assert_eq!(day(19_782), "2024-02-29");
        assert_eq!(day(20_818), "2026-12-31");
    }
}
