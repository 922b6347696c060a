//! What the files of Secret, ConfigMap, downward API and projected volumes hold: pure, over objects already read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret};

use super::atomic::{File, Files};
use crate::pods::downward::{self, Addresses, Allocatable};
use crate::pods::resources::containers;

/// Mode of a file that sets none.
pub const DEFAULT_MODE: i32 = 0o644;

/// Keys and bytes of a Secret.
pub fn of_secret(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect()
}

/// Keys and bytes of a ConfigMap.
pub fn of_config_map(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()));
    text.chain(binary).collect()
}

/// The files that `items` pick, or all keys if there are none.
pub fn pick(
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&Vec<KeyToPath>>,
    default_mode: i32,
    optional: bool,
    what: &str,
) -> Result<Files, String> {
    let file = |content: &[u8], mode: i32| File { content: content.to_vec(), mode: mode as u32, uid: None };
    let Some(items) = items.filter(|i| !i.is_empty()) else {
        return Ok(data.iter().map(|(key, content)| (key.clone(), file(content, default_mode))).collect());
    };
    let mut files = Files::new();
    for item in items {
        match data.get(&item.key) {
            Some(content) => {
                files.insert(item.path.clone(), file(content, item.mode.unwrap_or(default_mode)));
            }
            None if optional => {}
            None => return Err(format!("{what} references non-existent key: {}", item.key)),
        }
    }
    Ok(files)
}

/// Files of the downward API.
pub fn of_downward(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: i32,
    addresses: &Addresses,
    allocatable: &Allocatable,
) -> Result<Files, String> {
    let mut files = Files::new();
    for item in items {
        let value = if let Some(reference) = &item.field_ref {
            downward::field(pod, &reference.field_path, addresses)?
        } else if let Some(reference) = &item.resource_field_ref {
            let name = reference.container_name.as_deref().unwrap_or("");
            let container = containers(pod).find(|c| c.name == name);
            let container = container.ok_or_else(|| format!("container {name:?} not found"))?;
            downward::resource(container, reference, allocatable)?
        } else {
            return Err(format!("{} refers to nothing", item.path));
        };
        let mode = item.mode.unwrap_or(default_mode) as u32;
        files.insert(item.path.clone(), File { content: value.into_bytes(), mode, uid: None });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_pick_and_a_missing_key_is_named_unless_optional() {
        let data = BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())]);
        let item = |key: &str| KeyToPath { key: key.into(), path: "x/y".into(), mode: Some(0o400) };
        let files = pick(&data, Some(&vec![item("a")]), DEFAULT_MODE, false, "secret").unwrap();
        assert_eq!(files["x/y"], File { content: b"1".to_vec(), mode: 0o400, uid: None });
        assert_eq!(pick(&data, None, DEFAULT_MODE, false, "secret").unwrap().len(), 2);
        let error = pick(&data, Some(&vec![item("c")]), DEFAULT_MODE, false, "secret").unwrap_err();
        assert_eq!(error, "secret references non-existent key: c");
        assert!(pick(&data, Some(&vec![item("c")]), DEFAULT_MODE, true, "secret").unwrap().is_empty());
    }
}
