//! Certificate signing requests. Whether the request is signed by its own key is for whoever has the cryptography to judge; here it
//! must be what PEM and DER demand of one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::names;
use super::super::path::Path;
use super::super::view::{at, list, maybe_int, text, texts};

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const DECIDED: [&str; 3] = ["Approved", "Denied", "Failed"];
const SIGNER_CHARS_MAX: usize = 571;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "signing_request" => signing_request,
        "signer_name" => |c, v, p| signer_name(c, v.as_str().unwrap_or_default(), p),
        _ => return None,
    };
    Some(rule)
}

/// `example.com/signer`.
pub fn signer_name(c: &mut Check<'_>, name: &str, path: &Path<'_>) {
    if name.is_empty() {
        return c.required(path, "");
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, rest] = parts.as_slice() else {
        return c.invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'");
    };
    c.invalid_each(
        path,
        name,
        names::dns_subdomain(domain).into_iter().map(|m| format!("validating label {domain:?}: {m}")).collect(),
    );
    if domain.split('.').count() < 2 {
        c.invalid(path, name, "should be a domain with at least two segments separated by dots");
    }
    for label in rest.split('.') {
        let problems = names::dns_label(label);
        c.invalid_each(path, name, problems.into_iter().map(|m| format!("validating label {label:?}: {m}")).collect());
    }
    if name.len() > SIGNER_CHARS_MAX {
        c.too_long(path, SIGNER_CHARS_MAX);
    }
}

