//! Durations as kubectl shows ages: two units at most, coarser as they grow.

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

fn two(big: i64, big_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
}

/// Writes a duration in seconds.
pub fn human_duration(seconds: i64) -> String {
    match seconds {
        s if s < -1 => "<invalid>".to_owned(),
        s if s < 0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, 'm', s % MINUTE, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, 'h', s % HOUR / MINUTE, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, 'd', s % DAY / HOUR, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, 'y', s % YEAR / DAY, 'd'),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (3600, "60m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 300, "3h5m"),
            (47 * HOUR, "47h"),
            (2 * DAY + HOUR, "2d1h"),
            (9 * DAY, "9d"),
            (3 * YEAR + DAY, "3y1d"),
            (9 * YEAR, "9y"),
        ] {
            assert_eq!(human_duration(seconds), text);
        }
    }
}
