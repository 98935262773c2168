//! Round trips.

use super::*;

#[test]
fn rtt__follows_rfc_6298() {
    let mut rtt = Rtt::new(us(1_000), us(10), us(4_000));
    assert_eq!((rtt.rto(), rtt.smoothed(), rtt.min()), (us(1_000), None, None));
    rtt.sample(us(80));
    assert_eq!((rtt.rto(), rtt.smoothed()), (us(80 + 4 * 40), Some(us(80))));
    rtt.sample(us(160));
    // var = 3/4 * 40 + 1/4 * 80, srtt = 7/8 * 80 + 1/8 * 160.
    assert_eq!((rtt.rto(), rtt.smoothed(), rtt.min()), (us(290), Some(us(90)), Some(us(80))));
    for _ in 0..5 {
        rtt.backoff();
    }
    assert_eq!(rtt.rto(), us(4_000));
    rtt.sample(us(90));
    assert!(rtt.rto() < us(290), "a sample ends the backoff");
    for _ in 0..200 {
        rtt.sample(Duration::ZERO);
    }
    assert_eq!(rtt.rto(), us(10));
}

#[test]
fn rtt__extreme_values_saturate() {
    let mut rtt = Rtt::new(Duration::MAX, Duration::ZERO, Duration::MAX);
    rtt.sample(Duration::MAX);
    rtt.sample(Duration::ZERO);
    rtt.sample(Duration::MAX);
    rtt.backoff();
    assert!(rtt.rto() > us(1));
    let odd = Rtt::new(us(1), us(100), us(10));
    assert_eq!(odd.rto(), us(100), "limits the wrong way round: the smaller one rules");
}
