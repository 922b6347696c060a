//! Waiting for something to become true, with a deadline.

use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Looks again and again until `look` succeeds; after `patience` its last error is the answer.
pub async fn eventually<T, F>(what: &str, patience: Duration, mut look: impl FnMut() -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, String>>,
{
    let start = Instant::now();
    loop {
        let why = match look().await {
            Ok(found) => return Ok(found),
            Err(why) => why,
        };
        if start.elapsed() > patience {
            return Err(format!("{what}: not within {} s: {why}", patience.as_secs()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_error_is_told() {
        let mut looks = 0;
        let found = eventually("three", Duration::from_secs(5), || {
            looks += 1;
            let seen = looks;
            async move { if seen == 3 { Ok(seen) } else { Err("not yet".to_owned()) } }
        });
        assert_eq!(found.await, Ok(3));
        let never = eventually("it", Duration::ZERO, || async { Err::<(), _>("no".to_owned()) }).await;
        assert_eq!(never, Err("it: not within 0 s: no".to_owned()));
    }
}
