//! Volumes: one source each, and what spans a source's fields.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, flag, has, int, is_empty, list, maybe_int, text};
use super::super::{formats, meta, names, selectors, tables};

/// Sources of a pod's volume, in the order in which they are looked for. `field:name` where upstream's path has another name.
const POD_SOURCES: &str = "emptyDir hostPath gitRepo gcePersistentDisk:persistentDisk awsElasticBlockStore secret nfs iscsi glusterfs \
    flocker persistentVolumeClaim rbd cinder cephfs quobyte downwardAPI fc flexVolume configMap azureFile vsphereVolume \
    photonPersistentDisk portworxVolume azureDisk storageos projected scaleIO csi ephemeral image";
/// The same for persistent volumes.
const PERSISTENT_SOURCES: &str = "hostPath gcePersistentDisk:persistentDisk awsElasticBlockStore glusterfs flocker nfs rbd quobyte cephfs \
    iscsi cinder fc flexVolume azureFile vsphereVolume photonPersistentDisk portworxVolume azureDisk scaleIO local storageos csi";
const CSI_DRIVER_CHARS_MAX: usize = 63;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "pod_volumes" => pod_volumes,
        "empty_dir" => empty_dir,
        "absolute_path" => absolute_path,
        "iscsi_names" => iscsi_names,
        "iscsi_secret" => iscsi_secret,
        "flocker" => flocker,
        "quobyte" => quobyte,
        "downward_items" => downward_items,
        "fibre_channel" => fibre_channel,
        "flex_options" => flex_options,
        "not_empty" => |c, v, p| {
            if is_empty(v) {
                c.required(p, "");
            }
        },
        "azure_disk_uri" => azure_disk_uri,
        "projections" => projections,
        "csi_driver_name" => |c, v, p| csi_driver_name(c, v.as_str().unwrap_or_default(), p),
        "csi_secret_name" => csi_secret_name,
        "claim_template_metadata" => claim_template_metadata,
        "image_volume" => image_volume,
        _ => return None,
    };
    Some(rule)
}

fn pod_volumes<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let pod_name = if c.pod.is_pod { text(c.write.object, "metadata.name") } else { "" };
    let volumes = list(spec, "volumes");
    let created: Vec<String> = volumes
        .iter()
        .filter(|v| !pod_name.is_empty() && has(v, "ephemeral"))
        .map(|v| format!("{pod_name}-{}", text(v, "name")))
        .collect();
    let path = path.field("volumes");
    for (i, template) in c.claim_templates.clone().into_iter().enumerate() {
        if template.is_empty() {
            c.required(&path.index(i).field("name"), "");
        } else {
            c.label(&path.index(i).field("name"), template);
        }
        c.pod.volumes.push((template, spec));
    }
    for (i, volume) in volumes.iter().enumerate() {
        let name = text(volume, "name");
        if c.claim_templates.contains(&name) {
            continue;
        }
        let path = path.index(i);
        let before = c.errors.len();
        union(c, volume, &path, POD_SOURCES, "Volume");
        names_of_volume(c, volume, pod_name, &path);
        if name.is_empty() {
            c.required(&path.field("name"), "");
        } else {
            c.label(&path.field("name"), name);
        }
        if c.pod.volumes.iter().any(|(n, _)| *n == name) {
            c.duplicate(&path.field("name"), name);
        }
        if c.errors.len() == before {
            c.pod.volumes.push((name, volume));
        }
        let claim = text(volume, "persistentVolumeClaim.claimName");
        if has(volume, "persistentVolumeClaim") && created.iter().any(|n| n == claim) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            c.invalid(&path.field("persistentVolumeClaim.claimName"), claim, detail);
        }
    }
}

/// Names that are made of a volume's name.
fn names_of_volume(c: &mut Check<'_>, volume: &Value, pod_name: &str, path: &Path<'_>) {
    let name = text(volume, "name");
    if has(volume, "iscsi.initiatorName") && name.len() + 1 + text(volume, "iscsi.targetPortal").len() > 64 {
        let detail =
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        c.invalid(&path.field("name"), name, detail);
    }
    if has(volume, "ephemeral") && !pod_name.is_empty() && !name.is_empty() {
        let claim = format!("{pod_name}-{name}");
        for problem in names::dns_subdomain(&claim) {
            c.invalid(&path.field("name"), name, format!("PVC name {claim:?}: {problem}"));
        }
    }
}

