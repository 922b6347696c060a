//! Reads the committed rows of the built-in resources.
//!
//! Keys of a row: `verbs` (`*` = all eight), `short`, `categories`, `virtual` (nothing is stored), `name` (rule of names),
//! `create-on-update`, `unconditional`, `generation` (paths, `-` for none after creation), `generation-from-update` (no generation
//! on create), `reset` (paths), `select` (label or label=path|path), `no-namespace-selector`, `graceful`, `ttl`, `erase`,
//! `stored-as` (GROUP/VERSION/PLURAL/KIND), `deprecated` (since, then what replaces it). Keys of a subresource: `kind` (GROUP/VERSION/KIND), `reset`.

use super::{
    GroupDef, NameRule, ResourceDef, ScalePaths, SchemaSource, SelectableField, StorageIdentity, Strategy, SubresourceDef,
};
use crate::table;

const ROWS: &str = include_str!("../../table/own/resources.txt");

const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn group_name(word: &str) -> String {
    if word == "core" { String::new() } else { word.to_owned() }
}

fn list(value: &str) -> Vec<String> {
    value.split(',').filter(|v| !v.is_empty() && *v != "-").map(str::to_owned).collect()
}

fn verbs(value: &str) -> Vec<String> {
    if value == "*" { ALL_VERBS.iter().map(|v| (*v).to_owned()).collect() } else { list(value) }
}

pub(super) fn selectable(label: &str) -> SelectableField {
    let (label, paths) = label.split_once('=').unwrap_or((label, label));
    SelectableField { label: label.to_owned(), paths: paths.split('|').map(str::to_owned).collect() }
}

fn parse_group(words: &[&str]) -> GroupDef {
    let number = |text: &str| text.parse::<i32>().expect("resources.txt: priorities are numbers");
    GroupDef {
        name: group_name(words[0]),
        priority: number(words[1]),
        versions: words[2..].iter().filter_map(|w| w.split_once(':')).map(|(v, n)| (v.to_owned(), number(n))).collect(),
    }
}

fn parse_strategy(words: &[&str], namespaced: bool) -> Strategy {
    let mut strategy = Strategy { selectable: vec![selectable("metadata.name")], ..Strategy::default() };
    if namespaced || !words.contains(&"no-namespace-selector") {
        strategy.selectable.push(selectable("metadata.namespace"));
    }
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("name", rule) => {
                strategy.name_rule = match rule {
                    "label" => NameRule::Label,
                    "dns1035" => NameRule::Dns1035,
                    "path" => NameRule::PathSegment,
                    "ip" => NameRule::IpAddress,
                    _ => NameRule::Subdomain,
                }
            }
            ("create-on-update", _) => strategy.allows_create_on_update = true,
            ("unconditional", _) => strategy.allows_unconditional_update = true,
            ("generation", paths) => {
                strategy.sets_generation = !words.contains(&"generation-from-update");
                strategy.generation_paths = list(paths);
            }
            ("reset", paths) => strategy.reset_fields = list(paths),
            ("select", labels) => strategy.selectable.extend(list(labels).iter().map(|l| selectable(l))),
            ("graceful", _) => strategy.is_deleted_gracefully = true,
            ("ttl", seconds) => strategy.ttl_seconds = seconds.parse().ok(),
            ("erase", _) => strategy.erases_history = true,
            _ => {}
        }
    }
    strategy
}

fn parse_row(words: &[&str]) -> ResourceDef {
    let (group, version) = words[0].split_once('/').expect("resources.txt: GROUP/VERSION");
    let (group, version, kind) = (group_name(group), version.to_owned(), words[2].to_owned());
    let value = |key: &str| words.iter().find_map(|w| w.strip_prefix(key).and_then(|w| w.strip_prefix('=')));
    let namespaced = words[3] == "namespaced";
    let node = table::type_of_kind(&group, &version, &kind).expect("resources.txt: every kind is in the table");
    let storage = match value("stored-as") {
        Some(identity) => {
            let parts: Vec<&str> = identity.split('/').collect();
            StorageIdentity {
                group: group_name(parts[0]),
                version: parts[1].to_owned(),
                plural: parts[2].to_owned(),
                kind: parts[3].to_owned(),
            }
        }
        None => {
            StorageIdentity { group: group.clone(), plural: words[1].to_owned(), version: version.clone(), kind: kind.clone() }
        }
    };
    ResourceDef {
        list_kind: format!("{kind}List"),
        plural: words[1].to_owned(),
        singular: words[4].to_owned(),
        short_names: list(value("short").unwrap_or_default()),
        categories: list(value("categories").unwrap_or_default()),
        namespaced,
        verbs: verbs(value("verbs").unwrap_or_default()),
        subresources: Vec::new(),
        storage,
        schema: SchemaSource::BuiltIn(node),
        is_stored: !words.contains(&"virtual"),
        strategy: parse_strategy(&words[5..], namespaced),
        scale: None,
        printer_columns: Vec::new(),
        deprecation_warning: value("deprecated").map(|words| {
            let (since, replacement) = words.split_once(';').unwrap_or((words, ""));
            let api = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
            let instead = if replacement.is_empty() { String::new() } else { format!("; use {}", replacement.replace('_', " ")) };
            format!("{api} {kind} is deprecated in {since}+{instead}")
        }),
        group,
        version,
        kind,
    }
}

fn parse_subresource(words: &[&str], row: &mut ResourceDef) {
    let value = |key: &str| words.iter().find_map(|w| w.strip_prefix(key).and_then(|w| w.strip_prefix('=')));
    let own = format!("{}/{}/{}", row.group, row.version, row.kind);
    let mut parts = value("kind").unwrap_or(&own).splitn(3, '/');
    let mut part = || parts.next().unwrap_or_default();
    let subresource = SubresourceDef {
        name: words[0].to_owned(),
        group: group_name(part()),
        version: part().to_owned(),
        kind: part().to_owned(),
        verbs: list(words[1]),
        reset_fields: list(value("reset").unwrap_or_default()),
    };
    if subresource.name == "scale" {
        row.scale = Some(ScalePaths {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            selector: Some("spec.selector".to_owned()),
        });
    }
    row.subresources.push(subresource);
}

pub(super) fn parse() -> (Vec<ResourceDef>, Vec<GroupDef>) {
    let (mut rows, mut groups): (Vec<ResourceDef>, Vec<GroupDef>) = (Vec::new(), Vec::new());
    for line in ROWS.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with(' ') {
            parse_subresource(&words, rows.last_mut().expect("resources.txt: a row before its subresources"));
        } else if words[0] == "group" {
            groups.push(parse_group(&words[1..]));
        } else {
            rows.push(parse_row(&words));
        }
    }
    (rows, groups)
}
