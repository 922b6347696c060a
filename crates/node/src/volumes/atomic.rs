//! Volumes whose content changes while containers read it: all files are replaced in one step.
//!
//! The layout is the kubelet's, which programs rely on when they watch for changes: `..data` links to a directory named
//! by time, each file is a link through `..data`, and an update swaps `..data`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Component, Path};

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub content: Vec<u8>,
    pub mode: u32,
    /// Owner, where it is not root.
    pub uid: Option<u32>,
}

/// Files by their path in the volume.
pub type Files = BTreeMap<String, File>;

const DATA: &str = "..data";

/// Whether a path stays inside the volume.
pub fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|c| matches!(c, Component::Normal(_))) && !path.starts_with("..")
}

/// Makes `directory` hold exactly `files`, owned by group `gid` if there is one. Does nothing if it does already.
pub fn write(directory: &Path, files: &Files, gid: Option<u32>, now: jiff::Timestamp) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    if let Some(path) = files.keys().find(|p| !is_inside(p)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path} leads out of the volume")));
    }
    if is_current(directory, files) {
        return Ok(());
    }
    let name = format!("..{}", now.as_nanosecond());
    let version = directory.join(&name);
    fs::create_dir(&version)?;
    set_owner(&version, 0o755, None, gid, true)?;
    for (path, file) in files {
        write_file(&version, path, file, gid)?;
    }
    let old = fs::read_link(directory.join(DATA)).ok();
    let temporary = directory.join("..data_tmp");
    let _ = fs::remove_file(&temporary);
    symlink(&name, &temporary)?;
    fs::rename(&temporary, directory.join(DATA))?;
    links(directory, files)?;
    if let Some(old) = old {
        fs::remove_dir_all(directory.join(old))?;
    }
    Ok(())
}

fn is_current(directory: &Path, files: &Files) -> bool {
    let data = directory.join(DATA);
    let same = |(path, file): (&String, &File)| fs::read(data.join(path)).is_ok_and(|have| have == file.content);
    data.is_dir() && count(&data) == files.len() && files.iter().all(same)
}

fn count(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|e| if e.path().is_dir() { count(&e.path()) } else { 1 }).sum()
}

fn write_file(version: &Path, path: &str, file: &File, gid: Option<u32>) -> io::Result<()> {
    let target = version.join(path);
    let mut parent = version.to_owned();
    for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
        parent.push(part);
        if !parent.exists() {
            fs::create_dir(&parent)?;
            set_owner(&parent, 0o755, None, gid, true)?;
        }
    }
    fs::write(&target, &file.content)?;
    set_owner(&target, file.mode, file.uid, gid, false)
}

/// A group that owns a volume may read what its owner may.
fn set_owner(path: &Path, mode: u32, uid: Option<u32>, gid: Option<u32>, directory: bool) -> io::Result<()> {
    if uid.is_some() || gid.is_some() {
        match chown(path, uid, gid) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    let group = if gid.is_some() { (mode & 0o400) >> 3 | if directory { 0o2050 } else { 0 } } else { 0 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode | group))
}

/// One link per first path component; links of files that are gone go too.
fn links(directory: &Path, files: &Files) -> io::Result<()> {
    let wanted: std::collections::BTreeSet<&str> = files.keys().filter_map(|p| p.split('/').next()).collect();
    for entry in fs::read_dir(directory)?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !wanted.contains(name.as_ref()) {
            fs::remove_file(entry.path())?;
        }
    }
    for name in wanted {
        let link = directory.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(format!("{DATA}/{name}"), link)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        let file = |content: &str| File { content: content.as_bytes().to_vec(), mode: 0o640, uid: None };
        list.iter().map(|(path, content)| ((*path).to_owned(), file(content))).collect()
    }

    #[test]
    fn an_update_swaps_everything_and_leaves_no_old_version() {
        let dir = tempfile::tempdir().unwrap();
        let at = |s| jiff::Timestamp::from_second(s).unwrap();
        write(dir.path(), &files(&[("a", "1"), ("sub/b", "2")]), None, at(1)).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("sub/b")).unwrap(), "2");
        let first = fs::read_link(dir.path().join(DATA)).unwrap();
        write(dir.path(), &files(&[("a", "1"), ("sub/b", "2")]), None, at(2)).unwrap();
        assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), first, "the same content is not written again");
        write(dir.path(), &files(&[("a", "3")]), None, at(3)).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "3");
        assert!(!dir.path().join("sub").exists() && !dir.path().join(first).exists());
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x", "..data", ""] {
            assert!(write(dir.path(), &files(&[(path, "1")]), None, jiff::Timestamp::UNIX_EPOCH).is_err(), "{path}");
        }
    }
}
