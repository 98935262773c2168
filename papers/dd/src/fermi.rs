//! The Fermi integral of order one half, by the trapezoidal rule.
//!
//! With `x = t^2` the integral becomes `2/sqrt(pi) * integral over all t of t^2 / (1 + e^(t^2 -
//! eta))`. The integrand is analytic in a strip around the real axis, up to the poles at
//! `t = sqrt(eta + i pi)`, so the trapezoidal rule converges as `e^(-2 pi d / h)`, where `d` is
//! half the width of the strip. The step follows the strip: the rule needs some 25 points for `eta`
//! below 0 and 80 for `eta = 10`.

use std::f64::consts::PI;

/// The logarithm of the least error, relative to the integral.
const DIGITS: f64 = 37.0;

/// Below this argument the integral is the exponential, to rounding.
const EXPONENTIAL: f64 = -38.0;

/// The integral and its derivative, with the number of exponentials that they took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integral {
    /// The integral of order one half, normalised: `e^eta` for `eta` far below 0.
    pub value: f64,
    /// Its derivative, which is the integral of order minus one half.
    pub slope: f64,
    /// Exponentials computed.
    pub work: u64,
}

/// Returns the Fermi integral of order one half, to some 1e-14 of its value.
pub fn fermi(eta: f64) -> Integral {
    if eta < EXPONENTIAL {
        let value = eta.exp();
        return Integral { value, slope: value, work: 1 };
    }
    // The imaginary part of the square root of eta + i pi.
    let strip = ((eta.hypot(PI) - eta) / 2.0).sqrt();
    let step = (2.0 * PI * strip / DIGITS).min(0.5);
    let points = ((eta.max(0.0) + DIGITS).sqrt() / step).ceil() as u64;
    let (mut value, mut slope) = (0.0, 0.0);
    for point in 1..=points {
        let t = point as f64 * step;
        let square = t * t;
        let e = (eta - square).exp();
        let filled = match e.is_finite() {
            true => e / (1.0 + e),
            false => 1.0,
        };
        value += square * filled;
        slope += square * filled / (1.0 + e);
    }
    let scale = 4.0 * step / PI.sqrt();
    Integral { value: value * scale, slope: slope * scale, work: points }
}

/// Returns the argument of which `value` is the Fermi integral.
pub fn inverse(value: f64) -> f64 {
    // Below 1 the exponential is near, above the integral grows as eta^1.5.
    let mut eta = match value < 1.0 {
        true => value.ln(),
        false => (value * 3.0 * PI.sqrt() / 4.0).powf(2.0 / 3.0),
    };
    for _ in 0..60 {
        let Integral { value: found, slope, .. } = fermi(eta);
        // Newton's method for the logarithm, which is concave.
        let change = (value / found).ln() * found / slope;
        eta += change;
        if change.is_nan() || change.abs() <= 1e-14 * eta.abs().max(1.0) {
            break;
        }
    }
    eta
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Values of an adaptive quadrature with 30 digits.
    #[test]
    fn fermi__known_values() {
        for (eta, value) in [
            (-4.0, 0.01819820350836711),
            (0.0, 0.765147024625408),
            (1.0, 1.5756407761513007),
            (4.0, 6.511567592754791),
            (10.0, 24.084656964637653),
        ] {
            let found = fermi(eta).value;
            assert!((found / value - 1.0).abs() < 1e-12, "{eta}: {found}");
        }
        assert_eq!(fermi(-60.0).value, (-60f64).exp());
    }

    #[test]
    fn fermi__slope_is_the_derivative() {
        for eta in [-50.0, -37.9, -10.0, -1.0, 0.0, 2.5, 9.0, 30.0] {
            let (e, at) = (1e-4, |eta: f64| fermi(eta).value);
            let slope = (8.0 * (at(eta + e) - at(eta - e))
                - (at(eta + 2.0 * e) - at(eta - 2.0 * e)))
                / (12.0 * e);
            assert!((fermi(eta).slope / slope - 1.0).abs() < 1e-9, "{eta}");
        }
    }

    #[test]
    fn inverse__undoes_it() {
        for eta in [-45.0, -38.0, -20.0, -3.0, 0.0, 0.4, 3.0, 12.0, 40.0] {
            let back = inverse(fermi(eta).value);
            assert!((back - eta).abs() < 1e-11, "{eta}: {back}");
        }
    }
}
