//! The wire format: tags, varints and blocks.

use super::ProtobufError;

#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn tag(&mut self, number: u8, wire_type: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire_type));
    }

    /// A signed integer, negative ones in ten bytes as proto2 has it.
    pub(crate) fn int(&mut self, number: u8, value: i64) {
        self.tag(number, 0);
        self.varint(value as u64);
    }

    pub(crate) fn double(&mut self, number: u8, value: f64) {
        self.tag(number, 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn block(&mut self, number: u8, block: &[u8]) {
        self.tag(number, 2);
        self.varint(block.len() as u64);
        self.bytes.extend_from_slice(block);
    }

    pub(crate) fn text(&mut self, number: u8, text: &str) {
        self.block(number, text.as_bytes());
    }

    /// A message whose fields `write` writes.
    pub(crate) fn message(&mut self, number: u8, write: impl FnOnce(&mut Writer)) {
        let mut inner = Writer::default();
        write(&mut inner);
        self.block(number, &inner.bytes);
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// One field as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    /// No type of the API uses it; unknown fields may.
    Fixed32,
    Block(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(super) fn bytes(self, name: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Field::Block(bytes) => Ok(bytes),
            _ => Err(ProtobufError::WrongType(name.to_owned())),
        }
    }

    pub(super) fn int(self, name: &str) -> Result<i64, ProtobufError> {
        match self {
            Field::Varint(value) => Ok(value as i64),
            _ => Err(ProtobufError::WrongType(name.to_owned())),
        }
    }

    pub(super) fn double(self, name: &str) -> Result<f64, ProtobufError> {
        match self {
            Field::Fixed64(value) => Ok(f64::from_bits(value)),
            _ => Err(ProtobufError::WrongType(name.to_owned())),
        }
    }
}

/// Reads the fields of one message.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().enumerate() {
            if index == 10 {
                return Err(ProtobufError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(ProtobufError::Truncated)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], ProtobufError> {
        let length = usize::try_from(length).map_err(|_| ProtobufError::Overflow)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    /// The next field with its number; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, ProtobufError> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = match (tag & 7) as u8 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Field::Block(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Field::Fixed32
            }
            other => return Err(ProtobufError::WireType(other)),
        };
        Ok(Some((tag >> 3, field)))
    }
}
