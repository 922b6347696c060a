//! Cron schedules: five fields, names, lists, ranges, steps and the `@hourly` family.

use k8s_openapi::jiff::civil::{DateTime, Time, Weekday};
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{Span, Timestamp};

/// A parsed schedule. Each field is a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
    /// Whether day of month and day of week were given: then either may match.
    days_given: (bool, bool),
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

fn number(text: &str, names: &[&str], first: u32) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    match names.iter().position(|name| *name == lower) {
        Some(index) => Some(index as u32 + first),
        None => lower.parse().ok(),
    }
}

fn field(text: &str, min: u32, max: u32, names: &[&str]) -> Option<u64> {
    let mut bits = 0u64;
    for part in text.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let step: u32 = step.map_or(Some(1), |s| s.parse().ok()).filter(|s| *s > 0)?;
        let (low, high) = if range == "*" || range == "?" {
            (min, max)
        } else if let Some((low, high)) = range.split_once('-') {
            (number(low, names, min)?, number(high, names, min)?)
        } else {
            let low = number(range, names, min)?;
            (low, if part.contains('/') { max } else { low })
        };
        if low < min || high > max || low > high {
            return None;
        }
        (low..=high).step_by(step as usize).for_each(|value| bits |= 1 << value);
    }
    Some(bits)
}

impl Schedule {
    /// Reads a schedule; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else { return None };
        let given = |f: &str| !f.starts_with('*') && !f.starts_with('?');
        let mut weekdays = field(weekday, 0, 7, &WEEKDAYS)?;
        if weekdays & (1 << 7) != 0 {
            weekdays = (weekdays | 1) & 0x7f;
        }
        Some(Self {
            minute: field(minute, 0, 59, &[])?,
            hour: field(hour, 0, 23, &[])?,
            day: field(day, 1, 31, &[])?,
            month: field(month, 1, 12, &MONTHS)?,
            weekday: weekdays,
            days_given: (given(day), given(weekday)),
        })
    }

    fn day_matches(&self, at: DateTime) -> bool {
        let day = self.day & (1 << at.day()) != 0;
        let weekday = match at.weekday() {
            Weekday::Sunday => 0,
            other => other.to_monday_one_offset(),
        };
        let weekday = self.weekday & (1 << weekday) != 0;
        let days = if self.days_given == (true, true) { day || weekday } else { day && weekday };
        days && self.month & (1 << at.month()) != 0
    }

    /// The first time after `after`, within five years.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = zone.to_datetime(after);
        let mut at = start.with().second(0).subsec_nanosecond(0).build().ok()?.checked_add(Span::new().minutes(1)).ok()?;
        let end = start.checked_add(Span::new().years(5)).ok()?;
        while at < end {
            if !self.day_matches(at) {
                at = at.date().tomorrow().ok()?.to_datetime(Time::midnight());
            } else if self.hour & (1 << at.hour()) == 0 {
                at = at.with().minute(0).build().ok()?.checked_add(Span::new().hours(1)).ok()?;
            } else if self.minute & (1 << at.minute()) == 0 {
                at = at.checked_add(Span::new().minutes(1)).ok()?;
            } else {
                let found = zone.to_timestamp(at).ok()?;
                if found > after {
                    return Some(found);
                }
                at = at.checked_add(Span::new().minutes(1)).ok()?;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_times() {
        let next = |schedule: &str, after: &str| {
            Schedule::parse(schedule).and_then(|s| s.next(after.parse().unwrap(), &TimeZone::UTC)).map(|t| t.to_string())
        };
        let friday = "2026-12-04T10:07:30Z";
        assert_eq!(next("*/15 * * * *", friday).as_deref(), Some("2026-12-04T10:15:00Z"));
        assert_eq!(next("0 9 * * mon-fri", friday).as_deref(), Some("2026-12-07T09:00:00Z"));
        assert_eq!(next("30 4 1,15 * 5", friday).as_deref(), Some("2026-12-11T04:30:00Z"));
        assert_eq!(next("@yearly", friday).as_deref(), Some("2027-01-01T00:00:00Z"));
        assert_eq!(next("0 0 29 2 *", friday).as_deref(), Some("2028-02-29T00:00:00Z"));
        assert_eq!((next("61 * * * *", friday), next("* * *", friday), next("*/0 * * * *", friday)), (None, None, None));
    }
}
