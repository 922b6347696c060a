//! Amounts in lists of resources.

use atoll_kube_schema::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// One amount of a list in billionths; 0 if it is absent or does not parse.
pub fn of(amounts: Option<&BTreeMap<String, Text>>, name: &str) -> i128 {
    let text = amounts.and_then(|a| a.get(name));
    text.and_then(|text| Quantity::parse(&text.0).ok()).map_or(0, Quantity::nano)
}
