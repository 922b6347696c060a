//! Flow schemas and priority levels.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{at, flag, has, int, list, text, texts};

const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
/// Bits that shuffle sharding takes of a flow's hash.
const HASH_BITS_MAX: u32 = 60;
const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "flow_schema" => flow_schema,
        "priority_level" => priority_level,
        "limit_response" => limit_response,
        _ => return None,
    };
    Some(rule)
}

fn flow_schema<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let precedence = int(spec, "matchingPrecedence");
    let place = path.field("matchingPrecedence");
    if precedence <= 0 {
        c.invalid(&place, precedence, "must be a positive value");
    }
    if precedence > PRECEDENCE_MAX {
        c.invalid(&place, precedence, format!("must not be greater than {PRECEDENCE_MAX}"));
    }
    if precedence == 1 && text(c.write.object, "metadata.name") != "exempt" {
        c.invalid(&place, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    let method = text(spec, "distinguisherMethod.type");
    if has(spec, "distinguisherMethod") && !matches!(method, "ByNamespace" | "ByUser") {
        let shown = at(spec, "distinguisherMethod").clone();
        c.not_supported(&path.field("distinguisherMethod.type"), shown, &["ByNamespace", "ByUser"]);
    }
    let level = path.field("priorityLevelConfiguration.name");
    match text(spec, "priorityLevelConfiguration.name") {
        "" => c.required(&level, "must reference a priority level"),
        name => c.subdomain(&level, name),
    }
    let rules = path.field("rules");
    for (i, rule) in list(spec, "rules").iter().enumerate() {
        policy_rules(c, rule, &rules.index(i));
    }
}

fn policy_rules(c: &mut Check<'_>, rule: &Value, path: &Path<'_>) {
    let subjects = list(rule, "subjects");
    let place = path.field("subjects");
    if subjects.is_empty() {
        c.required(&place, "subjects must contain at least one value");
    }
    for (i, subject) in subjects.iter().enumerate() {
        flow_subject(c, subject, &place.index(i));
    }
    let (resource, other) = (list(rule, "resourceRules"), list(rule, "nonResourceRules"));
    if resource.is_empty() && other.is_empty() {
        c.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    let place = path.field("resourceRules");
    for (i, rule) in resource.iter().enumerate() {
        resource_rule(c, rule, &place.index(i));
    }
    let place = path.field("nonResourceRules");
    for (i, rule) in other.iter().enumerate() {
        let path = place.index(i);
        verbs(c, rule, &path);
        let urls = texts(rule, "nonResourceURLs");
        let place = path.field("nonResourceURLs");
        if !wildcard_stands_alone(
            c,
            rule,
            "nonResourceURLs",
            "nonResourceURLs must contain at least one value",
            "non-resource URLs",
            &path,
        ) {
            continue;
        }
        for (j, url) in urls.iter().enumerate().filter(|(_, u)| **u != "*") {
            if let Some(problem) = url_problem(url) {
                c.invalid(&place.index(j), *url, problem);
            }
        }
    }
}

fn url_problem(url: &str) -> Option<&'static str> {
    let stars = url.matches('*').count();
    Some(match url {
        "" => "must not be empty",
        "/" => return None,
        _ if !url.starts_with('/') => "must start with slash",
        _ if url.contains(' ') => "must not contain white-space",
        _ if url.contains("//") => "must not contain double slash",
        _ if stars > 1 || (stars == 1 && !url.ends_with("/*")) => "wildcard can only do suffix matching",
        _ => return None,
    })
}

/// Demands a value, and nothing beside `*`; tells whether the values are worth a closer look.
fn wildcard_stands_alone(c: &mut Check<'_>, rule: &Value, field: &str, missing: &str, what: &str, path: &Path<'_>) -> bool {
    let values = texts(rule, field);
    if values.is_empty() {
        c.required(&path.field(field), missing);
        return false;
    }
    if values.len() > 1 && values.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        c.invalid(&path.field(field), list(rule, field).to_vec(), detail);
        return false;
    }
    true
}

fn verbs(c: &mut Check<'_>, rule: &Value, path: &Path<'_>) {
    let is_plain = wildcard_stands_alone(c, rule, "verbs", "verbs must contain at least one value", "verbs", path);
    if is_plain && texts(rule, "verbs").iter().any(|v| *v != "*" && !VERBS.contains(v)) {
        c.not_supported(&path.field("verbs"), list(rule, "verbs").to_vec(), &VERBS);
    }
}

