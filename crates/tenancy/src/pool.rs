//! Ranges of load-balancer addresses: which address is free. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::limits;

/// A pool with its ranges in the order of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    pub auto_assign: bool,
    ranges: Vec<(u32, u32)>,
}

/// Why a pool's text is not usable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("address range {0:?} is neither FIRST-LAST nor CIDR of IPv4 addresses")]
pub struct InvalidRange(pub String);

/// Why a Service gets no address.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    #[error("there is no IPAddressPool: create one that names the addresses to hand out")]
    NoPool,
    #[error("all {0} addresses of the pools are in use: widen an IPAddressPool or delete a LoadBalancer Service")]
    Exhausted(usize),
    #[error("no IPAddressPool holds the address {0} that the Service asks for")]
    NotInPool(Ipv4Addr),
    #[error("the address {0} that the Service asks for is in use by another Service")]
    InUse(Ipv4Addr),
}

impl Pool {
    /// Parses `192.0.2.10-192.0.2.20` and `192.0.2.0/28` forms.
    pub fn parse(name: &str, auto_assign: bool, avoid_buggy: bool, texts: &[String]) -> Result<Pool, InvalidRange> {
        let mut ranges = Vec::new();
        for text in texts {
            let (first, last) = parse_range(text).ok_or_else(|| InvalidRange(text.clone()))?;
            ranges.push((first, last));
        }
        if avoid_buggy {
            ranges = ranges.into_iter().flat_map(split_at_buggy).collect();
        }
        Ok(Pool { name: name.to_owned(), auto_assign, ranges })
    }

    fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last).take(limits::POOL_ADDRESSES_MAX).map(Ipv4Addr::from)
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let number = u32::from(address);
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }

    pub fn size(&self) -> usize {
        self.ranges.iter().map(|(first, last)| (last - first) as usize + 1).sum::<usize>().min(limits::POOL_ADDRESSES_MAX)
    }
}

fn parse_range(text: &str) -> Option<(u32, u32)> {
    if let Some((address, bits)) = text.split_once('/') {
        let (address, bits) = (address.trim().parse::<Ipv4Addr>().ok()?, bits.trim().parse::<u32>().ok()?);
        let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
        (bits <= 32).then(|| (u32::from(address) & mask, u32::from(address) | !mask))
    } else {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim().parse::<Ipv4Addr>().ok()?, last.trim().parse::<Ipv4Addr>().ok()?);
        (first <= last).then(|| (first.into(), last.into()))
    }
}

/// MetalLB's `avoidBuggyIPs`: addresses that end in .0 and .255 are left out.
fn split_at_buggy((first, last): (u32, u32)) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    let mut start = first;
    while start <= last {
        let block_end = (start | 0xff).min(last);
        let low = if start & 0xff == 0 { start + 1 } else { start };
        let high = if block_end & 0xff == 0xff { block_end - 1 } else { block_end };
        if low <= high {
            out.push((low, high));
        }
        match block_end.checked_add(1) {
            Some(next) => start = next,
            None => break,
        }
    }
    out
}

/// Chooses an address for a Service: the one it asks for, else the lowest free one of the first pool that has one.
pub fn assign(pools: &[Pool], in_use: &BTreeSet<Ipv4Addr>, requested: Option<Ipv4Addr>) -> Result<Ipv4Addr, NoAddress> {
    if let Some(address) = requested {
        if !pools.iter().any(|p| p.contains(address)) {
            return Err(NoAddress::NotInPool(address));
        }
        return if in_use.contains(&address) { Err(NoAddress::InUse(address)) } else { Ok(address) };
    }
    let automatic = || pools.iter().filter(|p| p.auto_assign);
    if automatic().next().is_none() {
        return Err(NoAddress::NoPool);
    }
    automatic()
        .flat_map(Pool::addresses)
        .find(|a| !in_use.contains(a))
        .ok_or_else(|| NoAddress::Exhausted(automatic().map(Pool::size).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(texts: &[&str]) -> Pool {
        let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
        Pool::parse("p", true, false, &texts).expect("a pool")
    }

    fn address(text: &str) -> Ipv4Addr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_lowest_free_address_is_given_until_none_is_left() {
        let pools = [pool(&["192.0.2.1-192.0.2.3"])];
        let mut in_use = BTreeSet::new();
        for expected in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
            let given = assign(&pools, &in_use, None).expect("free");
            assert_eq!(given, address(expected));
            in_use.insert(given);
        }
        assert_eq!(assign(&pools, &in_use, None), Err(NoAddress::Exhausted(3)));
        in_use.remove(&address("192.0.2.2"));
        assert_eq!(assign(&pools, &in_use, None), Ok(address("192.0.2.2")));
        assert_eq!(assign(&[], &in_use, None), Err(NoAddress::NoPool));
    }

    #[test]
    fn a_wish_is_met_exactly_or_refused_by_name() {
        let pools = [pool(&["192.0.2.0/30"])];
        let in_use = BTreeSet::from([address("192.0.2.2")]);
        assert_eq!(assign(&pools, &in_use, Some(address("192.0.2.3"))), Ok(address("192.0.2.3")));
        assert_eq!(assign(&pools, &in_use, Some(address("192.0.2.2"))), Err(NoAddress::InUse(address("192.0.2.2"))));
        assert_eq!(assign(&pools, &in_use, Some(address("10.0.0.1"))), Err(NoAddress::NotInPool(address("10.0.0.1"))));
    }

    #[test]
    fn buggy_addresses_are_left_out_on_demand() {
        let pool = Pool::parse("p", true, true, &["192.0.2.254-192.0.3.1".to_owned()]).expect("a pool");
        assert_eq!(pool.addresses().collect::<Vec<_>>(), [address("192.0.2.254"), address("192.0.3.1")]);
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["192.0.2.0/33", "192.0.2.9-192.0.2.1", "x", "1.2.3.4"] {
            let error = Pool::parse("p", true, false, &[text.to_owned()]).expect_err(text);
            assert_eq!(error, InvalidRange(text.to_owned()));
        }
    }
}
