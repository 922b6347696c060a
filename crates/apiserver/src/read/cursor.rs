//! Continue tokens: base64 of a small JSON, as upstream has it; opaque to clients.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::error::{ApiError, Result};

const VERSION: &str = "meta.k8s.io/v1";
/// Revision of a token that goes on with whatever there is now.
const INCONSISTENT: i64 = -1;

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The snapshot; none goes on with the newest one.
    pub revision: Option<u64>,
    /// The last key that was answered, without the prefix of the list.
    pub after: String,
}

#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Cursor {
    pub fn to_token(&self) -> String {
        let rv = self.revision.map_or(INCONSISTENT, |r| r as i64);
        let token = Token { v: VERSION.to_owned(), rv, start: format!("{}\0", self.after) };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    pub fn parse(text: &str) -> Result<Cursor> {
        let invalid = |why: &str| ApiError::bad_request(format!("continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|e| invalid(&e.to_string()))?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|e| invalid(&e.to_string()))?;
        if token.v != VERSION || token.rv == 0 || token.start.contains("..") {
            return Err(invalid("it was not made by this server"));
        }
        let after = token.start.strip_suffix('\0').unwrap_or(&token.start).trim_start_matches('/').to_owned();
        Ok(Cursor { revision: u64::try_from(token.rv).ok(), after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_was() {
        for revision in [Some(7), None] {
            let cursor = Cursor { revision, after: "ns/name".into() };
            assert_eq!(Cursor::parse(&cursor.to_token()).unwrap(), cursor);
        }
        assert_eq!(Cursor::parse("garbage").unwrap_err().code, 400);
    }
}
