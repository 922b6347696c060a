//! Sets of completion indexes as Jobs write them: `0-2,5`.

use std::collections::BTreeSet;

/// Reads a set; parts that do not parse are skipped.
pub fn parse(text: &str) -> BTreeSet<i32> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<i32>().ok()?..=last.trim().parse::<i32>().ok()?)
    };
    text.split(',').filter_map(part).flatten().collect()
}

/// Writes a set; three or more in a row become a range.
pub fn format(indexes: &BTreeSet<i32>) -> String {
    let mut parts: Vec<(i32, i32)> = Vec::new();
    for index in indexes {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => parts.push((*index, *index)),
        }
    }
    let text = |(first, last): (i32, i32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["", "0", "1,2", "0-3,5,7,8", "4-9"] {
            assert_eq!(format(&parse(text)), text);
        }
    }
}
