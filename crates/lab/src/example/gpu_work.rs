//! What a container was given of a card. It declares, it does not compute: limits are enforced only where a GPU is.

/// Names that a device plugin sets.
const PREFIXES: [&str; 3] = ["NVIDIA_", "CUDA_", "GPU_"];

/// One line for each variable of a device plugin, by name.
pub fn report(environment: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let given = environment.into_iter().filter(|(key, _)| PREFIXES.iter().any(|p| key.starts_with(p)));
    let mut lines: Vec<String> = given.map(|(key, value)| format!("{key}={value}")).collect();
    lines.sort();
    if lines.is_empty() {
        lines.push("no card was given to this container".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_plugin_sets_is_shown() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let shown = report([pair("PATH", "/"), pair("NVIDIA_VISIBLE_DEVICES", "GPU-1"), pair("CUDA_DEVICE_SM_LIMIT", "30")]);
        assert_eq!(shown, ["CUDA_DEVICE_SM_LIMIT=30", "NVIDIA_VISIBLE_DEVICES=GPU-1"]);
        assert_eq!(report([]), ["no card was given to this container"]);
    }
}