/// Demands exactly one source and applies its rows.
fn union<'a>(c: &mut Check<'a>, holder: &'a Value, path: &Path<'_>, sources: &str, kind: &str) {
    let mut is_found = false;
    for source in sources.split(' ') {
        let (field, shown) = source.split_once(':').unwrap_or((source, source));
        let value = at(holder, field);
        if value.is_null() {
            continue;
        }
        if is_found && field != "flexVolume" {
            let shown = match field {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                other => other,
            };
            c.forbidden(&path.field(shown), "may not specify more than 1 volume type");
            continue;
        }
        is_found = true;
        let own = format!("{kind}.{field}");
        let section = if tables::has_section(&own) { own } else { format!("Volume.{field}") };
        c.section(&section, value, &path.field(shown));
    }
    if !is_found {
        c.required(path, "must specify a volume type");
    }
}

/// The source of a persistent volume.
pub fn persistent_source<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    union(c, spec, path, PERSISTENT_SOURCES, "PersistentVolume");
}

/// The source fields of a persistent volume.
pub fn persistent_source_fields() -> impl Iterator<Item = &'static str> {
    PERSISTENT_SOURCES.split(' ').filter(|f| !f.is_empty()).map(|f| f.split_once(':').map_or(f, |(field, _)| field))
}

fn empty_dir<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    if super::resources::quantity(at(source, "sizeLimit")).is_some_and(crate::Quantity::is_negative) {
        c.forbidden(&path.field("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

fn absolute_path<'a>(c: &mut Check<'a>, value: &'a Value, path: &Path<'_>) {
    let text = value.as_str().unwrap_or_default();
    if !text.starts_with('/') {
        c.invalid(path, text, "must be an absolute path");
    }
}

/// Whether a name of an iSCSI node is well-formed, by its prefix; `None` for an unknown prefix.
fn iscsi_name(name: &str) -> Option<bool> {
    let is_hex = |s: &str| s.bytes().all(|b| b.is_ascii_hexdigit());
    match name.get(..3)? {
        "iqn" => {
            let rest = name.strip_prefix("iqn.")?;
            let (date, domain) = (rest.get(..7), rest.get(7..).unwrap_or_default());
            let is_date =
                date.is_some_and(|d| d.bytes().enumerate().all(|(i, b)| if i == 4 { b == b'-' } else { b.is_ascii_digit() }));
            let after = domain.strip_prefix('.').unwrap_or_default();
            Some(is_date && after.split_once(':').map_or(after, |(d, _)| d).len() > 1)
        }
        "eui" => Some(name.strip_prefix("eui.").is_some_and(|d| d.len() == 16 && is_hex(d))),
        "naa" => Some(name.strip_prefix("naa.").is_some_and(|d| (d.len() == 16 || d.len() == 32) && is_hex(d))),
        _ => None,
    }
}

fn iscsi_names<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    for (field, shown) in [("iqn", "iqn"), ("initiatorName", "initiatorname")] {
        let name = text(source, field);
        if !has(source, field) || (field == "iqn" && name.is_empty()) {
            continue;
        }
        let is_known = ["iqn", "eui", "naa"].iter().any(|p| name.starts_with(p));
        if !is_known {
            c.invalid(&path.field(shown), name, "must be valid format starting with iqn, eui, or naa");
        } else if iscsi_name(name) != Some(true) {
            c.invalid(&path.field(shown), name, "must be valid format");
        }
    }
}

fn iscsi_secret<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    if (flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession")) && !has(source, "secretRef") {
        c.required(&path.field("secretRef"), "");
    }
}

fn flocker<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    let name = text(source, "datasetName");
    match (name.is_empty(), text(source, "datasetUUID").is_empty()) {
        (true, true) => c.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => c.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"),
        _ => {}
    }
    if name.contains('/') {
        c.invalid(&path.field("datasetName"), name, "must not contain '/'");
    }
}

