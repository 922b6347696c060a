//! The cards of a node, as the annotation `hami.io/node-nvidia-register` lists them.
//!
//! Written as JSON; read as JSON or as the older comma-separated form, with 7 or 9 fields a card.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::names::{DeviceUuid, annotation};
use crate::{Error, limits};

/// One physical card. Zero values are left out of the JSON, so an absent `health` means unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// UUID.
    pub id: DeviceUuid,
    /// Position on the node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub index: u32,
    /// Slots, that is Pods that may share it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u32,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub devmem: u64,
    /// Compute in percent; 100 is a whole card.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub devcore: u32,
    /// Model with the vendor before it, `NVIDIA-Tesla T4`.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// NUMA node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numa: u32,
    /// How it is shared: empty or `hami-core`, `mig`, `mps`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Whether it works.
    #[serde(default, skip_serializing_if = "is_false")]
    pub health: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
fn is_zero_u64(value: &u64) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
fn is_false(value: &bool) -> bool {
    !*value
}

impl Card {
    /// The mode, with the default spelled out.
    pub fn mode(&self) -> &str {
        if self.mode.is_empty() { "hami-core" } else { &self.mode }
    }
}

/// Decodes the register annotation.
pub fn decode(text: &str) -> Result<Vec<Card>, Error> {
    let problem = |text: String| Error::annotation(annotation::NODE_REGISTER, text);
    if text.len() > limits::ANNOTATION_BYTES_MAX {
        return Err(problem(format!("{} bytes; at most {}", text.len(), limits::ANNOTATION_BYTES_MAX)));
    }
    let text = text.trim();
    let cards = if text.starts_with('[') {
        serde_json::from_str::<Vec<Card>>(text).map_err(|e| problem(e.to_string()))?
    } else {
        text.split(':').map(str::trim).filter(|entry| !entry.is_empty()).map(decode_csv).collect::<Result<_, _>>()?
    };
    check(&cards).map_err(problem)?;
    Ok(cards)
}

fn check(cards: &[Card]) -> Result<(), String> {
    if cards.len() > limits::CARDS_PER_NODE_MAX {
        return Err(format!("{} cards; at most {}", cards.len(), limits::CARDS_PER_NODE_MAX));
    }
    let mut seen = BTreeSet::new();
    for card in cards {
        if card.id.0.is_empty() {
            return Err("a card has no id".into());
        }
        if !seen.insert(&card.id) {
            return Err(format!("card {} is listed twice", card.id));
        }
        if card.count > limits::SLOTS_PER_CARD_MAX {
            return Err(format!("card {} has {} slots; at most {}", card.id, card.count, limits::SLOTS_PER_CARD_MAX));
        }
    }
    Ok(())
}

/// `id,count,devmem,devcore,type,numa,health[,index,mode]`.
fn decode_csv(entry: &str) -> Result<Card, Error> {
    let problem = |text: String| Error::annotation(annotation::NODE_REGISTER, text);
    let fields: Vec<&str> = entry.split(',').collect();
    if fields.len() != 7 && fields.len() != 9 {
        return Err(problem(format!("card {entry:?} has {} fields; 7 or 9 are expected", fields.len())));
    }
    let number = |at: usize, what: &str| {
        fields[at].parse::<u64>().map_err(|_| problem(format!("card {entry:?}: {what} {:?} is no number", fields[at])))
    };
    let small = |at: usize, what: &str| {
        u32::try_from(number(at, what)?).map_err(|_| problem(format!("card {entry:?}: {what} is too large")))
    };
    Ok(Card {
        id: DeviceUuid::from(fields[0]),
        index: if fields.len() == 9 { small(7, "index")? } else { 0 },
        count: small(1, "count")?,
        devmem: number(2, "devmem")?,
        devcore: small(3, "devcore")?,
        kind: fields[4].to_owned(),
        // A card without a NUMA node was written as -1.
        numa: if fields[5] == "-1" { 0 } else { small(5, "numa")? },
        mode: fields.get(8).map(|mode| (*mode).to_owned()).unwrap_or_default(),
        health: fields[6] == "true",
    })
}

/// Encodes cards as the register annotation, in JSON.
pub fn encode(cards: &[Card]) -> String {
    serde_json::to_string(cards).expect("a card holds strings, numbers and booleans only")
}

/// UUIDs in `hami.io/device-cordon`; blanks and empty entries are ignored.
pub fn decode_cordon(text: &str) -> BTreeSet<DeviceUuid> {
    text.split(',').map(str::trim).filter(|uuid| !uuid.is_empty()).map(DeviceUuid::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_leaves_zeros_out_and_reads_absent_health_as_unhealthy() {
        let cards = decode(r#"[{"id":"GPU-a","count":10,"devmem":8000,"devcore":100,"type":"NVIDIA-Tesla T4"}]"#).unwrap();
        assert!(!cards[0].health);
        assert_eq!((cards[0].index, cards[0].numa), (0, 0));
        assert_eq!(encode(&cards), r#"[{"id":"GPU-a","count":10,"devmem":8000,"devcore":100,"type":"NVIDIA-Tesla T4"}]"#);
    }

    #[test]
    fn json_with_fields_of_other_versions_is_read() {
        let cards = decode(
            r#"[{"id":"GPU-a","index":1,"count":10,"devmem":8000,"devcore":100,"type":"NVIDIA","mode":"hami-core",
                "migtemplate":[],"devicevendor":"NVIDIA","custominfo":{},"health":true}]"#,
        )
        .unwrap();
        assert!(cards[0].health);
        assert_eq!(cards[0].index, 1);
    }

    #[test]
    fn csv_of_seven_and_nine_fields_is_read() {
        let cards = decode("GPU-a,10,8000,100,NVIDIA-Tesla T4,0,true:GPU-b,10,8000,100,NVIDIA-Tesla T4,1,false,1,mig:").unwrap();
        assert_eq!(cards.len(), 2);
        assert!(cards[0].health);
        assert_eq!(cards[0].mode(), "hami-core");
        assert_eq!((cards[1].index, cards[1].numa, cards[1].mode(), cards[1].health), (1, 1, "mig", false));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_never_fewer_cards() {
        for text in ["GPU-a,10,8000:", "GPU-a,ten,8000,100,T4,0,true:", "[{]", r#"[{"id":"a"},{"id":"a"}]"#, r#"[{"id":""}]"#] {
            assert!(decode(text).is_err(), "{text}");
        }
        assert_eq!(decode("").unwrap(), []);
    }

    #[test]
    fn cordon_ignores_blanks() {
        assert_eq!(decode_cordon("dev-1, ,"), [DeviceUuid::from("dev-1")].into());
    }
}
