//! Cards that are declared by a specification such as `2xA100-80GB`.

use crate::inventory::Card;
use crate::names::{DeviceUuid, VENDOR};
use crate::{Error, limits};

/// Slots of a declared card: HAMi's default `deviceSplitCount`.
pub const SLOTS_DEFAULT: u32 = 10;

/// `COUNTxMODEL-MEMORY`, several joined by commas: `2xA100-80GB,4xT4-16GB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardSpec {
    groups: Vec<Group>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    count: u32,
    model: String,
    memory_mib: u64,
}

impl std::str::FromStr for CardSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let groups = text
            .split(',')
            .map(|group| parse_group(group.trim()).map_err(|problem| Error::CardSpec { spec: text.to_owned(), problem }))
            .collect::<Result<Vec<_>, _>>()?;
        let total: usize = groups.iter().map(|group| group.count as usize).sum();
        if total > limits::CARDS_PER_NODE_MAX {
            let problem = format!("{total} cards; at most {} on a node", limits::CARDS_PER_NODE_MAX);
            return Err(Error::CardSpec { spec: text.to_owned(), problem });
        }
        Ok(Self { groups })
    }
}

fn parse_group(text: &str) -> Result<Group, String> {
    let form = "expected COUNTxMODEL-MEMORY, for example 2xA100-80GB";
    let (count, card) = text.split_once('x').ok_or(form)?;
    let count: u32 = count.parse().map_err(|_| format!("{count:?} is no count; {form}"))?;
    if !(1..=limits::CARDS_PER_NODE_MAX as u32).contains(&count) {
        return Err(format!("a count of {count}; 1 to {} are possible", limits::CARDS_PER_NODE_MAX));
    }
    let (model, memory) = card.rsplit_once('-').ok_or(form)?;
    if model.is_empty() || !model.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(format!("model {model:?} may hold letters, digits and dashes"));
    }
    let gib: u64 = memory
        .strip_suffix("GB")
        .and_then(|gib| gib.parse().ok())
        .ok_or(format!("memory {memory:?} is not like 80GB; {form}"))?;
    if !(1..=1024).contains(&gib) {
        return Err(format!("memory of {gib} GB; 1 to 1024 are possible"));
    }
    Ok(Group { count, model: model.to_owned(), memory_mib: gib * 1024 })
}

impl CardSpec {
    /// The cards, with UUIDs that depend on `owner` (say tenant and node) and the card's position alone, so that a node
    /// that is made again has the same cards and no two owners share one.
    pub fn cards(&self, owner: &str) -> Vec<Card> {
        let mut cards = Vec::new();
        for group in &self.groups {
            for _ in 0..group.count {
                let index = u32::try_from(cards.len()).expect("a specification holds at most CARDS_PER_NODE_MAX cards");
                cards.push(Card {
                    id: uuid(owner, &group.model, index),
                    index,
                    count: SLOTS_DEFAULT,
                    devmem: group.memory_mib,
                    devcore: 100,
                    kind: format!("{VENDOR}-{}-{}GB", group.model, group.memory_mib / 1024),
                    numa: 0,
                    mode: "hami-core".to_owned(),
                    health: true,
                });
            }
        }
        cards
    }
}

/// A name-based UUID: no secret, so a plain 128-bit FNV-1a is enough.
fn uuid(owner: &str, model: &str, index: u32) -> DeviceUuid {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in owner.bytes().chain([0]).chain(model.bytes()).chain([0]).chain(index.to_be_bytes()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    // FNV alone hardly spreads the last bytes; this does.
    for shift in [67, 59, 71] {
        hash = (hash ^ (hash >> shift)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    }
    hash ^= hash >> 64;
    // RFC 9562 version 8 (custom) and variant bits.
    hash = (hash & !(0xf << 76)) | (0x8 << 76);
    hash = (hash & !(0x3 << 62)) | (0x2 << 62);
    let hex = format!("{hash:032x}");
    DeviceUuid(format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn spec(text: &str) -> CardSpec {
        text.parse().unwrap()
    }

    #[test]
    fn memory_is_binary_and_slots_are_ten() {
        let a100 = spec("2xA100-80GB").cards("tenant-a/worker-a");
        assert_eq!(
            a100.iter().map(|c| (c.index, c.devmem, c.count, c.devcore)).collect::<Vec<_>>(),
            [(0, 81_920, 10, 100), (1, 81_920, 10, 100)]
        );
        let t4 = spec("4xT4-16GB").cards("tenant-b/worker-b");
        assert_eq!(t4.len(), 4);
        assert_eq!(t4[3].devmem, 16_384);
        assert_eq!(t4[3].kind, "NVIDIA-T4-16GB");
        assert_eq!(spec("1xT4-16GB, 1xRTX-PRO-6000-96GB").cards("x")[1].devmem, 98_304);
    }

    #[test]
    fn uuids_are_stable_and_never_shared() {
        let mut seen = BTreeSet::new();
        for owner in ["tenant-a/w", "tenant-b/w"] {
            assert_eq!(spec("4xT4-16GB").cards(owner), spec("4xT4-16GB").cards(owner));
            for card in spec("4xT4-16GB").cards(owner) {
                assert_eq!(card.id.0.len(), "GPU-".len() + 36);
                // Told apart at a glance, not by a digit in the middle.
                assert!(seen.insert(card.id.0[..12].to_owned()));
            }
        }
    }

    #[test]
    fn a_wrong_specification_says_what_is_wrong() {
        for (text, part) in [
            ("A100-80GB", "\"A100-80GB\""),
            ("A100", "COUNTxMODEL-MEMORY"),
            ("0xT4-16GB", "count of 0"),
            ("2xT4-16", "memory"),
            ("2xT4", "COUNTxMODEL-MEMORY"),
            ("1000xT4-16GB", "count of 1000"),
            ("100xT4-16GB,100xT4-16GB", "200 cards"),
            ("2x-16GB", "model"),
            ("", "COUNTxMODEL-MEMORY"),
        ] {
            let error = text.parse::<CardSpec>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
