//! Frames of SPDY/3.1, as far as port-forwarding needs them: streams with headers, data, half-close. kubectl tunnels them
//! through a WebSocket; older clients upgrade to them directly. There is no flow control in Kubernetes' dialect.

use std::collections::BTreeMap;

use flate2::{Decompress, FlushDecompress};

/// The dictionary of header compression, from the SPDY/3 specification (2.6.10.1).
const DICTIONARY: &[u8] = include_bytes!("spdy_dictionary.bin");
/// Longest frame that is taken.
const FRAME_BYTES_MAX: usize = 1 << 20;
const FIN: u8 = 1;

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A new stream.
    Open { stream: u32, headers: BTreeMap<String, String>, fin: bool },
    /// Bytes of a stream.
    Data { stream: u32, bytes: Vec<u8>, fin: bool },
    /// The stream is over, both ways.
    Reset { stream: u32 },
    /// To be sent back.
    Ping { id: u32 },
    /// The connection is over.
    GoAway,
    /// Nothing that matters here.
    Other,
}

/// A peer that does not keep to the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SPDY: {0}")]
pub struct Malformed(&'static str);

/// Cuts a byte stream into frames. Header compression has one state for the whole connection.
pub struct Decoder {
    buffer: Vec<u8>,
    inflate: Decompress,
    primed: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder { buffer: Vec::new(), inflate: Decompress::new(false), primed: false }
    }
}

impl Decoder {
    /// Takes bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if it is there.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Malformed> {
        let Some(head) = self.buffer.first_chunk::<8>() else { return Ok(None) };
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let flags = head[4];
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(Malformed("frame too long"));
        }
        if self.buffer.len() < 8 + length {
            return Ok(None);
        }
        let body: Vec<u8> = self.buffer.drain(..8 + length).skip(8).collect();
        let fin = flags & FIN != 0;
        if word & 0x8000_0000 == 0 {
            return Ok(Some(Frame::Data { stream: word, bytes: body, fin }));
        }
        let number = |at: usize| body.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) & 0x7fff_ffff);
        let first = || number(0).ok_or(Malformed("frame too short"));
        Ok(Some(match word & 0xffff {
            1 => {
                let block = body.get(10..).ok_or(Malformed("frame too short"))?;
                Frame::Open { stream: first()?, headers: self.headers(block)?, fin }
            }
            3 => Frame::Reset { stream: first()? },
            6 => Frame::Ping { id: first()? },
            7 => Frame::GoAway,
            8 => {
                // Headers that come later are read for the sake of the compression's state.
                self.headers(body.get(4..).ok_or(Malformed("frame too short"))?)?;
                Frame::Other
            }
            _ => Frame::Other,
        }))
    }

    fn headers(&mut self, block: &[u8]) -> Result<BTreeMap<String, String>, Malformed> {
        let mut block = block;
        if !self.primed {
            // The zlib header with the checksum of the dictionary; the dictionary itself goes in as a stored block.
            block = block.get(6..).ok_or(Malformed("no compression header"))?;
            let prime = stored(DICTIONARY);
            self.inflate_block(&prime)?;
            self.primed = true;
        }
        let plain = self.inflate_block(block)?;
        parse_headers(&plain).ok_or(Malformed("headers do not parse"))
    }

    fn inflate_block(&mut self, input: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::with_capacity(4096);
        let mut chunk = [0; 4096];
        let mut from = 0;
        loop {
            let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
            self.inflate
                .decompress(&input[from..], &mut chunk, FlushDecompress::Sync)
                .map_err(|_| Malformed("headers do not inflate"))?;
            from += (self.inflate.total_in() - read) as usize;
            let count = (self.inflate.total_out() - written) as usize;
            out.extend_from_slice(&chunk[..count]);
            if out.len() > FRAME_BYTES_MAX {
                return Err(Malformed("headers too long"));
            }
            if count < chunk.len() && (from == input.len() || count == 0) {
                return Ok(out);
            }
        }
    }
}

fn parse_headers(plain: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut rest = plain;
    let number = |rest: &mut &[u8]| -> Option<usize> {
        let (head, tail) = rest.split_first_chunk::<4>()?;
        *rest = tail;
        usize::try_from(u32::from_be_bytes(*head)).ok()
    };
    let text = |rest: &mut &[u8]| -> Option<String> {
        let length = number(rest)?;
        let (head, tail) = rest.split_at_checked(length)?;
        *rest = tail;
        String::from_utf8(head.to_vec()).ok()
    };
    let count = number(&mut rest)?;
    let mut headers = BTreeMap::new();
    for _ in 0..count {
        headers.insert(text(&mut rest)?.to_ascii_lowercase(), text(&mut rest)?);
    }
    Some(headers)
}

