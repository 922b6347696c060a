//! What the lab found out, and how it is printed.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// One test's outcome: `evidence` is what was seen, why it failed, or why it did not run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub number: u8,
    pub name: &'static str,
    pub result: Verdict,
    pub evidence: String,
    pub seconds: f64,
}

/// The whole run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub tests: Vec<Outcome>,
    pub seconds: f64,
}

impl Report {
    /// 0 if all passed, 1 if one failed, 3 if one did not run.
    pub fn exit_code(&self) -> u8 {
        let any = |verdict| self.tests.iter().any(|t| t.result == verdict);
        if any(Verdict::Failed) || self.tests.is_empty() {
            1
        } else if any(Verdict::Skipped) {
            3
        } else {
            0
        }
    }

    pub fn to_json(&self) -> serde_json::Value {
        let tests: Vec<_> = self.tests.iter().map(|t| serde_json::json!(t)).collect();
        serde_json::json!({ "tests": tests, "seconds": self.seconds })
    }

    /// The last line for people.
    pub fn summary(&self) -> String {
        let count = |verdict| self.tests.iter().filter(|t| t.result == verdict).count();
        let (passed, failed, skipped) = (count(Verdict::Passed), count(Verdict::Failed), count(Verdict::Skipped));
        format!("{passed} passed, {failed} failed, {skipped} skipped in {:.1} s", self.seconds)
    }
}

/// A time for the machine's reader: hundredths are enough.
pub fn rounded(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = match self.result {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Skipped => "skipped",
        };
        write!(f, "{}  {:<20} {verdict:<8} {:>6.2} s  {}", self.number, self.name, self.seconds, self.evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: &[Verdict]) -> Report {
        let outcome = |result: &Verdict| Outcome { number: 1, name: "n", result: *result, evidence: String::new(), seconds: 0.5 };
        Report { tests: verdicts.iter().map(outcome).collect(), seconds: 1.0 }
    }

    #[test]
    fn only_a_full_pass_is_zero() {
        assert_eq!(report(&[Verdict::Passed, Verdict::Passed]).exit_code(), 0);
        assert_eq!(report(&[Verdict::Passed, Verdict::Skipped]).exit_code(), 3);
        assert_eq!(report(&[Verdict::Failed, Verdict::Skipped]).exit_code(), 1);
        assert_eq!(report(&[]).exit_code(), 1);
    }

    #[test]
    fn json_has_the_documented_fields() {
        let json = report(&[Verdict::Skipped]).to_json();
        let expected = serde_json::json!({
            "tests": [{ "number": 1, "name": "n", "result": "skipped", "evidence": "", "seconds": 0.5 }], "seconds": 1.0,
        });
        assert_eq!(json, expected);
    }
}
