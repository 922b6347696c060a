//! Schedules of CronJobs, in the syntax of the cron library that upstream uses, and time zones.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::path::Path;
use super::super::view::{at, has, text};

/// Job names get eleven characters appended.
const NAME_CHARS_MAX: usize = 52;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "cron_schedule" => cron_schedule,
        "time_zone" => time_zone,
        "manual_selector" => |c, v, p| {
            if *v == Value::Bool(true) {
                c.not_supported(p, true, &["nil", "false"]);
            }
        },
        "cron_job_name" => |c, v, p| {
            let name = v.as_str().unwrap_or_default();
            if name.len() > NAME_CHARS_MAX {
                c.invalid(p, name, "must be no more than 52 characters");
            }
        },
        _ => return None,
    };
    Some(rule)
}

/// Lowest and highest value of the five fields, and the names that the last two know.
const FIELDS: [(u32, u32, &str); 5] = [
    (0, 59, ""),
    (0, 23, ""),
    (1, 31, ""),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    (0, 6, "sun mon tue wed thu fri sat"),
];

fn value(text: &str, names: &str, low: u32) -> Result<u32, String> {
    if let Some(index) = names.split(' ').position(|n| !n.is_empty() && n.eq_ignore_ascii_case(text)) {
        return Ok(index as u32 + low);
    }
    let error = || format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax");
    let number: i64 = text.parse().map_err(|_| error())?;
    u32::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

/// `*/5`, `1-10/2`, `mon`.
fn range(expression: &str, (low, high, names): (u32, u32, &str)) -> Result<(), String> {
    let parts: Vec<&str> = expression.split('/').collect();
    let bounds: Vec<&str> = parts[0].split('-').collect();
    let (first, mut last);
    if matches!(bounds[0], "*" | "?") {
        (first, last) = (low, high);
    } else {
        first = value(bounds[0], names, low)?;
        last = match bounds.len() {
            1 => first,
            2 => value(bounds[1], names, low)?,
            _ => return Err(format!("too many hyphens: {expression}")),
        };
    }
    match parts.len() {
        1 => {}
        2 => {
            let step = value(parts[1], "", 0)?;
            if bounds.len() == 1 {
                last = high;
            }
            if step == 0 {
                return Err(format!("step of range should be a positive number: {expression}"));
            }
        }
        _ => return Err(format!("too many slashes: {expression}")),
    }
    if first < low {
        return Err(format!("beginning of range ({first}) below minimum ({low}): {expression}"));
    }
    if last > high {
        return Err(format!("end of range ({last}) above maximum ({high}): {expression}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {expression}"));
    }
    Ok(())
}

/// Whether a schedule can be read.
fn parse_schedule(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let mut rest = schedule;
    if rest.starts_with("TZ=") || rest.starts_with("CRON_TZ=") {
        rest = rest.split_once(' ').map_or("", |(_, r)| r).trim();
    }
    if rest.starts_with('@') {
        return match rest {
            "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
            _ if rest.starts_with("@every ") && is_go_duration(&rest[7..]) => Ok(()),
            _ if rest.starts_with("@every ") => {
                Err(format!("failed to parse duration {rest}: time: invalid duration {:?}", &rest[7..]))
            }
            _ => Err(format!("unrecognized descriptor: {rest}")),
        };
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: {fields:?}", fields.len())
            .replace("\", \"", " ")
            .replace(['"'], ""));
    }
    for (field, bounds) in fields.iter().zip(FIELDS) {
        for expression in field.split(',').filter(|e| !e.is_empty()) {
            range(expression, bounds)?;
        }
    }
    Ok(())
}

/// `1h30m`.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut is_some = false;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let tail = &rest[digits..];
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|u| {
            tail.strip_prefix(**u).is_some_and(|t| t.is_empty() || t.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        }) else {
            return false;
        };
        if digits == 0 {
            return false;
        }
        rest = &tail[unit.len()..];
        is_some = true;
    }
    is_some
}

fn cron_schedule<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let schedule = text(spec, "schedule");
    let path = path.field("schedule");
    if schedule.is_empty() {
        return;
    }
    if let Err(problem) = parse_schedule(schedule) {
        c.invalid(&path, schedule, problem);
    }
    if !schedule.contains("TZ") {
        return;
    }
    let had_zone = text(c.old, "spec.schedule").contains("TZ");
    if !had_zone {
        c.invalid(&path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if has(spec, "timeZone") {
        c.invalid(&path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    }
}

fn time_zone<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let zone = text(spec, "timeZone");
    let place = path.field("timeZone");
    if !has(spec, "timeZone") || (c.is_update() && at(c.old, "spec.timeZone") == at(spec, "timeZone")) {
        return;
    }
    if zone.is_empty() {
        return c.invalid(&place, "", "timeZone must be nil or non-empty string");
    }
    let is_part = |part: &str| {
        (1..=14).contains(&part.len())
            && !part.starts_with('-')
            && !matches!(part, "." | "..")
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+'))
    };
    if !zone.split('/').all(is_part) {
        return c.invalid(&place, zone, format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        c.invalid(&place, zone, detail);
    } else if zone != "UTC" && jiff::tz::TimeZone::get(zone).is_err() {
        c.invalid(&place, zone, format!("unknown time zone {zone}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["* * * * *", "*/5 0-6,12 1 jan-mar mon", "@daily", "@every 1h30m", "0 0 ? * 0"] {
            assert_eq!(parse_schedule(good), Ok(()), "{good}");
        }
        for bad in ["", "* * * *", "60 * * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "a * * * *", "@never", "@every x"] {
            assert!(parse_schedule(bad).is_err(), "{bad}");
        }
    }
}
