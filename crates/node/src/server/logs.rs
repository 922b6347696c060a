//! Reading container logs: a window of what is there, then what follows.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::limits;
use crate::runtime::host::log::rotated;

/// Which part of a log is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub follow: bool,
    pub tail: Option<usize>,
    pub limit_bytes: Option<u64>,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    /// `stdout` or `stderr` only.
    pub stream: Option<String>,
}

/// One entry of a log file.
struct Entry<'a> {
    time: &'a str,
    stream: &'a str,
    partial: bool,
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let mut parts = line.splitn(4, |b| *b == b' ');
    let mut word = || std::str::from_utf8(parts.next()?).ok();
    let (time, stream, tag) = (word()?, word()?, word()?);
    Some(Entry { time, stream, partial: tag == "P", text: parts.next().unwrap_or_default() })
}

impl Window {
    /// What a client sees of a line of the file.
    fn show(&self, line: &[u8]) -> Option<Vec<u8>> {
        let entry = parse(line)?;
        if self.stream.as_deref().is_some_and(|s| !s.eq_ignore_ascii_case(entry.stream)) {
            return None;
        }
        if let Some(since) = self.since
            && entry.time.parse::<Timestamp>().is_ok_and(|t| t < since)
        {
            return None;
        }
        let mut out = Vec::with_capacity(entry.text.len() + 40);
        if self.timestamps {
            out.extend_from_slice(entry.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(entry.text);
        if !entry.partial {
            out.push(b'\n');
        }
        Some(out)
    }
}

/// Reads whole lines of one file from a position on.
struct Cursor {
    path: PathBuf,
    position: u64,
}

impl Cursor {
    /// Lines that are complete; what follows the last end of line stays for the next time.
    fn lines(&mut self, mut each: impl FnMut(&[u8])) -> std::io::Result<()> {
        let mut file = File::open(&self.path)?;
        if file.metadata()?.len() < self.position {
            // The file was rotated under the reader: what it had not read is in the older half.
            let mut old = File::open(rotated(&self.path))?;
            old.seek(SeekFrom::Start(self.position))?;
            each_line(&mut BufReader::new(old), &mut each)?;
            self.position = 0;
        }
        file.seek(SeekFrom::Start(self.position))?;
        self.position += each_line(&mut BufReader::new(file), &mut each)?;
        Ok(())
    }
}

fn each_line(reader: &mut impl BufRead, each: &mut impl FnMut(&[u8])) -> std::io::Result<u64> {
    let (mut line, mut read) = (Vec::new(), 0);
    loop {
        line.clear();
        let n = reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Ok(read);
        }
        read += n as u64;
        each(&line);
    }
}

/// Sends the window of a log to a client. With `follow` it goes on until `ended` says that nothing more will come.
pub async fn send(path: PathBuf, window: Window, ended: impl Fn() -> bool, out: mpsc::Sender<Bytes>) {
    let mut left = window.limit_bytes.unwrap_or(u64::MAX);
    let mut cursor = Cursor { path: path.clone(), position: 0 };
    let mut kept: VecDeque<Vec<u8>> = VecDeque::new();
    let tail = window.tail.unwrap_or(usize::MAX);
    let mut keep = |line: &[u8]| {
        if let Some(shown) = window.show(line) {
            kept.push_back(shown);
            if kept.len() > tail {
                kept.pop_front();
            }
        }
    };
    if let Ok(old) = File::open(rotated(&path)) {
        let _ = each_line(&mut BufReader::new(old), &mut keep);
    }
    let _ = cursor.lines(keep);
    for shown in kept {
        if !deliver(shown, &mut left, &out).await {
            return;
        }
    }
    if !window.follow {
        return;
    }
    loop {
        let last = ended();
        let mut fresh = Vec::new();
        let _ = cursor.lines(|line| fresh.extend(window.show(line)));
        for shown in fresh {
            if !deliver(shown, &mut left, &out).await {
                return;
            }
        }
        if last {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(limits::LOG_FOLLOW_POLL) => {}
            () = out.closed() => return,
        }
    }
}

/// Sends one line; `false` when the client is gone or has had its share.
async fn deliver(mut shown: Vec<u8>, left: &mut u64, out: &mpsc::Sender<Bytes>) -> bool {
    shown.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= shown.len() as u64;
    let empty = shown.is_empty();
    (empty || out.send(shown.into()).await.is_ok()) && *left > 0
}

/// The last lines of a log as plain text, for a termination message.
pub fn tail_text(path: &Path, lines: usize, bytes: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    // An entry carries its time and stream beside the text.
    file.seek(SeekFrom::Start(length.saturating_sub(bytes * 2))).ok()?;
    let mut raw = Vec::new();
    file.read_to_end(&mut raw).ok()?;
    let window = Window::default();
    let shown: Vec<Vec<u8>> = raw.split(|b| *b == b'\n').filter_map(|line| window.show(line)).collect();
    let text = shown[shown.len().saturating_sub(lines)..].concat();
    let text = &text[text.len().saturating_sub(bytes as usize)..];
    let text = String::from_utf8_lossy(text).trim_end().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr P tw\n\
                       2026-01-01T00:00:02Z stderr F o\n2026-01-01T00:00:03Z stdout F three\n";

    async fn read(window: Window) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        let (out, mut lines) = mpsc::channel(64);
        send(path, window, || true, out).await;
        let mut text = Vec::new();
        while let Some(line) = lines.recv().await {
            text.extend_from_slice(&line);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn windows_of_a_log() {
        assert_eq!(read(Window::default()).await, "one\ntwo\nthree\n");
        assert_eq!(read(Window { tail: Some(1), ..Window::default() }).await, "three\n");
        assert_eq!(read(Window { limit_bytes: Some(5), ..Window::default() }).await, "one\nt");
        let since = Some("2026-01-01T00:00:03Z".parse().unwrap());
        assert_eq!(read(Window { since, timestamps: true, ..Window::default() }).await, "2026-01-01T00:00:03Z three\n");
        assert_eq!(read(Window { stream: Some("Stderr".into()), ..Window::default() }).await, "two\n");
        assert_eq!(read(Window { follow: true, ..Window::default() }).await, "one\ntwo\nthree\n");
    }

    #[test]
    fn last_words_are_plain_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        assert_eq!(tail_text(&path, 1, 2048).as_deref(), Some("three"));
        assert_eq!(tail_text(&dir.path().join("none"), 1, 10), None);
    }
}
