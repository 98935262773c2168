//! The tag of a packet: SipHash-2-4 (Aumasson and Bernstein, 2012), a keyed code of 64 bits for
//! short inputs. A forger has one guess in 2^64 a packet.

/// A key.
pub type Key = [u8; 16];

/// Returns the key of the packets of one direction.
pub fn of_direction(key: &Key, is_first: bool) -> Key {
    let half = |n: u8| {
        let mut hash = Siphash::new(key);
        hash.update(&[u8::from(is_first), n]);
        hash.finish().to_le_bytes()
    };
    let (mut all, halves) = ([0; 16], [half(0), half(1)]);
    all.copy_from_slice(&halves.concat());
    all
}

/// A tag that is being computed.
#[derive(Clone, Debug)]
pub struct Siphash {
    v: [u64; 4],
    tail: [u8; 8],
    len: usize,
}

fn word(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

impl Siphash {
    /// Begins a tag.
    pub fn new(key: &Key) -> Siphash {
        let (k0, k1) = (word(&key[..8]), word(&key[8..]));
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Siphash { v, tail: [0; 8], len: 0 }
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.v;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.v = [a, b, c, d];
    }

    fn block(&mut self, m: u64) {
        self.v[3] ^= m;
        self.round();
        self.round();
        self.v[0] ^= m;
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        let used = self.len % 8;
        self.len += bytes.len();
        if used > 0 {
            let n = left.len().min(8 - used);
            self.tail[used..used + n].copy_from_slice(&left[..n]);
            left = &left[n..];
            if used + n < 8 {
                return;
            }
            self.block(u64::from_le_bytes(self.tail));
        }
        let whole = left.chunks_exact(8);
        let rest = whole.remainder();
        whole.for_each(|chunk| self.block(word(chunk)));
        self.tail[..rest.len()].copy_from_slice(rest);
    }

    /// Returns the tag.
    pub fn finish(mut self) -> u64 {
        let used = self.len % 8;
        let last = word(&self.tail[..used]) | (self.len as u64) << 56;
        self.block(last);
        self.v[2] ^= 0xff;
        (0..4).for_each(|_| self.round());
        self.v.iter().fold(0, |all, v| all ^ v)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// The vectors of the paper's reference code: key and message are 0, 1, 2 and so on.
    #[test]
    fn siphash__vectors_of_the_reference() {
        let key: Key = std::array::from_fn(|i| i as u8);
        let message: [u8; 15] = std::array::from_fn(|i| i as u8);
        let tag = |len: usize, first: usize| {
            let mut hash = Siphash::new(&key);
            hash.update(&message[..first]);
            hash.update(&message[first..len]);
            hash.finish()
        };
        for (len, want) in [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            for first in 0..=len {
                assert_eq!(tag(len, first), want, "{len} bytes, {first} first");
            }
        }
    }
}
