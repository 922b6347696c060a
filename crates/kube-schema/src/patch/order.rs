//! Order of the elements of a merged list: what the patch names comes in the patch's order, the rest keeps the server's, and the two
//! are interleaved so that neither order is broken.

use std::collections::HashMap;

use serde_json::Value;

/// What identifies an element: the value of the merge key, or the scalar itself. JSON text tells `80`, `80.0` and `"80"` apart.
pub(super) fn identity(item: &Value, merge_key: Option<&str>) -> String {
    match merge_key {
        Some(key) => item.get(key).unwrap_or(&Value::Null).to_string(),
        None => item.to_string(),
    }
}

/// Positions of the elements of a list by identity; the first of equals counts.
pub(super) struct Positions(HashMap<String, usize>);

impl Positions {
    pub fn of(list: &[Value], merge_key: Option<&str>) -> Self {
        let mut out = HashMap::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            out.entry(identity(item, merge_key)).or_insert(index);
        }
        Positions(out)
    }

    pub fn get(&self, identity: &str) -> Option<usize> {
        self.0.get(identity).copied()
    }
}

/// Orders `merged` by `patch_order` and `server_order`.
pub(super) fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &Positions,
    merge_key: Option<&str>,
) -> Vec<Value> {
    let in_patch = Positions::of(patch_order, merge_key);
    let mut from_patch: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut server_only: Vec<(Option<usize>, Value)> = Vec::new();
    for item in merged {
        let id = identity(&item, merge_key);
        match in_patch.get(&id) {
            Some(at) => from_patch.push((at, server_order.get(&id), item)),
            None => server_only.push((server_order.get(&id), item)),
        }
    }
    from_patch.sort_by_key(|(at, ..)| *at);
    server_only.sort_by_key(|(at, _)| *at);

    let mut out = Vec::with_capacity(from_patch.len() + server_only.len());
    let mut left = server_only.into_iter().peekable();
    let mut right = from_patch.into_iter().peekable();
    loop {
        let take_left = match (left.peek(), right.peek()) {
            // Both known to the server: its order decides; an element new to it goes first.
            (Some((Some(l), _)), Some((_, Some(r), _))) => l < r,
            (Some(_), Some(_)) => false,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return out,
        };
        let next = if take_left { left.next().map(|(_, v)| v) } else { right.next().map(|(_, _, v)| v) };
        out.extend(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(names: &[&str]) -> Vec<Value> {
        names.iter().map(|n| json!({"name": n})).collect()
    }

    #[test]
    fn both_orders_are_kept() {
        let server = values(&["a", "b", "c", "d"]);
        let merged = values(&["a", "b", "c", "d", "x"]);
        let out = arrange(merged, &values(&["d", "x", "b"]), &Positions::of(&server, Some("name")), Some("name"));
        assert_eq!(out, values(&["a", "c", "d", "x", "b"]));
    }
}
