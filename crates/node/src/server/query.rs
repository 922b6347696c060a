//! Query parameters of the kubelet API.

use jiff::{SignedDuration, Timestamp};

use super::logs::Window;

/// Names and values in order; a name may occur more than once.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string.
    pub fn parse(text: &str) -> Query {
        let pairs = text.split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Query(pairs.collect())
    }

    /// All values of a name.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect()
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Whether a switch is on.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true" | "True"))
    }

    /// The part of a log that is asked for.
    pub fn window(&self) -> Result<Window, String> {
        fn number<T: std::str::FromStr>(query: &Query, name: &str) -> Result<Option<T>, String> {
            query.get(name).map(|v| v.parse().map_err(|_| format!("{name}: {v:?} is not a number"))).transpose()
        }
        let seconds: Option<i64> = number(self, "sinceSeconds")?;
        let since = match (self.get("sinceTime"), seconds) {
            (Some(time), _) => Some(time.parse().map_err(|_| format!("sinceTime: {time:?} is not a time"))?),
            (None, Some(seconds)) => Some(Timestamp::now() - SignedDuration::from_secs(seconds)),
            (None, None) => None,
        };
        Ok(Window {
            follow: self.flag("follow"),
            tail: number(self, "tailLines")?,
            limit_bytes: number(self, "limitBytes")?,
            since,
            timestamps: self.flag("timestamps"),
            stream: self.get("stream").filter(|s| *s != "All").map(str::to_owned),
        })
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut i) = (Vec::with_capacity(bytes.len()), 0);
    while i < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|b| (*b as char).to_digit(16));
        match (bytes[i], hex(i + 1), hex(i + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                i += 3;
            }
            (b'+', _, _) => {
                out.push(b' ');
                i += 1;
            }
            (byte, _, _) => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_escapes_and_windows() {
        let query = Query::parse("command=echo&command=a%20b%2Bc&command=x+y&tailLines=3&follow=true&output=1");
        assert_eq!(query.all("command"), ["echo", "a b+c", "x y"]);
        assert!(query.flag("output") && !query.flag("error"));
        let window = query.window().unwrap();
        assert_eq!((window.tail, window.follow), (Some(3), true));
        assert!(Query::parse("tailLines=x").window().is_err());
    }
}
