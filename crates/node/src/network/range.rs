//! IPv4 ranges in CIDR form.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::error::Error;

/// A range such as `10.244.1.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Range {
    base: u32,
    prefix: u8,
}

impl Ipv4Range {
    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }

    /// Whether the range holds the address.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask() == self.base
    }

    /// Whether two ranges share an address.
    pub fn overlaps(self, other: Ipv4Range) -> bool {
        self.contains(Ipv4Addr::from(other.base)) || other.contains(Ipv4Addr::from(self.base))
    }

    /// Addresses without the first and the last.
    pub fn hosts(self) -> impl Iterator<Item = Ipv4Addr> {
        let last = self.base | !self.mask();
        (self.base.saturating_add(1)..last).map(Ipv4Addr::from)
    }

    /// The range of loopback addresses that a node gets if it is told none: distinct for most node names.
    pub fn loopback_for(node: &str) -> Ipv4Range {
        let hash = node.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        let [a, b, ..] = hash.to_be_bytes();
        Ipv4Range { base: u32::from(Ipv4Addr::new(127, 64 + a % 64, b, 0)), prefix: 24 }
    }
}

impl fmt::Display for Ipv4Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.prefix)
    }
}

impl FromStr for Ipv4Range {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Option(format!("{text:?} is not an IPv4 range such as 10.244.1.0/24"));
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        if prefix > 32 {
            return Err(wrong());
        }
        let range = Ipv4Range { base: 0, prefix };
        Ok(Ipv4Range { base: u32::from(address) & range.mask(), prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_they_say() {
        let range: Ipv4Range = "10.244.1.7/30".parse().unwrap();
        assert_eq!(range.to_string(), "10.244.1.4/30");
        assert_eq!(range.hosts().collect::<Vec<_>>(), [Ipv4Addr::new(10, 244, 1, 5), Ipv4Addr::new(10, 244, 1, 6)]);
        assert!(range.overlaps("10.244.0.0/16".parse().unwrap()));
        assert!(!range.overlaps("10.245.0.0/16".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Ipv4Range>().unwrap().contains(Ipv4Addr::BROADCAST));
        for wrong in ["10.0.0.0", "10.0.0.0/33", "::/0", "x/8"] {
            assert!(wrong.parse::<Ipv4Range>().is_err(), "{wrong}");
        }
    }
}
