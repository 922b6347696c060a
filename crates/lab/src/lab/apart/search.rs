//! Looks for secrets in every file of directories, as they are and in base64 wherever they stand in what was encoded.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Files are looked at in blocks of this size: a form of twice as much fills at least one of them, wherever it stands.
const BLOCK: usize = 8;

/// One of the ways in which a secret may be written.
struct Form {
    secret: usize,
    bytes: Vec<u8>,
}

/// Secrets in all their forms.
pub struct Search {
    forms: Vec<Form>,
    /// Where in which form each block stands.
    blocks: HashMap<[u8; BLOCK], Vec<(usize, usize)>>,
    /// Whether a block with this first pair of bytes is among them: most are not, and this is quick to see.
    pairs: Vec<bool>,
}

/// What was looked at and what was found.
#[derive(Debug, Default)]
pub struct Found {
    pub files: usize,
    /// Files that hold each secret.
    pub holders: Vec<Vec<PathBuf>>,
}

fn pair(block: &[u8]) -> usize {
    usize::from(block[0]) << 8 | usize::from(block[1])
}

/// The characters of `secret` in base64 that do not depend on its neighbours, if `offset` bytes of a triple stand before it.
fn in_base64(secret: &[u8], offset: usize) -> Vec<u8> {
    let text = STANDARD_NO_PAD.encode([&vec![0; offset], secret].concat());
    let first = (offset * 8).div_ceil(6);
    let last = (offset + secret.len()) * 8 / 6;
    text.as_bytes()[first..last].to_vec()
}

impl Search {
    /// Each secret has at least 16 bytes.
    pub fn new(secrets: &[&[u8]]) -> Search {
        let mut forms = Vec::new();
        for (secret, bytes) in secrets.iter().enumerate() {
            forms.push(Form { secret, bytes: bytes.to_vec() });
            forms.extend((0..3).map(|offset| Form { secret, bytes: in_base64(bytes, offset) }));
        }
        let mut search = Search { forms: Vec::new(), blocks: HashMap::new(), pairs: vec![false; 1 << 16] };
        for (index, form) in forms.iter().enumerate() {
            assert!(form.bytes.len() >= 2 * BLOCK, "a secret is too short to be told from chance");
            for (at, block) in form.bytes.windows(BLOCK).enumerate() {
                search.pairs[pair(block)] = true;
                if let Ok(block) = block.try_into() {
                    search.blocks.entry(block).or_default().push((index, at));
                }
            }
        }
        search.forms = forms;
        search
    }

    /// The secrets that stand in `bytes`.
    fn in_bytes(&self, bytes: &[u8]) -> HashSet<usize> {
        let mut found = HashSet::new();
        for (number, block) in bytes.chunks_exact(BLOCK).enumerate() {
            if !self.pairs[pair(block)] {
                continue;
            }
            for (index, at) in self.blocks.get(block).into_iter().flatten() {
                let form = &self.forms[*index];
                let start = (number * BLOCK).checked_sub(*at);
                if start.and_then(|start| bytes.get(start..start + form.bytes.len())) == Some(form.bytes.as_slice()) {
                    found.insert(form.secret);
                }
            }
        }
        found
    }

    /// Looks into every file below `roots`, each once.
    pub fn below(&self, roots: &[PathBuf]) -> Result<Found, String> {
        let secrets = self.forms.iter().map(|f| f.secret + 1).max().unwrap_or(0);
        let mut found = Found { files: 0, holders: vec![Vec::new(); secrets] };
        let mut seen = HashSet::new();
        for root in roots {
            self.walk(root, &mut seen, &mut found).map_err(|e| format!("look below {}: {e}", root.display()))?;
        }
        Ok(found)
    }

    fn walk(&self, directory: &Path, seen: &mut HashSet<(u64, u64)>, found: &mut Found) -> std::io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            // What goes away while it is looked at holds nothing any more.
            let Some(metadata) = present(fs::symlink_metadata(&path))? else { continue };
            if metadata.is_dir() {
                present(self.walk(&path, seen, found))?;
            // Handles of namespaces are empty files that cannot be read.
            } else if metadata.is_file() && metadata.len() > 0 && seen.insert((metadata.dev(), metadata.ino())) {
                let Some(bytes) = present(fs::read(&path))? else { continue };
                found.files += 1;
                for secret in self.in_bytes(&bytes) {
                    found.holders[secret].push(path.clone());
                }
            }
        }
        Ok(())
    }
}

fn present<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"a nonce of some length";

    #[test]
    fn a_secret_is_found_raw_and_encoded_wherever_it_stands() {
        let search = Search::new(&[SECRET, b"another one, not there"]);
        for before in 0..40 {
            for after in 0..4 {
                let text = [&vec![b'x'; before], SECRET, &vec![b'y'; after]].concat();
                let encoded = [&vec![b'-'; before], STANDARD_NO_PAD.encode(&text).as_bytes(), b"--"].concat();
                for bytes in [text, encoded] {
                    assert_eq!(search.in_bytes(&bytes), HashSet::from([0]), "{before} before, {after} after");
                }
            }
        }
        assert!(search.in_bytes(b"a nonce of some other length, and not that one").is_empty());
    }

    #[test]
    fn every_file_below_is_looked_at_once() {
        let root = std::env::temp_dir().join(format!("atoll-search-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).expect("directories");
        fs::write(root.join("a/b/deep"), SECRET).expect("written");
        fs::write(root.join("clean"), b"nothing").expect("written");
        let found = Search::new(&[SECRET]).below(&[root.clone(), root.join("a")]).expect("looked");
        assert_eq!((found.files, found.holders), (2, vec![vec![root.join("a/b/deep")]]));
        fs::remove_dir_all(root).expect("removed");
    }
}