/// The DER of the first PEM block, with its type.
fn pem_block(text: &str) -> Option<(&str, Vec<u8>)> {
    let start = text.find("-----BEGIN ")?;
    let rest = &text[start + 11..];
    let (kind, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once(&format!("-----END {kind}-----"))?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok().map(|der| (kind, der))
}

/// Whether bytes are one DER sequence, to the last byte.
fn is_sequence(der: &[u8]) -> bool {
    let (Some(0x30), Some(&first)) = (der.first(), der.get(1)) else { return false };
    if first < 0x80 {
        return der.len() == 2 + usize::from(first);
    }
    let count = usize::from(first & 0x7f);
    let Some(length) = der.get(2..2 + count).filter(|_| count <= 4) else { return false };
    der.len() == 2 + count + length.iter().fold(0usize, |n, b| n << 8 | usize::from(*b))
}

fn decoded(value: &Value, field: &str) -> Option<String> {
    STANDARD.decode(text(value, field)).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

fn signing_request<'a>(c: &mut Check<'a>, request: &'a Value, root: &Path<'_>) {
    let spec = root.field("spec");
    match decoded(request, "spec.request").as_deref().and_then(pem_block) {
        Some(("CERTIFICATE REQUEST", der)) if is_sequence(&der) => {}
        Some(("CERTIFICATE REQUEST", _)) => {
            c.invalid(&spec.field("request"), text(request, "spec.request"), "asn1: structure error: malformed request");
        }
        _ => {
            let detail = "PEM block type must be CERTIFICATE REQUEST";
            c.invalid(&spec.field("request"), text(request, "spec.request"), detail);
        }
    }
    let usages = texts(request, "spec.usages");
    let known = texts(c.old, "spec.usages");
    let path = spec.field("usages");
    if usages.is_empty() {
        c.required(&path, "");
    }
    if usages != known {
        for (i, usage) in usages.iter().enumerate().filter(|(_, u)| !USAGES.contains(u)) {
            c.not_supported(&path.index(i), *usage, &USAGES);
        }
        for (i, usage) in usages.iter().enumerate().filter(|(i, u)| usages[..*i].contains(u)) {
            c.duplicate(&path.index(i), *usage);
        }
    }
    let signer = text(request, "spec.signerName");
    if signer == "kubernetes.io/legacy-unknown" && text(c.old, "spec.signerName") != signer {
        c.invalid(&spec.field("signerName"), signer, "the legacy signerName is not allowed via this API version");
    } else {
        signer_name(c, signer, &spec.field("signerName"));
    }
    if let Some(seconds) = maybe_int(request, "spec.expirationSeconds").filter(|s| *s < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        c.invalid(&spec.field("expirationSeconds"), seconds, detail);
    }
    conditions(c, request, root);
    certificate(c, request, root);
    if c.is_update() {
        decisions(c, request, root);
    }
}

fn conditions(c: &mut Check<'_>, request: &Value, root: &Path<'_>) {
    let path = root.field("status.conditions");
    let all = list(request, "status.conditions");
    let was = |kind: &str| list(c.old, "status.conditions").iter().any(|o| text(o, "type") == kind);
    let was_both = was("Approved") && was("Denied");
    for (i, condition) in all.iter().enumerate() {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        let place = path.index(i);
        if kind.is_empty() {
            c.required(&place.field("type"), "");
        }
        let allowed: &[&str] = if DECIDED.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            c.required(&place.field("status"), "");
        } else if !allowed.contains(&status) {
            c.not_supported(&place.field("status"), status, allowed);
        }
        let contrary = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !was_both && !contrary.is_empty() && all[..i].iter().any(|o| text(o, "type") == contrary) {
            c.invalid(&path, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if all[..i].iter().any(|o| text(o, "type") == kind) {
            c.duplicate(&place.field("type"), kind);
        }
    }
}

fn certificate(c: &mut Check<'_>, request: &Value, root: &Path<'_>) {
    let found = text(request, "status.certificate");
    let path = root.field("status.certificate");
    if found.is_empty() || found == text(c.old, "status.certificate") {
        return;
    }
    let pem = decoded(request, "status.certificate").unwrap_or_default();
    let problem = match pem_block(&pem) {
        None => "must contain at least one CERTIFICATE PEM block".to_owned(),
        Some(("CERTIFICATE", der)) if is_sequence(&der) => return,
        Some(("CERTIFICATE", _)) => "x509: malformed certificate".to_owned(),
        Some((kind, _)) => format!("only CERTIFICATE PEM blocks are allowed, found {kind:?}"),
    };
    c.invalid(&path, "<certificate data>", problem);
}

/// Who may say what: decisions through `approval`, certificates through `status`, and nothing is taken back.
fn decisions(c: &mut Check<'_>, request: &Value, root: &Path<'_>) {
    let path = root.field("status.conditions");
    let of = |object: &Value, kind: &str| -> Vec<Value> {
        list(object, "status.conditions").iter().filter(|o| text(o, "type") == kind).cloned().collect()
    };
    let subresource = c.write.subresource;
    for kind in DECIDED {
        if of(request, kind).len() < of(c.old, kind).len() {
            c.forbidden(&path, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    if subresource != "approval" {
        for kind in ["Approved", "Denied"] {
            let (now, before) = (of(request, kind), of(c.old, kind));
            if now.len() > before.len() {
                c.forbidden(&path, format!("updates may not add a condition of type {kind:?}"));
            } else if now.len() == before.len() && now != before {
                c.forbidden(&path, format!("updates may not modify a condition of type {kind:?}"));
            }
        }
    }
    if at(request, "status.certificate") != at(c.old, "status.certificate") {
        let path = root.field("status.certificate");
        if subresource != "status" {
            c.forbidden(&path, "updates may not set certificate content");
        } else if !text(c.old, "status.certificate").is_empty() {
            c.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_sequences() {
        assert!(is_sequence(&[0x30, 0x02, 1, 2]) && !is_sequence(&[0x30, 0x02, 1]) && !is_sequence(&[]));
        let (kind, der) = pem_block("-----BEGIN A-----\nMAA=\n-----END A-----\n").unwrap();
        assert_eq!((kind, der.as_slice()), ("A", [0x30u8, 0].as_slice()));
        assert!(pem_block("x").is_none());
    }
}
