//! Packs the text tables of `table/` into one blob that is read in place.

#[path = "src/table/layout.rs"]
#[allow(unused)]
mod layout;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs};

use layout::{NO_CHILD, attribute, kind};

#[derive(Default)]
struct Pool {
    bytes: Vec<u8>,
    seen: BTreeMap<String, u32>,
}

impl Pool {
    fn add(&mut self, text: &str) -> u32 {
        if let Some(&at) = self.seen.get(text) {
            return at;
        }
        let at = self.bytes.len() as u32;
        let length = u16::try_from(text.len()).expect("strings of the table are short");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.seen.insert(text.to_owned(), at);
        at
    }
}

struct Field {
    name: String,
    word: String,
    tags: u32,
    attributes: u32,
    /// Owned part by part although its type is atomic.
    is_granular: bool,
    keys: String,
    merge_key: String,
}

#[derive(Default)]
struct Type {
    name: String,
    scalar: Option<u32>,
    is_atomic: bool,
    gvk: String,
    fields: Vec<Field>,
}

#[derive(Clone, Copy, Default)]
struct Position {
    name: u32,
    attributes: u32,
    tags: u32,
    child: u32,
    keys: u32,
    merge_key: u32,
    kind: u32,
}

fn parse_field(line: &str) -> Field {
    let mut words = line.split_whitespace();
    let mut next = || words.next().unwrap_or_else(|| panic!("types.txt: short line {line:?}"));
    let (name, word, tag, flags) = (next().to_owned(), next().to_owned(), next(), next());
    let mut field =
        Field { name, word, tags: 0, attributes: 0, is_granular: false, keys: String::new(), merge_key: String::new() };
    if tag != "-" {
        for (i, part) in tag.split('.').enumerate() {
            field.tags |= u32::from(part.parse::<u8>().expect("a protobuf number below 256")) << (8 * i);
        }
    }
    for flag in flags.chars() {
        field.attributes |= match flag {
            'r' => attribute::REQUIRED,
            'p' => attribute::POINTER,
            'o' => attribute::OMIT_EMPTY,
            'z' => attribute::OMIT_ZERO,
            _ => 0,
        };
    }
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("atomic", _) => field.attributes |= attribute::ATOMIC_MAP,
            ("granular", _) => {
                field.is_granular = true;
                field.attributes |= attribute::GRANULAR_MAP;
            }
            ("list", "set") => field.attributes |= attribute::LIST_SET,
            ("list", "map") => field.attributes |= attribute::LIST_MAP,
            ("list", _) => field.attributes |= attribute::LIST_ATOMIC,
            ("keys", keys) => field.keys = keys.to_owned(),
            ("mergekey", key) => field.merge_key = key.to_owned(),
            ("strategy", strategy) => {
                for part in strategy.split(',') {
                    field.attributes |= match part {
                        "merge" => attribute::MERGE,
                        "replace" => attribute::REPLACE,
                        "retainKeys" => attribute::RETAIN_KEYS,
                        _ => panic!("types.txt: unknown patch strategy {part:?}"),
                    };
                }
            }
            _ => panic!("types.txt: unknown attribute {word:?}"),
        }
    }
    field
}

fn parse_types(text: &str) -> Vec<Type> {
    let mut types: Vec<Type> = Vec::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if line.starts_with(' ') {
            types.last_mut().expect("a type before its fields").fields.push(parse_field(line));
            continue;
        }
        let mut words = line.split(' ');
        let mut ty = Type { name: words.next().unwrap_or_default().to_owned(), ..Type::default() };
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("is", scalar) => ty.scalar = Some(scalar_kind(scalar).expect("a known scalar")),
                ("atomic", _) => ty.is_atomic = true,
                ("gvk", gvk) => ty.gvk = gvk.to_owned(),
                _ => panic!("types.txt: unknown word {word:?}"),
            }
        }
        types.push(ty);
    }
    types.sort_by(|a, b| a.name.cmp(&b.name));
    types
}

fn scalar_kind(word: &str) -> Option<u32> {
    kind::WORDS.iter().find(|(w, _)| *w == word).map(|(_, k)| *k)
}

/// Gives every value that is not a plain field its own position: type roots, list elements, map values.
struct Packer {
    pool: Pool,
    positions: Vec<Position>,
    /// Type name → (index, scalar kind, atomic).
    types: BTreeMap<String, (u32, Option<u32>, bool)>,
    elements: BTreeMap<String, u32>,
}

