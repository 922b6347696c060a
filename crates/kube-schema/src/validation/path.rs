//! Where a value sits in an object: links back to the root, spelled out only when something is wrong there.

use std::fmt;

use serde_json::Value;

use super::view;

#[derive(Clone, Copy, Debug)]
enum Part<'p> {
    Root,
    /// One or more fields, with dots between them.
    Fields(&'p str),
    Index(usize),
    Key(&'p str),
}

/// A position. Copy, and it borrows its parents.
#[derive(Clone, Copy, Debug)]
pub struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    part: Part<'p>,
}

impl<'p> Path<'p> {
    /// The object itself.
    pub const ROOT: Path<'static> = Path { parent: None, part: Part::Root };

    /// A field below, or several with dots between them.
    pub fn field<'c>(&'c self, fields: &'c str) -> Path<'c>
    where
        'p: 'c,
    {
        Path { parent: Some(self), part: Part::Fields(fields) }
    }

    pub fn index<'c>(&'c self, index: usize) -> Path<'c>
    where
        'p: 'c,
    {
        Path { parent: Some(self), part: Part::Index(index) }
    }

    /// An entry of a map: `parent[key]`.
    pub fn key<'c>(&'c self, key: &'c str) -> Path<'c>
    where
        'p: 'c,
    {
        Path { parent: Some(self), part: Part::Key(key) }
    }

    /// The value that sits here in another object; null if there is none.
    pub fn resolve<'v>(&self, root: &'v Value) -> &'v Value {
        let above = self.parent.map_or(root, |p| p.resolve(root));
        match self.part {
            Part::Root => root,
            Part::Fields(fields) => view::at(above, fields),
            Part::Index(index) => above.get(index).unwrap_or(&Value::Null),
            Part::Key(key) => above.get(key).unwrap_or(&Value::Null),
        }
    }

    fn is_root(&self) -> bool {
        matches!(self.part, Part::Root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.part {
            Part::Root => Ok(()),
            Part::Fields(fields) if self.parent.is_none_or(Path::is_root) => f.write_str(fields),
            Part::Fields(fields) => write!(f, ".{fields}"),
            Part::Index(index) => write!(f, "[{index}]"),
            Part::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> String {
        path.to_string()
    }
}
