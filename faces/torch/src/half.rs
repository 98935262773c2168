//! Floating-point numbers of 16 bits: IEEE 754 binary16, and bfloat16. Reductions combine them as
//! numbers of 32 bits, and round once, to the nearest number, at ties to the even one.

/// Returns the number of a binary16.
pub fn of_f16(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 0x1f, bits & 0x3ff);
    let sign = u32::from(sign) << 31;
    let fraction = u32::from(fraction);
    match exponent {
        0 => {
            // A multiple of 2^-24, which f32 holds exactly.
            let size = fraction as f32 * (1.0 / 16_777_216.0);
            f32::from_bits(sign | size.to_bits())
        }
        0x1f => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (u32::from(exponent) + 112) << 23 | fraction << 13),
    }
}

/// Rounds a number to a binary16.
pub fn to_f16(number: f32) -> u16 {
    let bits = number.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let size = bits & 0x7fff_ffff;
    if size > 0x7f80_0000 {
        // Not a number: quiet, with the upper bits of its payload.
        return sign | 0x7e00 | (size >> 13) as u16 & 0x1ff;
    }
    if size >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if size < 0x3880_0000 {
        // Below 2^-14: a multiple of 2^-24. The sum with 1/2 has its unit in the last place there,
        // so the addition rounds.
        let rounded = f32::from_bits(size) + 0.5;
        return sign | (rounded.to_bits() - 0x3f00_0000) as u16;
    }
    let odd = (size >> 13) & 1;
    let rounded = size + 0xfff + odd - 0x3800_0000;
    sign | (rounded >> 13) as u16
}

/// Returns the number of a bfloat16.
pub fn of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds a number to a bfloat16.
pub fn to_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return (bits >> 16) as u16 | 0x40;
    }
    let odd = (bits >> 16) & 1;
    ((bits + 0x7fff + odd) >> 16) as u16
}