impl Packer {
    /// Kind, child and attributes of a type word. Positions of elements are appended as they are met.
    fn resolve(&mut self, word: &str) -> (u32, u32, u32) {
        if let Some(element) = word.strip_prefix("[]") {
            return (kind::LIST, self.element(element), 0);
        }
        if let Some(element) = word.strip_prefix("{}") {
            return (kind::MAP, self.element(element), 0);
        }
        if let Some(scalar) = scalar_kind(word) {
            return (scalar, NO_CHILD, 0);
        }
        let (index, scalar, is_atomic) = *self.types.get(word).unwrap_or_else(|| panic!("types.txt: no type {word}"));
        let attributes = if is_atomic { attribute::ATOMIC_MAP } else { 0 };
        (scalar.unwrap_or(kind::STRUCT), index, attributes)
    }

    fn element(&mut self, word: &str) -> u32 {
        if let Some(&at) = self.elements.get(word) {
            return at;
        }
        let (kind, child, attributes) = self.resolve(word);
        let at = self.positions.len() as u32;
        let name = self.pool.add("");
        self.positions.push(Position { name, attributes, child, keys: name, merge_key: name, kind, tags: 0 });
        self.elements.insert(word.to_owned(), at);
        at
    }
}

fn pack(types: &[Type]) -> Vec<u8> {
    let index = types.iter().enumerate().map(|(i, t)| (t.name.clone(), (i as u32, t.scalar, t.is_atomic))).collect();
    let mut packer = Packer { pool: Pool::default(), positions: Vec::new(), types: index, elements: BTreeMap::new() };
    // Elements first, so that the fields of a type lie side by side afterwards.
    let roots: Vec<u32> = types.iter().map(|t| packer.element(&t.name)).collect();
    packer.element("string");
    for word in types.iter().flat_map(|t| &t.fields).map(|f| f.word.as_str()) {
        packer.resolve(word);
    }
    let mut by_name: Vec<u16> = vec![0; packer.positions.len()];
    let mut type_bytes = Vec::new();
    for (ty, root) in types.iter().zip(&roots) {
        let first = packer.positions.len() as u32;
        for field in &ty.fields {
            let (kind, child, attributes) = packer.resolve(&field.word);
            let position = Position {
                name: packer.pool.add(&field.name),
                attributes: if field.is_granular { attributes & !attribute::ATOMIC_MAP } else { attributes } | field.attributes,
                tags: field.tags,
                child,
                keys: packer.pool.add(&field.keys),
                merge_key: packer.pool.add(&field.merge_key),
                kind,
            };
            packer.positions.push(position);
        }
        let mut order: Vec<u16> = (0..ty.fields.len() as u16).collect();
        order.sort_by_key(|i| &ty.fields[usize::from(*i)].name);
        by_name.extend(order);
        let name = packer.pool.add(&ty.name);
        let gvk = packer.pool.add(&ty.gvk);
        for word in [name, gvk, first, *root, ty.fields.len() as u32] {
            type_bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    let mut kinds: Vec<u16> = (0..types.len() as u16).filter(|i| types[usize::from(*i)].gvk.contains('/')).collect();
    kinds.sort_by_key(|i| &types[usize::from(*i)].gvk);
    assemble(types.len(), &type_bytes, &packer, &by_name, &kinds)
}

fn assemble(type_count: usize, types: &[u8], packer: &Packer, by_name: &[u16], kinds: &[u16]) -> Vec<u8> {
    let header = layout::HEADER_WORDS * 4;
    let types_at = header;
    let positions_at = types_at + types.len();
    let by_name_at = positions_at + packer.positions.len() * layout::POSITION_BYTES;
    let kinds_at = by_name_at + by_name.len() * 2;
    let pool_at = kinds_at + kinds.len() * 2;
    let mut out = Vec::new();
    for word in [type_count, kinds.len(), types_at, positions_at, by_name_at, kinds_at, pool_at] {
        out.extend_from_slice(&(word as u32).to_le_bytes());
    }
    out.extend_from_slice(types);
    for p in &packer.positions {
        for word in [p.name, p.attributes, p.tags, p.child, p.keys, p.merge_key, p.kind] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
    for index in by_name.iter().chain(kinds) {
        out.extend_from_slice(&index.to_le_bytes());
    }
    out.extend_from_slice(&packer.pool.bytes);
    out
}

fn main() {
    println!("cargo::rerun-if-changed=table/types.txt");
    println!("cargo::rerun-if-changed=src/table/layout.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory"));
    let text = fs::read_to_string(root.join("table/types.txt")).expect("table/types.txt is committed");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets the output directory"));
    fs::write(out.join("schema.bin"), pack(&parse_types(&text))).expect("the output directory is writable");
}
