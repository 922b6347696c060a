//! Which shared libraries a program loads: enough of ELF to follow `PT_INTERP` and `DT_NEEDED`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Where the loader looks without a cache, Debian's multiarch directories first.
const LIBRARY_DIRS: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_LOAD: u32 = 1;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// The loader and all libraries of `program`, each under the path at which the loader finds it. Empty for a static one.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut open = vec![program.to_owned()];
    while let Some(file) = open.pop() {
        let bytes = fs::read(&file).map_err(Error::file(&file))?;
        let Some(needs) = parse(&bytes) else { continue };
        for name in needs {
            let path = if name.starts_with('/') { Some(PathBuf::from(&name)) } else { find(&name) };
            let path = path.ok_or_else(|| Error::Start(format!("{}: library {name} not found", file.display())))?;
            if found.insert(path.clone()) {
                open.push(path);
            }
        }
    }
    Ok(found.into_iter().collect())
}

fn find(name: &str) -> Option<PathBuf> {
    LIBRARY_DIRS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists())
}

/// Interpreter and needed libraries; `None` for anything but a 64-bit little-endian ELF file.
fn parse(bytes: &[u8]) -> Option<Vec<String>> {
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let header_offset = word(bytes, 32)? as usize;
    let header_size = usize::from(half(bytes, 54)?);
    let header_count = usize::from(half(bytes, 56)?);
    let mut needs = Vec::new();
    let mut loads = Vec::new();
    let mut dynamic = None;
    for i in 0..header_count {
        let at = header_offset.checked_add(i.checked_mul(header_size)?)?;
        let kind = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        let (offset, address, size) = (word(bytes, at + 8)?, word(bytes, at + 16)?, word(bytes, at + 32)?);
        match kind {
            PT_LOAD => loads.push((address, offset, size)),
            PT_DYNAMIC => dynamic = Some((offset, size)),
            PT_INTERP => needs.push(text(bytes, offset as usize)?),
            _ => {}
        }
    }
    let Some((offset, size)) = dynamic else { return Some(needs) };
    let mut names = Vec::new();
    let mut strings = None;
    for at in (offset as usize..(offset + size) as usize).step_by(16) {
        match (word(bytes, at)?, word(bytes, at + 8)?) {
            (0, _) => break,
            (DT_NEEDED, value) => names.push(value),
            (DT_STRTAB, address) => {
                strings = loads.iter().find(|(a, _, s)| (*a..a + s).contains(&address)).map(|(a, o, _)| address - a + o);
            }
            _ => {}
        }
    }
    let strings = strings?;
    for name in names {
        needs.push(text(bytes, (strings + name) as usize)?);
    }
    Some(needs)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn text(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    String::from_utf8(rest[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_program_loads_the_c_library() {
        let libraries = libraries(&std::env::current_exe().unwrap()).unwrap();
        let names: Vec<_> = libraries.iter().filter_map(|p| p.file_name()?.to_str()).collect();
        assert!(names.iter().any(|n| n.starts_with("libc.so")), "{names:?}");
        assert!(names.iter().any(|n| n.starts_with("ld-linux")), "{names:?}");
    }

    #[test]
    fn garbage_is_no_program() {
        assert_eq!(parse(b"#!/bin/sh\n"), None);
        assert_eq!(parse(b"\x7fELF\x02\x01 cut off"), None);
    }
}
