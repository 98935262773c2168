//! Types of numbers that are named at run time, numbers of 16 bits, and complex numbers.

use super::element::{Element, Op};
use std::fmt;
use std::ops::{Add, Mul};

/// A floating-point number of 16 bits (IEEE 754 binary16), as its bits.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct F16(pub u16);

/// A floating-point number of 16 bits with the exponent of `f32` (bfloat16), as its bits.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// 2 to the power of 112: the difference of the exponents' biases of `f32` and binary16.
const BIAS: f32 = f32::from_bits((127 + 112) << 23);

impl F16 {
    /// Infinity.
    const INFINITY: u16 = 0x7c00;
    pub(super) const NAN: F16 = F16(0x7e00);

    /// Returns the value.
    #[inline]
    pub fn to_f32(self) -> f32 {
        let bits = u32::from(self.0);
        let sign = (bits & 0x8000) << 16;
        let magnitude = (bits & 0x7fff) << 13;
        // The product makes denormal numbers normal.
        let value = match bits & 0x7c00 == u32::from(F16::INFINITY) {
            true => magnitude | 0xff << 23,
            false => (f32::from_bits(magnitude) * BIAS).to_bits(),
        };
        f32::from_bits(value | sign)
    }

    /// Returns the nearest value; of two, the one whose last bit is zero.
    #[inline]
    pub fn from_f32(value: f32) -> F16 {
        let bits = value.to_bits();
        let (sign, magnitude) = ((bits >> 16) as u16 & 0x8000, bits & 0x7fff_ffff);
        let rest = if magnitude > 0xff << 23 {
            F16::NAN.0
        } else if magnitude >= 0x477f_f000 {
            F16::INFINITY
        } else if magnitude < 113 << 23 {
            // The sum's last bit has the weight of the least denormal number.
            let sum = f32::from_bits(magnitude) + f32::from_bits(126 << 23);
            (sum.to_bits() - (126 << 23)) as u16
        } else {
            let odd = magnitude >> 13 & 1;
            ((magnitude - (112 << 23) + 0xfff + odd) >> 13) as u16
        };
        F16(sign | rest)
    }
}

impl Bf16 {
    pub(super) const NAN: Bf16 = Bf16(0x7fc0);

    /// Returns the value.
    #[inline]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Returns the nearest value; of two, the one whose last bit is zero.
    #[inline]
    pub fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        match value.is_nan() {
            true => Bf16::NAN,
            false => Bf16((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16),
        }
    }
}

/// Defines what numbers of 16 bits have in common with `f32`, by which they are combined.
macro_rules! half {
    ($ty:ident, $name:literal) => {
        impl $ty {
            #[inline]
            pub(super) fn to_le_bytes(self) -> [u8; 2] {
                self.0.to_le_bytes()
            }

            #[inline]
            pub(super) fn from_le_bytes(raw: [u8; 2]) -> $ty {
                $ty(u16::from_le_bytes(raw))
            }

            #[inline]
            pub(super) fn is_nan(self) -> bool {
                self.to_f32().is_nan()
            }

            #[inline]
            pub(super) fn is_sign_negative(self) -> bool {
                self.0 >> 15 == 1
            }

            #[inline]
            pub(super) fn is_sign_positive(self) -> bool {
                self.0 >> 15 == 0
            }
        }

        impl Add for $ty {
            type Output = $ty;

            #[inline]
            fn add(self, other: $ty) -> $ty {
                $ty::from_f32(self.to_f32() + other.to_f32())
            }
        }

        impl Mul for $ty {
            type Output = $ty;

            #[inline]
            fn mul(self, other: $ty) -> $ty {
                $ty::from_f32(self.to_f32() * other.to_f32())
            }
        }

        impl PartialEq for $ty {
            #[inline]
            fn eq(&self, other: &$ty) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $ty {
            #[inline]
            fn partial_cmp(&self, other: &$ty) -> Option<std::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", self.to_f32(), $name)
            }
        }
    };
}

half!(F16, "f16");
half!(Bf16, "bf16");

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

impl<T: Mul<Output = T> + Add<Output = T> + std::ops::Sub<Output = T> + Copy> Mul for Complex<T> {
    type Output = Complex<T>;

