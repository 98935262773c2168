//! Round-trip estimation and the retransmission timeout (RFC 6298).

use core::time::Duration;

/// Round-trip estimator of one path.
#[derive(Clone, Debug)]
pub struct Rtt {
    /// All times in nanoseconds; `srtt` and `min` are meaningless until `sampled`.
    srtt: u64,
    var: u64,
    min: u64,
    rto: u64,
    min_rto: u64,
    max_rto: u64,
    sampled: bool,
}

impl Rtt {
    /// Makes an estimator. `initial_rto` holds until the first sample; afterwards the timeout stays
    /// within `min_rto..=max_rto`.
    pub fn new(initial_rto: Duration, min_rto: Duration, max_rto: Duration) -> Rtt {
        let min_rto = nanos(min_rto).max(1);
        let max_rto = nanos(max_rto).max(min_rto);
        let rto = nanos(initial_rto).clamp(min_rto, max_rto);
        Rtt { srtt: 0, var: 0, min: 0, rto, min_rto, max_rto, sampled: false }
    }

    /// Handles a measured round trip and ends any backoff.
    pub fn sample(&mut self, rtt: Duration) {
        let rtt = nanos(rtt);
        if self.sampled {
            // RFC 6298, 2.3: the variance first, alpha 1/8, beta 1/4.
            self.var = self.var - self.var / 4 + self.srtt.abs_diff(rtt) / 4;
            self.srtt = self.srtt - self.srtt / 8 + rtt / 8;
            self.min = self.min.min(rtt);
        } else {
            (self.srtt, self.var, self.min, self.sampled) = (rtt, rtt / 2, rtt, true);
        }
        self.end_backoff();
    }

    /// Sets the timeout to the value of the measured round trips again.
    pub fn end_backoff(&mut self) {
        if self.sampled {
            let rto = self.srtt.saturating_add(self.var.saturating_mul(4));
            self.rto = rto.clamp(self.min_rto, self.max_rto);
        }
    }

    /// Returns the retransmission timeout.
    #[inline]
    pub fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto)
    }

    /// Doubles the timeout after it fired, up to the largest.
    pub fn backoff(&mut self) {
        self.rto = self.rto.saturating_mul(2).min(self.max_rto);
    }

    /// Returns the smoothed round trip, once measured.
    pub fn smoothed(&self) -> Option<Duration> {
        self.sampled.then(|| Duration::from_nanos(self.srtt))
    }

    /// Returns the smallest round trip, once measured.
    pub fn min(&self) -> Option<Duration> {
        self.sampled.then(|| Duration::from_nanos(self.min))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