fn quobyte<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    const DETAIL: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        c.required(&path.field("registry"), DETAIL);
    } else if text(source, "tenant").len() >= 65 {
        c.required(&path.field("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| !pair.contains(':')) {
            c.invalid(&path.field("registry"), registry, DETAIL);
        }
    }
}

fn downward_items<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    // Without an index, as upstream reports them.
    for file in list(source, "items") {
        c.section("DownwardFile", file, path);
    }
}

fn fibre_channel<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    let (targets, ids) = (list(source, "targetWWNs"), list(source, "wwids"));
    if targets.is_empty() && ids.is_empty() {
        c.required(&path.field("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        c.invalid(&path.field("targetWWNs"), targets.to_vec(), detail);
    }
    if !targets.is_empty() {
        match maybe_int(source, "lun") {
            None => c.required(&path.field("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) if !(0..=255).contains(&lun) => c.invalid(&path.field("lun"), lun, "must be between 0 and 255, inclusive"),
            Some(_) => {}
        }
    }
}

fn flex_options<'a>(c: &mut Check<'a>, options: &'a Value, path: &Path<'_>) {
    for key in options.as_object().into_iter().flatten().map(|(k, _)| k) {
        let domain = format!(".{}", key.split_once('/').map_or(key.as_str(), |(d, _)| d).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            c.invalid(&path.key(key), key.as_str(), "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_disk_uri<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    let uri = text(source, "diskURI");
    let is_managed = text(source, "kind") == "Managed";
    let managed = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    let blob = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    if is_managed && !uri.starts_with("/subscriptions/") {
        c.not_supported(&path.field("diskURI"), uri, &[managed]);
    }
    if has(source, "kind") && !is_managed && !uri.starts_with("https://") {
        c.not_supported(&path.field("diskURI"), uri, &[blob]);
    }
}

/// A driver's name: at most 63 characters of a subdomain, in any case.
pub fn csi_driver_name(c: &mut Check<'_>, name: &str, path: &Path<'_>) {
    if name.is_empty() {
        return c.required(path, "");
    }
    if name.len() > CSI_DRIVER_CHARS_MAX {
        c.too_long(path, CSI_DRIVER_CHARS_MAX);
    }
    c.invalid_each(path, name, names::dns_subdomain(&name.to_lowercase()));
}

fn csi_secret_name<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    let name = text(source, "nodePublishSecretRef.name");
    if !name.is_empty() {
        c.subdomain(&path.field("name"), name);
    }
}

fn claim_template_metadata<'a>(c: &mut Check<'a>, metadata: &'a Value, path: &Path<'_>) {
    c.errors.extend(meta::annotations(at(metadata, "annotations"), &path.field("annotations").to_string()));
    c.errors.extend(meta::labels(at(metadata, "labels"), &path.field("labels").to_string()));
    for (field, value) in metadata.as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "annotations" | "labels") && !is_empty(value) {
            c.forbidden(&path.field(field), "cannot be set");
        }
    }
}

fn image_volume<'a>(c: &mut Check<'a>, source: &'a Value, path: &Path<'_>) {
    if c.pod.is_pod && text(source, "reference").is_empty() {
        c.required(&path.field("reference"), "");
    }
}

fn projections<'a>(c: &mut Check<'a>, volume: &'a Value, path: &Path<'_>) {
    let mut paths = BTreeSet::new();
    let sources = path.field("sources");
    for (i, source) in list(volume, "sources").iter().enumerate() {
        let source_path = sources.index(i);
        let mut count = 0;
        for field in ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"] {
            let value = at(source, field);
            if value.is_null() {
                continue;
            }
            count += 1;
            let place = source_path.field(field);
            match field {
                "secret" | "configMap" => projected_keys(c, value, &place, path, &mut paths),
                "downwardAPI" => {
                    for file in list(value, "items") {
                        c.section("DownwardFile", file, &place);
                        once(c, &mut paths, text(file, "path"), text(file, "path"), path);
                    }
                }
                "serviceAccountToken" => projected_token(c, value, &place, path),
                "clusterTrustBundle" => projected_bundle(c, value, &place, path, &mut paths),
                _ => projected_certificate(c, value, &place, path, &mut paths),
            }
        }
        if count > 1 {
            c.forbidden(&source_path, "may not specify more than 1 volume type per source");
        }
    }
}