/// A stored block of a deflate stream.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u16;
    let mut out = vec![0];
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(bytes);
    out
}

/// Makes frames. Headers are sent uncompressed, inside the compressed form's framing.
#[derive(Debug, Default)]
pub struct Encoder {
    begun: bool,
}

impl Encoder {
    /// Accepts a stream.
    pub fn accept(&mut self, stream: u32) -> Vec<u8> {
        let mut body = stream.to_be_bytes().to_vec();
        if !std::mem::replace(&mut self.begun, true) {
            // Compression method and window, "with dictionary", and the dictionary's checksum.
            body.extend_from_slice(&[0x78, 0x20]);
            body.extend_from_slice(&adler32(DICTIONARY).to_be_bytes());
        }
        body.extend_from_slice(&stored(&0_u32.to_be_bytes()));
        // An empty block is the flush at which a reader hands on what it has.
        body.extend_from_slice(&stored(&[]));
        control(2, &body)
    }

    /// Bytes of a stream; `fin` closes this side of it.
    pub fn data(&self, stream: u32, bytes: &[u8], fin: bool) -> Vec<u8> {
        let mut out = stream.to_be_bytes().to_vec();
        let length = (bytes.len() as u32).to_be_bytes();
        out.extend_from_slice(&[if fin { FIN } else { 0 }, length[1], length[2], length[3]]);
        out.extend_from_slice(bytes);
        out
    }

    /// Answers a ping.
    pub fn ping(&self, id: u32) -> Vec<u8> {
        control(6, &id.to_be_bytes())
    }
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80, 3];
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};

    /// A client's stream of two opened streams: compressed headers whose state goes on, behind the dictionary.
    #[test]
    fn headers_are_read_over_a_connections_state() {
        assert_eq!(adler32(DICTIONARY), 0xe3c6_a7c2, "the checksum that the specification's dictionary has");
        let mut deflate = Compress::new(Compression::default(), false);
        let mut squeeze = |plain: &[u8]| {
            let mut out = Vec::with_capacity(4096);
            deflate.compress_vec(plain, &mut out, FlushCompress::Sync).unwrap();
            out
        };
        // Priming the compressor's window, as the decoder primes its own; the client does not send that.
        squeeze(DICTIONARY);
        let mut wire = Vec::new();
        for (i, kind) in ["error", "data"].into_iter().enumerate() {
            let mut plain = 2_u32.to_be_bytes().to_vec();
            for word in ["streamtype", kind, "port", "8080"] {
                plain.extend_from_slice(&(word.len() as u32).to_be_bytes());
                plain.extend_from_slice(word.as_bytes());
            }
            let stream = 2 * i as u32 + 1;
            let mut body = stream.to_be_bytes().to_vec();
            body.extend_from_slice(&[0; 6]);
            if i == 0 {
                body.extend_from_slice(&[0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2]);
            }
            body.extend_from_slice(&squeeze(&plain));
            wire.extend_from_slice(&control(1, &body));
        }
        let mut decoder = Decoder::default();
        decoder.push(&wire[..20]);
        assert_eq!(decoder.next_frame(), Ok(None));
        decoder.push(&wire[20..]);
        for (stream, kind) in [(1, "error"), (3, "data")] {
            let headers = [("streamtype", kind), ("port", "8080")].map(|(k, v)| (k.to_owned(), v.to_owned()));
            assert_eq!(decoder.next_frame(), Ok(Some(Frame::Open { stream, headers: headers.into(), fin: false })));
        }
        assert_eq!(decoder.next_frame(), Ok(None));
    }

    #[test]
    fn an_accepted_stream_has_no_headers_and_ends_in_a_flush() {
        let mut encoder = Encoder::default();
        let first = encoder.accept(1);
        assert_eq!(first[..8], [0x80, 3, 0, 2, 0, 0, 0, 24]);
        assert_eq!(first[12..18], [0x78, 0x20, 0xe3, 0xc6, 0xa7, 0xc2]);
        assert_eq!(first[18..], [0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(encoder.accept(3)[12..], first[18..], "the dictionary is named once");
    }

    #[test]
    fn data_and_pings_go_both_ways() {
        let encoder = Encoder::default();
        let mut decoder = Decoder::default();
        decoder.push(&encoder.data(3, b"abc", true));
        decoder.push(&encoder.ping(7));
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Data { stream: 3, bytes: b"abc".to_vec(), fin: true })));
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Ping { id: 7 })));
        decoder.push(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]);
        assert_eq!(decoder.next_frame(), Err(Malformed("frame too long")));
    }
}
