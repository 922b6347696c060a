//! Container logs in the form that the container runtime interface prescribes: `TIME STREAM F|P TEXT`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::limits;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn word(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// The log file of one run of a container.
pub struct LogWriter {
    path: PathBuf,
    file: File,
    written: u64,
    pending: [Vec<u8>; 2],
}

impl LogWriter {
    /// Opens the log, going on behind what is there.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = File::options().create(true).append(true).open(path)?;
        let written = file.metadata()?.len();
        Ok(LogWriter { path: path.to_owned(), file, written, pending: [Vec::new(), Vec::new()] })
    }

    /// Takes output as it comes and writes the lines that are complete.
    pub fn write(&mut self, stream: Stream, mut bytes: &[u8], now: jiff::Timestamp) -> io::Result<()> {
        let mut out = Vec::new();
        let pending = &mut self.pending[stream as usize];
        while !bytes.is_empty() {
            let room = limits::LOG_LINE_BYTES_MAX - pending.len();
            let line_end = bytes.iter().position(|b| *b == b'\n');
            match line_end {
                Some(end) if end <= room => {
                    pending.extend_from_slice(&bytes[..end]);
                    bytes = &bytes[end + 1..];
                    entry(&mut out, stream, 'F', pending, now);
                    pending.clear();
                }
                _ => {
                    let take = room.min(bytes.len());
                    pending.extend_from_slice(&bytes[..take]);
                    bytes = &bytes[take..];
                    if pending.len() == limits::LOG_LINE_BYTES_MAX {
                        entry(&mut out, stream, 'P', pending, now);
                        pending.clear();
                    }
                }
            }
        }
        self.append(&out)
    }

    /// Writes what came without an end of line.
    pub fn finish(&mut self, now: jiff::Timestamp) -> io::Result<()> {
        let mut out = Vec::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let pending = std::mem::take(&mut self.pending[stream as usize]);
            if !pending.is_empty() {
                entry(&mut out, stream, 'P', &pending, now);
            }
        }
        self.append(&out)
    }

    fn append(&mut self, entries: &[u8]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        if self.written + entries.len() as u64 > limits::LOG_BYTES_MAX && self.written > 0 {
            fs::rename(&self.path, rotated(&self.path))?;
            self.file = File::options().create(true).append(true).open(&self.path)?;
            self.written = 0;
        }
        self.file.write_all(entries)?;
        self.written += entries.len() as u64;
        Ok(())
    }
}

/// Where the older half of a log is kept.
pub fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

fn entry(out: &mut Vec<u8>, stream: Stream, tag: char, text: &[u8], now: jiff::Timestamp) {
    out.extend_from_slice(format!("{now:.9} {} {tag} ", stream.word()).as_bytes());
    out.extend_from_slice(text);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> jiff::Timestamp {
        "2026-01-02T03:04:05.5Z".parse().unwrap()
    }

    #[test]
    fn lines_are_entries_and_streams_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        let mut log = LogWriter::open(&path).unwrap();
        log.write(Stream::Stdout, b"one\ntw", at()).unwrap();
        log.write(Stream::Stderr, b"err\n", at()).unwrap();
        log.write(Stream::Stdout, b"o\nrest", at()).unwrap();
        log.finish(at()).unwrap();
        let t = "2026-01-02T03:04:05.500000000Z";
        let expected = format!("{t} stdout F one\n{t} stderr F err\n{t} stdout F two\n{t} stdout P rest\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_long_line_is_split_and_a_full_log_is_rotated_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = LogWriter::open(&path).unwrap();
        let mut line = vec![b'x'; limits::LOG_LINE_BYTES_MAX + 10];
        line.push(b'\n');
        log.write(Stream::Stdout, &line, at()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let tags: Vec<&str> = text.lines().map(|l| l.split(' ').nth(2).unwrap()).collect();
        assert_eq!(tags, ["P", "F"]);
        while !rotated(&path).exists() {
            log.write(Stream::Stdout, &line, at()).unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() < limits::LOG_BYTES_MAX);
    }
}