/// A file may be projected once.
fn once<'a>(c: &mut Check<'_>, paths: &mut BTreeSet<&'a str>, file: &'a str, shown: &str, path: &Path<'_>) {
    if !file.is_empty() && !paths.insert(file) {
        c.invalid(path, shown, "conflicting duplicate paths");
    }
}

fn projected_keys<'a>(c: &mut Check<'a>, source: &'a Value, place: &Path<'_>, path: &Path<'_>, paths: &mut BTreeSet<&'a str>) {
    if text(source, "name").is_empty() {
        c.required(&place.field("name"), "");
    }
    let items = place.field("items");
    for (i, item) in list(source, "items").iter().enumerate() {
        c.section("KeyToPath", item, &items.index(i));
        once(c, paths, text(item, "path"), text(source, "name"), path);
    }
}

fn projected_token(c: &mut Check<'_>, token: &Value, place: &Path<'_>, path: &Path<'_>) {
    let seconds = int(token, "expirationSeconds");
    if seconds < 600 {
        c.invalid(&place.field("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        c.invalid(&place.field("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds");
    }
    match text(token, "path") {
        "" => c.required(&path.field("path"), ""),
        file => c.invalid_each(&path.field("path"), file, formats::local_path(file)),
    }
}

fn projected_bundle<'a>(c: &mut Check<'a>, bundle: &'a Value, place: &Path<'_>, path: &Path<'_>, paths: &mut BTreeSet<&'a str>) {
    match (has(bundle, "name"), has(bundle, "signerName")) {
        (true, true) => c.invalid(place, bundle.clone(), "only one of name and signerName may be used"),
        (true, false) => {
            if text(bundle, "name").is_empty() {
                c.required(&place.field("name"), "must be a valid object name");
            }
            if has(bundle, "labelSelector") {
                let detail = "labelSelector must be unset if name is specified";
                c.invalid(&place.field("labelSelector"), at(bundle, "labelSelector").clone(), detail);
            }
        }
        (false, true) => {
            if text(bundle, "signerName").is_empty() {
                c.required(&place.field("signerName"), "must be a valid signer name");
            }
            selectors::label_selector(c, at(bundle, "labelSelector"), &place.field("labelSelector"));
        }
        (false, false) => c.required(place, "either name or signerName must be specified"),
    }
    let file = text(bundle, "path");
    if file.is_empty() {
        c.required(&place.field("path"), "");
    }
    c.invalid_each(&place.field("path"), file, formats::local_path(file));
    once(c, paths, file, file, path);
}

fn projected_certificate<'a>(
    c: &mut Check<'a>,
    source: &'a Value,
    place: &Path<'_>,
    path: &Path<'_>,
    paths: &mut BTreeSet<&'a str>,
) {
    const KEYS: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    if !KEYS.contains(&text(source, "keyType")) {
        c.not_supported(&place.field("keyType"), text(source, "keyType"), &KEYS);
    }
    if let Some(seconds) = maybe_int(source, "maxExpirationSeconds") {
        if seconds < 3600 {
            c.invalid(&place.field("maxExpirationSeconds"), seconds, "if provided, maxExpirationSeconds must be >= 3600");
        }
        let is_own = text(source, "signerName").starts_with("kubernetes.io/");
        let max = if is_own { 24 * 60 * 60 } else { 91 * 24 * 60 * 60 };
        if seconds > max {
            let detail = format!("if provided, maxExpirationSeconds must be <= {max}");
            c.invalid(&place.field("maxExpirationSeconds"), seconds, detail);
        }
    }
    let fields = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    for field in fields {
        let file = text(source, field);
        c.invalid_each(&place.field(field), file, formats::local_path(file));
        once(c, paths, file, file, path);
    }
    if fields.iter().all(|f| text(source, f).is_empty()) {
        c.required(place, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}