fn resource_rule(c: &mut Check<'_>, rule: &Value, path: &Path<'_>) {
    verbs(c, rule, path);
    let missing = "resource rules must supply at least one api group";
    wildcard_stands_alone(c, rule, "apiGroups", missing, "api groups", path);
    let missing = "resource rules must supply at least one resource";
    wildcard_stands_alone(c, rule, "resources", missing, "resources", path);
    if list(rule, "namespaces").is_empty() && flag(rule, "clusterScope") {
        return;
    }
    let missing = "resource rules that are not cluster scoped must supply at least one namespace";
    if wildcard_stands_alone(c, rule, "namespaces", missing, "namespaces", path) {
        let place = path.field("namespaces");
        for (i, namespace) in texts(rule, "namespaces").into_iter().enumerate().filter(|(_, n)| *n != "*") {
            for problem in names::dns_label(namespace) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
                c.invalid(&place.index(i), namespace, detail);
            }
        }
    }
}

fn flow_subject(c: &mut Check<'_>, subject: &Value, path: &Path<'_>) {
    const KINDS: [(&str, &str); 3] = [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
    let kind = text(subject, "kind");
    let Some((_, own)) = KINDS.iter().find(|(k, _)| *k == kind) else {
        return c.not_supported(&path.field("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let body = at(subject, own);
    let place = path.field(own);
    if body.is_null() {
        c.required(&place, format!("{own} is required when subject kind is '{kind}'"));
    } else {
        let name = text(body, "name");
        if name.is_empty() {
            c.required(&place.field("name"), "");
        } else if *own == "serviceAccount" && name != "*" {
            c.subdomain(&place.field("name"), name);
        }
        if *own == "serviceAccount" {
            match text(body, "namespace") {
                "" => c.required(&place.field("namespace"), "must specify namespace for service account"),
                namespace => c.label(&place.field("namespace"), namespace),
            }
        }
    }
    for (other, field) in KINDS.iter().filter(|(k, f)| *k != kind && has(subject, f)) {
        c.forbidden(&path.field(field), format!("{field} is forbidden when subject kind is not '{other}'"));
    }
}

fn priority_level<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let kind = text(spec, "type");
    let is_exempt = text(c.write.object, "metadata.name") == "exempt";
    if is_exempt != (kind == "Exempt") {
        c.invalid(&path.field("type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (limited, exempt) = (at(spec, "limited"), at(spec, "exempt"));
    match kind {
        "Exempt" => {
            if !limited.is_null() {
                c.forbidden(&path.field("limited"), "must be nil if the type is not Limited");
            }
            if !exempt.is_null() {
                c.section("ExemptPriorityLevel", exempt, &path.field("exempt"));
            }
        }
        "Limited" => {
            if !exempt.is_null() {
                c.forbidden(&path.field("exempt"), "must be nil if the type is Limited");
            }
            if limited.is_null() {
                c.required(&path.field("limited"), "must not be empty when type is Limited");
            } else {
                c.section("LimitedPriorityLevel", limited, &path.field("limited"));
            }
        }
        other => c.not_supported(&path.field("type"), other, &["Exempt", "Limited"]),
    }
}

/// Bits that are needed to deal a hand from a deck.
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    (0..hand).map(|i| ((deck - i).max(1) as f64).log2()).sum::<f64>().ceil() as u32
}

fn limit_response<'a>(c: &mut Check<'a>, response: &'a Value, path: &Path<'_>) {
    let queuing = at(response, "queuing");
    let place = path.field("queuing");
    match text(response, "type") {
        "Reject" => {
            if !queuing.is_null() {
                c.forbidden(&place, "must be nil if limited.limitResponse.type is not Limited");
            }
        }
        "Queue" if queuing.is_null() => c.required(&place, "must not be empty if limited.limitResponse.type is Limited"),
        "Queue" => {
            let (length, queues, hand) = (int(queuing, "queueLengthLimit"), int(queuing, "queues"), int(queuing, "handSize"));
            if length <= 0 {
                c.invalid(&place.field("queueLengthLimit"), length, "must be positive");
            }
            if queues <= 0 {
                c.invalid(&place.field("queues"), queues, "must be positive");
            } else if queues > QUEUES_MAX {
                c.invalid(&place.field("queues"), queues, format!("must not be greater than {QUEUES_MAX}"));
            }
            let hand_path = place.field("handSize");
            if hand <= 0 {
                c.invalid(&hand_path, hand, "must be positive");
            } else if hand > queues {
                c.invalid(&hand_path, hand, format!("should not be greater than queues ({queues})"));
            } else if entropy_bits(queues, hand.min(i64::from(HASH_BITS_MAX) + 1)) > HASH_BITS_MAX {
                let detail = format!(
                    "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS_MAX}"
                );
                c.invalid(&hand_path, hand, detail);
            }
        }
        other => c.not_supported(&path.field("type"), other, &["Queue", "Reject"]),
    }
}