    #[inline]
    fn mul(self, other: Complex<T>) -> Complex<T> {
        Complex {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

macro_rules! complex {
    ($ty:ty, $len:literal) => {
        impl Complex<$ty> {
            #[inline]
            pub(super) fn to_le_bytes(self) -> [u8; 2 * $len] {
                let mut raw = [0; 2 * $len];
                raw[..$len].copy_from_slice(&self.re.to_le_bytes());
                raw[$len..].copy_from_slice(&self.im.to_le_bytes());
                raw
            }

            #[inline]
            pub(super) fn from_le_bytes(raw: [u8; 2 * $len]) -> Complex<$ty> {
                let (mut re, mut im) = ([0; $len], [0; $len]);
                re.copy_from_slice(&raw[..$len]);
                im.copy_from_slice(&raw[$len..]);
                Complex { re: <$ty>::from_le_bytes(re), im: <$ty>::from_le_bytes(im) }
            }
        }
    };
}

complex!(f32, 4);
complex!(f64, 8);

/// A type of numbers, where a program knows it only at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// `i8`
    I8,
    /// `u8`
    U8,
    /// `i16`
    I16,
    /// `u16`
    U16,
    /// `i32`
    I32,
    /// `u32`
    U32,
    /// `i64`
    I64,
    /// `u64`
    U64,
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// [`F16`]
    F16,
    /// [`Bf16`]
    Bf16,
    /// A byte that is 0 or not, as `bool`
    Bool,
    /// `Complex<f32>`
    ComplexF32,
    /// `Complex<f64>`
    ComplexF64,
}

/// Calls a generic function with the type of a number.
macro_rules! of_type {
    ($number:expr, $function:ident) => {
        match $number {
            Number::I8 => $function::<i8>,
            Number::U8 => $function::<u8>,
            Number::I16 => $function::<i16>,
            Number::U16 => $function::<u16>,
            Number::I32 => $function::<i32>,
            Number::U32 => $function::<u32>,
            Number::I64 => $function::<i64>,
            Number::U64 => $function::<u64>,
            Number::F32 => $function::<f32>,
            Number::F64 => $function::<f64>,
            Number::F16 => $function::<F16>,
            Number::Bf16 => $function::<Bf16>,
            Number::Bool => $function::<bool>,
            Number::ComplexF32 => $function::<Complex<f32>>,
            Number::ComplexF64 => $function::<Complex<f64>>,
        }
    };
}

impl Number {
    /// Returns the size of a value in bytes.
    pub fn size(self) -> usize {
        const fn size<T: Element>() -> usize {
            T::SIZE
        }
        of_type!(self, size)()
    }

    /// True if values can be combined by `op`.
    pub fn takes(self, op: Op) -> bool {
        fn takes<T: Element>(op: Op) -> bool {
            T::takes(op)
        }
        of_type!(self, takes)(op)
    }

    /// Returns the way in which values are combined.
    pub(super) fn kernel(self, op: Op) -> Kernel {
        let of = of_type!(self, kernel_of);
        of(op)
    }
}

fn kernel_of<T: Element>(op: Op) -> Kernel {
    Kernel::of::<T>(op)
}

/// The way in which encoded values of one type are combined.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    /// Bytes of a value.
    pub size: usize,
    /// Name of the type.
    pub name: &'static str,
    pub op: Op,
    fold: fn(&mut [u8], &[u8], Op),
    divide: fn(&mut [u8], usize),
}

impl Kernel {
    pub fn of<T: Element>(op: Op) -> Kernel {
        Kernel { size: T::SIZE, name: T::NAME, op, fold: T::fold_bytes, divide: T::divide_bytes }
    }

    /// Combines `all` with `bytes`.
    pub fn fold(&self, all: &mut [u8], bytes: &[u8]) {
        (self.fold)(all, bytes, self.op);
    }

    /// Ends the combination of values of so many ranks.
    pub fn finish(&self, all: &mut [u8], ranks: usize) {
        if self.op == Op::Average {
            (self.divide)(all, ranks);
        }
    }
}
