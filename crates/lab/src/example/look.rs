//! What a container sees of the machine: processes, and whether files can be read, by its own root and by that of each process.

use std::fs;
use std::path::{Path, PathBuf};

/// Characters of a file's first line that are shown.
const SHOWN_CHARS_MAX: usize = 80;

/// One line for each process, then one for each way to each file.
pub fn report(files: &[PathBuf]) -> Vec<String> {
    let ids = processes();
    let mut lines: Vec<String> = ids.iter().filter_map(|id| process(*id)).collect();
    for file in files {
        lines.push(read(file));
        let below = file.strip_prefix("/").unwrap_or(file);
        lines.extend(ids.iter().map(|id| read(&PathBuf::from(format!("/proc/{id}/root")).join(below))));
    }
    lines
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut ids: Vec<u32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// `process ID started TICKS: COMMAND`; a process that has ended meanwhile has no line.
fn process(id: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The command may hold spaces and parentheses: fields count from behind its last ')'.
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    let command = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
    Some(format!("process {id} started {started}: {command}"))
}

/// `read PATH: N bytes: FIRST LINE`, or `read PATH: failed: WHY`.
fn read(path: &Path) -> String {
    let shown = path.display();
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let line: String = text.lines().next().unwrap_or_default().chars().take(SHOWN_CHARS_MAX).collect();
            format!("read {shown}: {} bytes: {line}", bytes.len())
        }
        Err(error) => format!("read {shown}: failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_a_file_are_seen_and_a_missing_one_is_not() {
        let file = std::env::temp_dir().join(format!("atoll-look-{}", std::process::id()));
        fs::write(&file, "first\nsecond\n").expect("written");
        let missing = file.with_extension("missing");
        let lines = report(&[file.clone(), missing.clone()]);
        fs::remove_file(&file).expect("removed");
        let own = format!("process {} started ", std::process::id());
        assert!(lines.iter().any(|l| l.starts_with(&own)), "{lines:?}");
        assert!(lines.contains(&format!("read {}: 13 bytes: first", file.display())), "{lines:?}");
        assert!(lines.contains(&format!("read /proc/{}/root{}: 13 bytes: first", std::process::id(), file.display())));
        assert!(lines.iter().any(|l| l.starts_with(&format!("read {}: failed: ", missing.display()))), "{lines:?}");
    }
}
